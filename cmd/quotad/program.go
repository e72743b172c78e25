package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// program is quotad as a process sees it: what it writes to, its environment and the signals that it gets.
type program struct {
	stdout, stderr io.Writer
	environ        []string
	// hurry is closed when a graceful end takes too long for whoever waits.
	hurry <-chan struct{}
	// started, unless nil, is told where a node listens once it serves.
	started func(addresses)
}

// run is the whole of a process: it runs the command that args name, until it is done or ctx ends, and returns the exit
// code.
func (p *program) run(ctx context.Context, args []string) int {
	root := p.command()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(err)
	if code != exitDone {
		fmt.Fprintf(p.stderr, "quotad: %v\n", err)
	}
	return code
}

// failure is an error of a command that was asked for in the right way.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// exitCode tells failures from wrong usage, which is everything that cobra and load refuse.
func exitCode(err error) int {
	var failed *failure
	var refused refusals
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &refused):
		return exitUsage
	case errors.As(err, &failed):
		return exitFailed
	default:
		return exitUsage
	}
}

// command is the tree of commands.
func (p *program) command() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "quotad",
		Short: "May this caller do this now? Quotas and rate limits as a service",
	}, p.serveCommand(), p.migrateCommand(), p.keysCommand(), p.versionCommand())
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(flagError)
	return root
}

// group is a command that only holds others: by itself it is wrong usage.
func group(c *cobra.Command, children ...*cobra.Command) *cobra.Command {
	c.AddCommand(children...)
	var names []string
	for _, child := range children {
		names = append(names, child.Name())
	}
	c.Args = func(c *cobra.Command, args []string) error {
		return fmt.Errorf("%s needs one of the commands %s; see %s --help", c.CommandPath(), strings.Join(names, ", "), c.CommandPath())
	}
	c.RunE = func(*cobra.Command, []string) error { return nil }
	return c
}

// does makes a command from what it does with its configuration. What it returns is a failure, exit code 1.
func (p *program) does(c *cobra.Command, reads command, do func(c *cobra.Command, config Config, args []string) error) *cobra.Command {
	reads.addFlags(c.Flags())
	args := c.Args
	c.Args = func(c *cobra.Command, given []string) error {
		if args == nil && len(given) > 0 || args != nil && args(c, given) != nil {
			// What was given is not repeated: it may be a secret in the wrong place.
			return fmt.Errorf("wrong number of arguments; usage: %s", c.UseLine())
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		config, err := load(reads, c.Flags(), p.environ)
		if err != nil {
			return err
		}
		if err := do(c, config, args); err != nil {
			return &failure{err: err}
		}
		return nil
	}
	return c
}

// flagError says what is wrong with a flag without repeating its value.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		return fmt.Errorf("unknown flag --%s; see %s --help", unknown.GetSpecifiedName(), c.CommandPath())
	case errors.As(err, &missing) && missing.GetSpecifiedName() != "":
		return fmt.Errorf("flag --%s needs a value; see %s --help", missing.GetSpecifiedName(), c.CommandPath())
	default:
		return fmt.Errorf("a flag is written wrong (they begin with two dashes); see %s --help", c.CommandPath())
	}
}
