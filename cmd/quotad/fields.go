package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/httpapi"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
)

// field is a place in the configuration and the texts that may fill it.
type field struct {
	// kind is one word for the value in a command's help.
	kind string
	// accepts says which texts are taken, as it stands behind "must be".
	accepts string
	// secret texts are never repeated.
	secret bool
	// set puts what the text says into the configuration; false when the text is not accepted.
	set func(c *Config, text string) bool
}

// refuse says why the text was refused, and repeats it unless it may hold a secret.
func (f field) refuse(text string) error {
	if f.secret {
		return fmt.Errorf("must be %s (its value is not shown)", f.accepts)
	}
	return fmt.Errorf("must be %s, not %q", f.accepts, text)
}

func address(to func(*Config) *string) field {
	return field{kind: "address", accepts: "host:port or :port", set: func(c *Config, text string) bool {
		host, port, err := net.SplitHostPort(text)
		_, errPort := strconv.ParseUint(port, 10, 16)
		*to(c) = text
		return err == nil && errPort == nil && !strings.ContainsAny(host, " /\\@")
	}}
}

func duration(to func(*Config) *time.Duration, least, most time.Duration) field {
	accepts := fmt.Sprintf("a duration with its unit, %s to %s", short(least), short(most))
	return field{kind: "duration", accepts: accepts, set: func(c *Config, text string) bool {
		d, err := time.ParseDuration(text)
		*to(c) = d
		return err == nil && d >= least && d <= most
	}}
}

// short is a duration without units of which there are none: 10m, not 10m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func whole(to func(*Config) *int, least, most int) field {
	return field{kind: "number", accepts: fmt.Sprintf("a whole number, %d to %d", least, most), set: func(c *Config, text string) bool {
		n, err := strconv.Atoi(text)
		*to(c) = n
		return err == nil && n >= least && n <= most
	}}
}

// maxRate is the most units of a rate, and maxRateWindow its longest window in seconds.
const maxRate, maxRateWindow = 1_000_000_000, 86_400

func rate(set func(c *Config, r quota.Rate)) field {
	accepts := fmt.Sprintf("calls/seconds such as 300/60, at most %d in at most %d seconds, or off", maxRate, maxRateWindow)
	return field{kind: "rate", accepts: accepts, set: func(c *Config, text string) bool {
		units, seconds, slash := strings.Cut(text, "/")
		n, err := strconv.ParseUint(units, 10, 32)
		window, errWindow := strconv.ParseUint(seconds, 10, 32)
		switch {
		case text == "off":
			set(c, quota.Rate{})
			return true
		case !slash || err != nil || errWindow != nil || n < 1 || n > maxRate || window < 1 || window > maxRateWindow:
			return false
		}
		set(c, quota.Rate{Units: int64(n), Window: time.Duration(window) * time.Second})
		return true
	}}
}

func onOff(to func(*Config) *bool) field {
	return field{kind: "bool", accepts: "true or false", set: func(c *Config, text string) bool {
		*to(c) = text == "true"
		return text == "true" || text == "false"
	}}
}

func choice[T ~string](to func(*Config) *T, of ...T) field {
	words := make([]string, len(of))
	for i, w := range of {
		words[i] = string(w)
	}
	return field{kind: "word", accepts: anyOf(words), set: func(c *Config, text string) bool {
		*to(c) = T(text)
		return slices.Contains(of, T(text))
	}}
}

func anyOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func level() field {
	levels := []string{"debug", "info", "warn", "error"}
	return field{kind: "word", accepts: anyOf(levels), set: func(c *Config, text string) bool {
		return slices.Contains(levels, text) && c.LogLevel.UnmarshalText([]byte(text)) == nil
	}}
}

// list splits a text at commas; "" has no parts.
func list(text string) []string {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

func ranges(to func(*Config) *[]netip.Prefix) field {
	return field{kind: "ranges", accepts: "addresses or ranges such as 10.0.0.0/8, with commas between", set: func(c *Config, text string) bool {
		var found []netip.Prefix
		for _, part := range list(text) {
			p, err := netip.ParsePrefix(part)
			if a, errAddr := netip.ParseAddr(part); errAddr == nil && a.Zone() == "" {
				a = a.Unmap()
				p, err = netip.PrefixFrom(a, a.BitLen()), nil
			}
			if err != nil || p.Addr().Is4In6() {
				return false
			}
			found = append(found, p.Masked())
		}
		*to(c) = found
		return true
	}}
}

func origins(to func(*Config) *[]string) field {
	return field{kind: "origins", accepts: "origins such as https://app.example.com, with commas between, or *", set: func(c *Config, text string) bool {
		found := list(text)
		*to(c) = found
		for _, origin := range found {
			u, err := url.Parse(origin)
			if origin == "*" && len(found) == 1 {
				continue
			}
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
				return false
			}
		}
		return true
	}}
}

func keyPrefix(to func(*Config) *string) field {
	accepts := "1 to 64 letters, digits and any of . _ : -"
	return field{kind: "text", accepts: accepts, set: func(c *Config, text string) bool {
		*to(c) = text
		for _, r := range text {
			if r > '~' || !strings.ContainsRune("._:-", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
				return false
			}
		}
		return len(text) >= 1 && len(text) <= 64
	}}
}

func databaseURL(to func(*Config) *hidden) field {
	accepts := "sqlite://file or postgres://user:password@host:5432/name, with special characters in the password percent-encoded"
	return field{kind: "url", accepts: accepts, secret: true, set: func(c *Config, text string) bool {
		*to(c) = hidden(text)
		return database.CheckAddress(text) == nil
	}}
}

func postgresURL(to func(*Config) *hidden) field {
	f := databaseURL(to)
	f.accepts = "postgres://user:password@host:5432/name, with special characters in the password percent-encoded"
	set := f.set
	f.set = func(c *Config, text string) bool {
		engine, err := database.EngineOf(text)
		return set(c, text) && err == nil && engine == database.Postgres
	}
	return f
}

func redisURL(to func(*Config) *hidden) field {
	accepts := "redis://user:password@host:6379/0, rediss://… or unix://…, with special characters in the password percent-encoded; " +
		"further nodes or sentinels as ?addr=host:port&addr=…, and the sentinels' name of the master as &master_name=…"
	return field{kind: "url", accepts: accepts, secret: true, set: func(c *Config, text string) bool {
		*to(c) = hidden(text)
		return ratelimit.CheckURL(text, c.RedisMode) == nil
	}}
}

func serverURL(to func(*Config) *string) field {
	return field{kind: "url", accepts: "http://host:port or https://host:port, without a password", secret: true, set: func(c *Config, text string) bool {
		u, err := url.Parse(strings.TrimSuffix(text, "/"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return false
		}
		*to(c) = u.String()
		return true
	}}
}

func upstreams(to func(*Config) *string) field {
	accepts := "http://host:port or https://host:port, without a path or a password; further ones behind the name of a route group and =, with commas between"
	return field{kind: "urls", accepts: accepts, secret: true, set: func(c *Config, text string) bool {
		*to(c) = text
		_, err := httpapi.ParseUpstreams(text)
		return err == nil
	}}
}

func token(to func(*Config) *hidden) field {
	accepts := fmt.Sprintf("%d to %d printable ASCII characters without spaces", admintokens.MinGiven, admintokens.MaxGiven)
	return field{kind: "token", accepts: accepts, secret: true, set: func(c *Config, text string) bool {
		*to(c) = hidden(text)
		odd := strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
		return len(text) >= admintokens.MinGiven && len(text) <= admintokens.MaxGiven && !odd
	}}
}

// together says what is wrong with fields that are each right by themselves.
func (c Config) together() []refusal {
	var refused []refusal
	refuse := func(wrong bool, name, why string) {
		if wrong {
			refused = append(refused, refusal{name: name, err: errors.New(why)})
		}
	}
	engine, err := database.EngineOf(c.Database.reveal())
	refuse(c.DatabaseDirect != "" && err == nil && engine != database.Postgres, "database-direct", "has no meaning where database is a sqlite file")
	refuse(c.GatewayListen != "" && c.Upstream == "", "gateway-listen", "needs upstream")
	taken := func(listen string, others ...string) bool { // port 0 is another one for each
		return listen != "" && slices.Contains(others, listen) && !strings.HasSuffix(listen, ":0")
	}
	refuse(taken(c.AdminListen, c.Listen), "admin-listen", "must not be where the metered API listens")
	refuse(taken(c.GatewayListen, c.Listen, c.AdminListen), "gateway-listen", "must not be where the metered or the admin API listens")
	refuse(taken(c.GRPCListen, c.Listen, c.AdminListen, c.GatewayListen), "grpc-listen", "must not be where another listener is")
	return refused
}
