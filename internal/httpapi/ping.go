package httpapi

import (
	"net/http"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

var pong = []byte(`{"pong":true}`)

// ping answers GET /v1/ping: a metered call of its own path.
func (x *exchange) ping() error {
	x.answerAtOnce()
	key, err := x.onlyKey()
	if err != nil {
		return err
	}
	x.call = quota.Call{APIKey: key, Method: x.r.Method, Path: x.r.URL.Path}
	query, err := x.query("cost")
	if err != nil {
		return err
	}
	if given, ok := query["cost"]; ok {
		cost, ok := quota.ParseCost(given[0])
		if !ok {
			return faulty(quotad.Faults{"cost": badCost})
		}
		x.call.Cost = &cost
	}
	decision, err := x.checker.Check(x.r.Context(), x.question())
	if err != nil {
		return err
	}
	if !decision.Allowed {
		return x.deny(&decision)
	}
	x.decisionHeaders(&decision)
	x.w.Header()["Content-Type"] = jsonType
	return x.write(http.StatusOK, pong)
}
