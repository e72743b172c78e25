package quotad

import (
	"net/http"
	"testing"
	"time"
)

// A client that is patient with a slow quotad is so with the way to it, too.
func TestAConnectionMayTakeAsLongAsACall(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{0: 2 * time.Second, time.Minute: time.Minute} {
		c, err := NewClient("https://quotad.example", ClientOptions{Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.http.Transport.(*http.Transport).TLSHandshakeTimeout; got != want {
			t.Errorf("a call may take %v: the handshake %v, want %v", timeout, got, want)
		}
	}
}
