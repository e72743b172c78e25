package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/secret"
)

// The commands ask the admin API of a running node and not the database: so roles hold, the write is audited under the
// name of the token, and every node hears of it.
func (p *program) keysCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "keys",
		Short: "Make, list, rotate and revoke API keys through the admin API of a running node",
	}, p.keysCreateCommand(), p.keysListCommand(), p.keysRotateCommand(), p.keysRevokeCommand())
}

// asks makes a command that asks the admin API, and prints what it answers for a person or, with --json, as it is.
func (p *program) asks(c *cobra.Command, ask func(c *cobra.Command, to *client, args []string) (answer any, human func(io.Writer), err error)) *cobra.Command {
	asJSON := false
	c.Args = cobra.ExactArgs(1)
	c = p.does(c, forKeys, func(c *cobra.Command, config Config, args []string) error {
		if config.AdminToken == "" {
			return refusals{{where: "--token", err: errors.New("is required, or QUOTAD_ADMIN_TOKEN")}}
		}
		if strings.HasPrefix(args[0], secret.APIKey+"_") {
			// Not to be sent in a path, where it would be logged on the way.
			return refusals{{where: "argument", err: errors.New("is a secret; give the key's id, which is what stands between its first two underscores")}}
		}
		answer, human, err := ask(c, newClient(config), args)
		if err != nil {
			return err
		}
		if !asJSON {
			human(p.stdout)
			return nil
		}
		encoder := json.NewEncoder(p.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(answer)
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return c
}

func (p *program) keysCreateCommand() *cobra.Command {
	var name, limit, window, groups, cidrs, expires text
	c := p.asks(&cobra.Command{Use: "create tenant", Short: "Make a key of a tenant; its secret is printed once"},
		func(c *cobra.Command, to *client, args []string) (any, func(io.Writer), error) {
			spec, err := keySpec(name, limit, window, groups, cidrs, expires)
			if err != nil {
				return nil, nil, err
			}
			var key quotad.Key
			err = to.do(c.Context(), http.MethodPost, "/tenants/"+url.PathEscape(args[0])+"/keys", spec, &key)
			return key, func(w io.Writer) { showSecret(w, key) }, err
		})
	for _, f := range []struct {
		to               *text
		name, kind, help string
	}{
		{&name, "name", "text", "what people call the key"},
		{&limit, "rate-limit", "units", "the key's own limit in place of the tier's, with --rate-window"},
		{&window, "rate-window", "seconds", "the window of --rate-limit"},
		{&groups, "route-groups", "names", "the only route groups that it may call, with commas between"},
		{&cidrs, "allowed-cidrs", "ranges", "the only addresses that may use it, with commas between"},
		{&expires, "expires-at", "time", "when it stops working, such as 2027-01-31T00:00:00Z"},
	} {
		f.to.kind = f.kind
		c.Flags().Var(f.to, f.name, f.help)
	}
	return c
}

// keySpec reads the flags of a new key. The server judges them; here they only have to be of the right form, and all that
// are not are refused at once.
func keySpec(name, limit, window, groups, cidrs, expires text) (quotad.KeySpec, error) {
	spec := quotad.KeySpec{Name: name.value, RouteGroups: list(groups.value), AllowedCIDRs: []netip.Prefix{}}
	spec.SetDefaults()
	var wrong refusals
	read := func(flag string, of text, accepts string, set func(string) error) {
		if of.value == "" {
			return
		}
		if set(of.value) != nil {
			wrong = append(wrong, refusal{where: "--" + flag, err: fmt.Errorf("must be %s, not %q", accepts, of.value)})
		}
	}
	number := func(to **int64) func(string) error {
		return func(s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			*to = &n
			return err
		}
	}
	read("rate-limit", limit, "a whole number of units", number(&spec.RateLimit))
	read("rate-window", window, "a whole number of seconds", number(&spec.RateWindow))
	read("allowed-cidrs", cidrs, "ranges such as 192.0.2.0/24, with commas between", func(s string) error {
		for _, part := range list(s) {
			p, err := netip.ParsePrefix(part)
			if err != nil {
				return err
			}
			spec.AllowedCIDRs = append(spec.AllowedCIDRs, p)
		}
		return nil
	})
	read("expires-at", expires, "a time such as 2027-01-31T00:00:00Z", func(s string) error {
		at, err := time.Parse(time.RFC3339, s)
		spec.ExpiresAt = &at
		return err
	})
	if wrong != nil {
		return spec, wrong
	}
	return spec, nil
}

func (p *program) keysListCommand() *cobra.Command {
	return p.asks(&cobra.Command{Use: "list tenant", Short: "List the keys of a tenant"},
		func(c *cobra.Command, to *client, args []string) (any, func(io.Writer), error) {
			keys, err := to.keys(c.Context(), args[0])
			return map[string]any{"items": keys}, func(w io.Writer) { showKeys(w, keys) }, err
		})
}

func (p *program) keysRotateCommand() *cobra.Command {
	grace := text{kind: "seconds"}
	c := p.asks(&cobra.Command{Use: "rotate key-id", Short: "Give a key a new secret, which is printed once; its usage stays"},
		func(c *cobra.Command, to *client, args []string) (any, func(io.Writer), error) {
			body := map[string]int64{}
			if grace.value != "" {
				n, err := strconv.ParseInt(grace.value, 10, 64)
				if err != nil {
					return nil, nil, refusals{{where: "--grace-seconds", err: fmt.Errorf("must be a whole number of seconds, not %q", grace.value)}}
				}
				body["grace_seconds"] = n
			}
			var key quotad.Key
			err := to.do(c.Context(), http.MethodPost, "/keys/"+url.PathEscape(args[0])+"/rotate", body, &key)
			return key, func(w io.Writer) { showSecret(w, key) }, err
		})
	c.Flags().Var(&grace, "grace-seconds", "how long the old secret goes on working, 0 to 2592000; an hour unless given")
	return c
}

func (p *program) keysRevokeCommand() *cobra.Command {
	return p.asks(&cobra.Command{Use: "revoke key-id", Short: "End a key for good"},
		func(c *cobra.Command, to *client, args []string) (any, func(io.Writer), error) {
			path := "/keys/" + url.PathEscape(args[0])
			if err := to.do(c.Context(), http.MethodDelete, path, nil, nil); err != nil {
				return nil, nil, err
			}
			var key quotad.Key
			err := to.do(c.Context(), http.MethodGet, path, nil, &key)
			return key, func(w io.Writer) { fmt.Fprintf(w, "key %s of tenant %s is %s\n", key.ID, key.Tenant, key.Status) }, err
		})
}

func showSecret(w io.Writer, key quotad.Key) {
	fmt.Fprintf(w, "id      %s\ntenant  %s\nsecret  %s\n\nThis is the only time that the secret is shown.\n", key.ID, key.Tenant, key.Secret)
}

func showKeys(w io.Writer, keys []quotad.Key) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tNAME\tSTATUS\tHINT\tLIMIT\tROUTE GROUPS\tCREATED\tLAST USED\tEXPIRES")
	for _, k := range keys {
		limit := "tier's"
		if k.RateLimit != nil && k.RateWindow != nil {
			limit = fmt.Sprintf("%d/%ds", *k.RateLimit, *k.RateWindow)
		}
		groups := "all"
		if k.RouteGroups != nil {
			groups = strings.Join(k.RouteGroups, ",")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Name, k.Status, k.Hint, limit, groups,
			k.CreatedAt.UTC().Format(time.RFC3339), moment(k.LastUsedAt), moment(k.ExpiresAt))
	}
	t.Flush()
}

func moment(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
