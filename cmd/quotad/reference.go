package main

import (
	"fmt"
	"strings"
)

// configurationTable is the table of all options for README.md, as Markdown.
func configurationTable() string {
	var b strings.Builder
	b.WriteString("| option | environment | default | what it is |\n|---|---|---|---|\n")
	for _, o := range options() {
		name := "`--" + o.name + "`"
		if o.noFlag {
			name = "–"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", name, o.env, code(o.standard), escape(o.sentence()))
	}
	return b.String()
}

// sentence says what the option is, who reads it if that is not a node, and what it accepts.
func (o option) sentence() string {
	s := strings.ToUpper(o.help[:1]) + o.help[1:]
	if o.commands == forKeys {
		s = "`quotad keys`: " + o.help
	}
	return s + "; " + o.field.accepts + "."
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + escape(text) + "`"
}

func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
