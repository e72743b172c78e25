package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// addFlags gives a command a flag for each option that it reads. Flags only carry texts: load judges all of them
// together, and no parser of flags repeats a password in its error.
func (c command) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	for _, o := range c.options() {
		if o.noFlag {
			continue
		}
		flag := flags.VarPF(&text{value: o.standard, kind: o.field.kind}, o.name, "", o.usage())
		if o.field.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	if c&forServer != 0 {
		flags.Var(&text{kind: "file"}, "config", "a YAML file of options, each under the name of its flag")
	}
}

// usage is the help of a flag.
func (o option) usage() string {
	return fmt.Sprintf("%s: %s [%s]", o.help, o.field.accepts, o.env)
}

// text is a flag's value.
type text struct{ value, kind string }

func (t *text) String() string { return t.value }
func (t *text) Type() string   { return t.kind }

func (t *text) Set(s string) error {
	t.value = strings.TrimSpace(s)
	return nil
}
