package httpapi

import (
	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/replies"
)

// Header values that never change, shared by all answers.
var (
	noStore         = []string{"no-store"}
	jsonType        = []string{replies.JSON}
	closeConnection = []string{"close"}
	degradedOpen    = []string{string(quotad.FailOpen)}
	degradedLocal   = []string{string(quotad.FailLocal)}
)

// decisionHeaders sets the headers of a metered answer, whatever its status. No
// answer to a metered call may be stored: its headers are one caller's, and true for
// a moment.
func (x *exchange) decisionHeaders(d *quotad.Decision) {
	x.w.Header()["Cache-Control"] = noStore
	x.values.Decision(d, x.now(), x.ietf)
}
