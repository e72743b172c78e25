package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is a server program of this machine, ready to be started on a port.
type program struct {
	dir   string // its data and its log; removed at the end
	argv  func(port int) []string
	env   []string            // variables besides ours
	cred  *syscall.Credential // whom it runs as; nil: as we do
	end   string              // the signal, without SIG, that ends it at the end
	url   func(port int) string
	ready func(ctx context.Context, url string) error
}

// process is a program that was started. It is an instance.
type process struct {
	program
	port   int
	keeper *keeper
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been waited for
}

// startProcess starts p on a free port and waits until it is ready. Until remove is called the result owns p.dir.
func startProcess(ctx context.Context, p program) (*process, error) {
	k, err := startKeeper(endProcesses, nil, p.dir, p.end)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	proc := &process{program: p, keeper: k}
	for range 5 { // somebody else may take a free port before we do
		if proc.port, err = freePort(); err != nil {
			break
		}
		if err = proc.start(ctx); err == nil {
			return proc, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(err, proc.remove())
}

func (p *process) address() string { return p.url(p.port) }

// start runs the program, which must not be running, on its port and waits until it is ready.
func (p *process) start(ctx context.Context) error {
	if p.cmd != nil {
		return errors.New("it is running")
	}
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return fmt.Errorf("create the server's log: %w", err)
	}
	defer log.Close()
	argv := p.argv(p.port)
	// The shell tells the keeper its process id before it becomes the server: at no moment is there a server that
	// the keeper does not know.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `echo $$ >&3 && exec "$@" 3>&-`, "sh"}, argv...)...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log // not ours: "go test" waits for whoever holds its output open
	cmd.ExtraFiles = []*os.File{p.keeper.pipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.cred}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	exited := make(chan struct{}) // of this run: the next one has its own
	p.cmd, p.exited = cmd, exited
	go func() {
		cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	if err := p.untilReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("start %s on port %d: %w\n%s", argv[0], p.port, err, p.logTail()), p.kill(ctx))
	}
	return nil
}

func (p *process) untilReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	exited := p.exited
	go func() {
		select {
		case <-exited:
			cancel(errors.New("it exited"))
		case <-ctx.Done():
		}
	}()
	return untilReady(ctx, p.address(), p.ready)
}

// kill ends the server and its children with SIGKILL, frozen or not, and returns when it is gone.
func (p *process) kill(context.Context) error {
	pids, err := p.stopTree()
	if err != nil {
		return err
	}
	if err := signalAll(pids, syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	p.keeper.tell("")
	p.cmd = nil
	return untilGone(pids)
}

// freeze stops the server and its children where they stand: connections stay open and answer nothing.
func (p *process) freeze(context.Context) error {
	pids, err := p.stopTree()
	if err != nil {
		return err
	}
	p.keeper.tell(strings.Join(pids, " "))
	return nil
}

// resume undoes freeze.
func (p *process) resume(context.Context) error {
	if p.cmd == nil {
		return errors.New("it is not running")
	}
	pids, err := tree(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := signalAll(pids, syscall.SIGCONT); err != nil {
		return err
	}
	p.keeper.tell(pids[0])
	return nil
}

// remove ends the server in good order and removes its directory.
func (p *process) remove() error {
	return p.keeper.close()
}

// stopTree sends SIGSTOP to the server first, so that it cannot start another child meanwhile, and then to every child.
func (p *process) stopTree() ([]string, error) {
	if p.cmd == nil {
		return nil, errors.New("it is not running")
	}
	pid := p.cmd.Process.Pid
	if err := signalAll([]string{strconv.Itoa(pid)}, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	pids, err := tree(pid)
	if err != nil {
		return nil, err
	}
	if err := signalAll(pids, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return pids, untilStopped(pids)
}

// untilStopped waits until no thread of stopped processes runs: one learns of the signal before the others, and on a busy
// machine those answer calls meanwhile.
func untilStopped(pids []string) error {
	deadline := time.Now().Add(Patience)
	for _, pid := range pids {
		for {
			threads, err := filepath.Glob(filepath.Join("/proc", pid, "task/*/stat"))
			if err != nil || !slices.ContainsFunc(threads, runs) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("process %s does not stop", pid)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// runs reports whether the thread of a stat file in /proc is neither stopped nor gone.
func runs(file string) bool {
	stat, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	state := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return len(state) > 0 && !strings.Contains("TtZX", state[0])
}

func (p *process) logTail() string {
	log := p.log()
	return log[max(0, len(log)-2000):]
}

// log is what the program wrote since it was last started.
func (p *process) log() string {
	log, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// tree lists the process pid and all that descend from it, pid first.
func tree(pid int) ([]string, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return nil, errors.New("signalling a local server with its children needs /proc; use QUOTAD_TEST_SERVERS=docker here")
	}
	children := map[string][]string{}
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // gone meanwhile
		}
		// "pid (name) state parent …", where the name may hold spaces and parentheses.
		rest := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		children[rest[1]] = append(children[rest[1]], filepath.Base(filepath.Dir(file)))
	}
	pids := []string{strconv.Itoa(pid)}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	return pids, nil
}

func signalAll(pids []string, signal syscall.Signal) error {
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("signal process %q: %w", text, err)
		}
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("send %v to process %d: %w", signal, pid, err)
		}
	}
	return nil
}

// untilGone waits until killed processes are gone, or zombies that nobody waits for: a child that is just dying still
// holds the shared memory of its server, without which the next one does not start.
func untilGone(pids []string) error {
	deadline := time.Now().Add(Patience)
	for _, pid := range pids {
		for {
			stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
			if err != nil || strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z") {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("process %s does not end", pid)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// untilReady polls ready until it succeeds, ctx ends, or Patience does.
func untilReady(ctx context.Context, url string, ready func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, 10*time.Second)
		err := ready(try, url)
		stop()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w (last answer: %v)", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
