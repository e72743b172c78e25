package testenv

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// portHeld makes this test binary a process that says whether the port that is its value can be locked.
const portHeld = "TESTENV_TEST_PORT"

func TestAPortIsOneProcessesAlone(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	if text := os.Getenv(portHeld); text != "" {
		theirs, _ := strconv.Atoi(text)
		lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: int64(theirs), Len: 1}
		if syscall.FcntlFlock(ports.file.Fd(), syscall.F_SETLK, &lock) == nil {
			t.Errorf("port %d is another process's, and could be taken", theirs)
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAPortIsOneProcessesAlone$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", portHeld, port))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+busOffset)); err != nil || port+busOffset >= 32768 {
		t.Errorf("the port of a cluster's bus beside %d is not kept for it: %v", port, err)
	} else {
		l.Close()
	}
	if next, err := freePort(); err != nil || next == port {
		t.Errorf("got %d twice, %v", next, err)
	}
}
