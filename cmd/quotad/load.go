package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// envPrefix begins the name of every environment variable that is ours.
const envPrefix = "QUOTAD_"

// refusal is one thing that is wrong with what a command was told.
type refusal struct {
	where string // "--listen", "QUOTAD_LISTEN", "quotad.yaml:3: listen"
	name  string // the option's, where it stands for where
	err   error
}

// refusals are all of them.
type refusals []refusal

// Error has one line for each, which names the field and where it was said.
func (r refusals) Error() string {
	var b strings.Builder
	b.WriteString("the configuration is refused:")
	for _, one := range r {
		fmt.Fprintf(&b, "\n  %s: %v", one.where, one.err)
	}
	return b.String()
}

// told is what a command was told, and by whom.
type told struct {
	known   map[string]option
	values  *koanf.Koanf
	where   map[string]string // by option: who had the last word
	refused refusals
	// unknown are environment variables that look like ours and are not.
	unknown []string
}

// load reads the configuration of a command: flags over the environment over the file that --config names over the
// defaults. What is wrong with it is refused all at once, as refusals.
func load(command command, flags *pflag.FlagSet, environ []string) (Config, error) {
	t := &told{known: map[string]option{}, values: koanf.New("."), where: map[string]string{}}
	for _, o := range command.options() {
		t.known[o.name] = o
	}
	if path := flags.Lookup("config"); path != nil && path.Value.String() != "" {
		t.file(path.Value.String())
	}
	t.environment(environ)
	t.commandLine(flags)
	var c Config
	t.fill(command, &c)
	if len(t.refused) > 0 {
		return Config{}, t.refused
	}
	slices.Sort(t.unknown)
	c.unknown = t.unknown
	return c, nil
}

// layer takes over what one source says, and remembers that it did.
func (t *told) layer(where func(name string) string) koanf.Option {
	return koanf.WithMergeFunc(func(src, dest map[string]any) error {
		for name, value := range src {
			dest[name], t.where[name] = value, where(name)
		}
		return nil
	})
}

func (t *told) refuse(where string, err error) {
	t.refused = append(t.refused, refusal{where: where, err: err})
}

// file reads the configuration file. It belongs to a node, whichever command reads it: every option of a node may stand
// in it, and each must be right.
func (t *told) file(path string) {
	short := filepath.Base(path)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.refuse("--config", err)
		return
	}
	parser := &lines{}
	keep := func(src, dest map[string]any) error {
		for _, name := range slices.SortedFunc(maps.Keys(src), parser.byLine) {
			at := fmt.Sprintf("%s:%d: %s", short, parser.of[name], name)
			if err := t.fromFile(name); err != nil {
				t.refuse(at, err)
				continue
			}
			dest[name], t.where[name] = src[name], at
		}
		return nil
	}
	if err := t.values.Load(rawbytes.Provider(raw), parser, koanf.WithMergeFunc(keep)); err != nil {
		t.refuse(short, err)
	}
}

// fromFile says why an option does not belong into a file, nil if it does.
func (t *told) fromFile(name string) error {
	i := slices.IndexFunc(options(), func(o option) bool { return o.name == name })
	if i < 0 {
		return errors.New("is not an option")
	}
	o := options()[i]
	if o.noFile {
		return fmt.Errorf("is not taken from a file: set %s", o.env)
	}
	t.known[name] = o
	return nil
}

func (t *told) environment(environ []string) {
	byEnv := map[string]string{}
	for name, o := range t.known {
		byEnv[o.env] = name
	}
	source := env.Provider("", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(variable, value string) (string, any) {
			name, ok := byEnv[variable]
			if !ok && !anyKnows(variable) {
				t.unknown = append(t.unknown, variable)
			}
			if value == "" {
				return "", nil // as good as not set
			}
			return name, value
		},
	})
	// This provider does not fail.
	_ = t.values.Load(source, nil, t.layer(func(name string) string { return t.known[name].env }))
}

// anyKnows reports whether a variable means something to some command, or is made by Kubernetes for a service of our
// name, or belongs to the tests.
func anyKnows(variable string) bool {
	rest := strings.TrimPrefix(variable, envPrefix)
	return slices.ContainsFunc(options(), func(o option) bool { return o.env == variable }) ||
		strings.HasPrefix(rest, "SERVICE_") || strings.HasPrefix(rest, "PORT") || strings.HasPrefix(rest, "TEST_")
}

func (t *told) commandLine(flags *pflag.FlagSet) {
	source := posflag.ProviderWithFlag(flags, "", nil, func(f *pflag.Flag) (string, any) {
		if _, ok := t.known[f.Name]; !ok {
			return "", nil // of the command itself, such as --json
		}
		return f.Name, f.Value.String()
	})
	_ = t.values.Load(source, nil, t.layer(func(name string) string { return "--" + name }))
}

// fill reads every text into the configuration.
func (t *told) fill(command command, c *Config) {
	for _, o := range options() {
		if _, ok := t.known[o.name]; !ok {
			continue
		}
		said, isSaid := t.where[o.name]
		text := o.standard
		if isSaid {
			var err error
			if text, err = asText(t.values.Get(o.name)); err != nil {
				t.refuse(said, err)
				continue
			}
		}
		if text == "" && o.standard == "" {
			continue // nothing at all
		}
		if !o.field.set(c, text) {
			t.refuse(said, o.field.refuse(text))
		}
	}
	if len(t.refused) > 0 || command&forServer == 0 {
		return
	}
	for _, r := range c.together() {
		r.where = cmp.Or(t.where[r.name], "--"+r.name)
		t.refused = append(t.refused, r)
	}
	if command&forServe == 0 {
		return // others know a part of what a node is told
	}
	for _, o := range options() {
		if o.needs != "" && t.says(o.name) && !t.says(o.needs) {
			t.refuse(t.where[o.name], fmt.Errorf("has no meaning without %s", o.needs))
		}
	}
}

// says reports whether anybody has said anything of an option.
func (t *told) says(name string) bool {
	text, err := asText(t.values.Get(name))
	return err == nil && text != ""
}

// asText is what a file says as it would stand on a command line.
func asText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case []any:
		parts := make([]string, len(v))
		for i, one := range v {
			if _, nested := one.([]any); nested {
				return "", errors.New("must be a value or a list of values")
			}
			part, err := asText(one)
			if err != nil {
				return "", err
			}
			parts[i] = part
		}
		return strings.Join(parts, ","), nil
	case nil:
		return "", errors.New("has no value")
	default:
		return "", errors.New("must be a value or a list of values")
	}
}
