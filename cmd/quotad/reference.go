package main

import (
	"fmt"
	"strings"
)

// configurationTable is the table of all options for docs/configuration.md, as Markdown.
func configurationTable() string {
	var b strings.Builder
	b.WriteString("| option | environment | default | must be | what it is |\n|---|---|---|---|---|\n")
	for _, o := range options() {
		name := "`--" + o.name + "`"
		if o.noFlag {
			name = "–"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", name, o.env, code(o.standard), escape(o.field.accepts), escape(o.sentence()))
	}
	return b.String()
}

// sentence says what the option is, and who reads it if that is not a node.
func (o option) sentence() string {
	if o.commands == forKeys {
		return "`quotad keys`: " + o.help + "."
	}
	return strings.ToUpper(o.help[:1]) + o.help[1:] + "."
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + escape(text) + "`"
}

func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
