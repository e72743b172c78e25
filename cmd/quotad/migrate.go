package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quotad/quotad/migrations"
)

func (p *program) migrateCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "migrate",
		Short: "Change or show the schema of the database",
	}, p.migrateUpCommand(), p.migrateDownCommand(), p.migrateStatusCommand())
}

func (p *program) migrateUpCommand() *cobra.Command {
	var repair bool
	c := p.does(&cobra.Command{
		Use:   "up",
		Short: "Bring the schema to the version that this quotad needs",
		Long: "Bring the schema to the version that this quotad needs. serve does so by itself when it starts; whoever comes\n" +
			"second waits for the first.",
	}, forMigrate, func(c *cobra.Command, config Config, _ []string) error {
		if repair {
			if err := migrations.Repair(c.Context(), config.direct()); err != nil {
				return err
			}
		}
		if err := migrations.Up(c.Context(), config.direct()); err != nil {
			return err
		}
		return p.showSchema(c, config)
	})
	c.Flags().BoolVar(&repair, "repair", false,
		"first set the version of a half-done migration to what the schema really holds")
	return c
}

func (p *program) migrateDownCommand() *cobra.Command {
	steps := &text{kind: "number"}
	c := p.does(&cobra.Command{
		Use:   "down --steps number",
		Short: "Take back the last migrations, with all that their tables hold",
	}, forMigrate, func(c *cobra.Command, config Config, _ []string) error {
		var n int
		if !whole(func(*Config) *int { return &n }, 1, 10_000).set(nil, steps.value) {
			return refusals{{where: "--steps", err: whole(nil, 1, 10_000).refuse(steps.value)}}
		}
		if err := migrations.Down(c.Context(), config.direct(), n); err != nil {
			return err
		}
		return p.showSchema(c, config)
	})
	c.Flags().Var(steps, "steps", "how many migrations; required, because what they hold is lost")
	return c
}

func (p *program) migrateStatusCommand() *cobra.Command {
	return p.does(&cobra.Command{
		Use:   "status",
		Short: "Show where the schema stands; exit code 1 unless serve could start on it",
	}, forMigrate, func(c *cobra.Command, config Config, _ []string) error {
		return p.showSchema(c, config)
	})
}

// showSchema prints where the schema stands. It fails where that keeps serve from starting.
func (p *program) showSchema(c *cobra.Command, config Config) error {
	state, err := migrations.Status(c.Context(), config.direct())
	if err != nil {
		return err
	}
	word := "up to date"
	switch {
	case state.Dirty:
		word = "begun and not finished"
	case state.Version < state.Latest:
		word = "behind: run quotad migrate up, or let serve do it"
	case state.Version > state.Latest:
		word = "newer than this quotad"
	}
	if _, err := fmt.Fprintf(p.stdout, "schema version %d of %d, %s\n", state.Version, state.Latest, word); err != nil {
		return err
	}
	return state.Err()
}
