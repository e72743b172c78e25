package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/quotad/quotad"
)

// answered adds to the upstream's answer what the client is to know of its limits.
func (p *passage) answered(res *http.Response) error {
	if err := unusable(res, p.x.r); err != nil {
		return err
	}
	p.answer = res.StatusCode
	p.passed.answered(res.StatusCode, p.now().Sub(p.sent))
	h := p.w.Header()
	if res.StatusCode == http.StatusSwitchingProtocols {
		delete(h, "Connection") // the upstream's says Upgrade, and nothing else may
	} else if p.upload != nil && !p.upload.ended.Load() {
		// net/http would else read the rest of the body itself, before the answer.
		h["Connection"] = closeConnection
	}
	if len(res.Header["Content-Type"]) == 0 {
		h["Content-Type"] = nil // or net/http would guess one, which the upstream left out
	}
	if isStream(res) {
		res.Body = p.streams.track(res.Body)
	}
	if p.counted {
		p.limitHeaders(res.Header)
	}
	if len(res.Header["X-Request-Id"]) == 0 {
		p.x.values.Set("X-Request-Id", p.x.id)
	}
	p.x.values.Flush(h)
	if p.cors != nil && len(res.Header["Access-Control-Allow-Origin"]) > 0 {
		res.Header["Access-Control-Expose-Headers"] = append(res.Header["Access-Control-Expose-Headers"], exposedHeaders...)
	}
	return nil
}

// unusable says why an answer can't be passed on; nil where it can.
func unusable(res *http.Response, asked *http.Request) error {
	switch {
	case res.StatusCode < 100 || res.StatusCode > 999:
		return fmt.Errorf("its status is %d", res.StatusCode)
	case res.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(res.Header.Get("Upgrade"), asked.Header.Get("Upgrade")):
		return errors.New("it switches to another protocol than was asked for")
	}
	return nil
}

// limitHeaders gathers the headers of the decision. They take the place of the
// upstream's own, where there are any: a client could not tell which limit is meant.
// Its Retry-After stays, as it says why the upstream refuses.
func (p *passage) limitHeaders(upstream http.Header) {
	v := &p.x.values
	before := v.Len()
	v.Decision(&p.decision, p.now(), p.ietf)
	if v.Len() > before {
		for name := range upstream {
			if strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Ratelimit") || name == "X-Quotad-Degraded" {
				delete(upstream, name)
			}
		}
	}
	upstream["Cache-Control"] = private(upstream["Cache-Control"])
}

var privateOnly = []string{"private"}

// private is a Cache-Control that keeps an answer out of caches that callers share:
// they know nothing of keys, and its headers are one caller's.
func private(lines []string) []string {
	if len(lines) == 0 {
		return privateOnly
	}
	var kept []string
	for part := range strings.SplitSeq(joined(lines), ",") {
		part = strings.TrimSpace(part)
		switch lower := strings.ToLower(part); {
		case lower == "private", lower == "no-store":
			return lines
		case lower == "", lower == "public", strings.HasPrefix(lower, "s-maxage"):
		default:
			kept = append(kept, part)
		}
	}
	return []string{strings.Join(append(kept, "private"), ", ")}
}

// failed answers a call that the upstream did not answer.
func (p *passage) failed(_ http.ResponseWriter, _ *http.Request, err error) {
	if p.w.hijacked {
		return // nobody is left to be told
	}
	p.answer = 0
	var fault error
	if p.upload != nil {
		fault = p.upload.fault()
	}
	switch {
	case errors.Is(fault, os.ErrDeadlineExceeded):
		p.refuse(&quotad.Error{Code: quotad.CodeInvalidRequest, Detail: "The body did not arrive in time.", Cause: fault})
		return
	case p.x.r.Context().Err() != nil:
		p.x.gone = true
		panic(http.ErrAbortHandler)
	case fault != nil:
		p.refuse(&quotad.Error{Code: quotad.CodeInvalidRequest, Detail: "The body can't be read.", Cause: fault})
		return
	}
	reason := failureOf(err)
	p.passed.failures[reason].Inc()
	if muted, ok := p.seldom.due("upstream "+failureNames[reason], p.now(), time.Second); ok {
		p.logger.Warn("the upstream failed", slog.String("upstream", p.upstream.name), slog.String("reason", failureNames[reason]),
			slog.String("error", err.Error()), slog.String("request_id", p.x.id), slog.Int("muted", muted))
	}
	if p.counted {
		p.x.decisionHeaders(&p.decision)
	}
	code := quotad.CodeUpstreamUnavailable
	if reason == failureTimeout {
		code = quotad.CodeUpstreamTimeout
	}
	p.refuse(&quotad.Error{Code: code, Cause: err})
}

// failureOf is the reason, as metrics name it, why an upstream did not answer.
func failureOf(err error) failure {
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return failureTimeout
	case errors.As(err, &op) && op.Op == "dial":
		return failureConnect
	}
	return failureBroken
}
