package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// keeper is a small shell process that outlives this one just long enough to clear up after it. It reads lines from a
// pipe that only this process (and, for a moment, a server it is starting) holds open; when the pipe ends, because of
// close or because this process died in whatever way, it runs the rest of its script.
type keeper struct {
	pipe *os.File
	cmd  *exec.Cmd
}

// endProcesses is the keeper's script for local servers: $1 is the directory to remove, $2 the signal that ends the
// server. Each line it reads replaces the list of processes to end, the server itself first, its children after it.
const endProcesses = `
pids=
while read -r line; do pids=$line; done
if [ -n "$pids" ]; then
	kill -CONT $pids
	kill -"$2" $pids
	tries=0
	while kill -0 ${pids%% *} && [ $((tries += 1)) -le 50 ]; do sleep 0.1; done
	kill -KILL $pids
fi
tries=0
until rm -rf "$1" || [ $((tries += 1)) -gt 50 ]; do sleep 0.1; done
`

// removeContainer is the keeper's script for containers: $1 is the container.
const removeContainer = `
while read -r line; do :; done
docker rm --force --volumes "$1"
`

// startKeeper starts a keeper for script with the arguments args.
func startKeeper(script string, env []string, args ...string) (*keeper, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open the keeper's pipe: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "keeper"}, args...)...)
	cmd.Stdin = read
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is not for it
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	return &keeper{pipe: write, cmd: cmd}, nil
}

// tell replaces what the keeper would clear up. It can fail only when the keeper was killed, which ends nothing here.
func (k *keeper) tell(line string) {
	fmt.Fprintln(k.pipe, line)
}

// close lets the keeper clear up now and waits until it is done.
func (k *keeper) close() error {
	k.pipe.Close()
	if err := k.cmd.Wait(); err != nil {
		return fmt.Errorf("wait for the keeper: %w", err)
	}
	return nil
}
