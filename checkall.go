package quotad

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// CheckAll asks several questions at once, at most MaxChecks, and gets the results
// in their order. Each is judged on its own, after those before it have been charged.
//
// All are asked with one credential, so either all carry the same APIKey, or none
// does and all name a Tenant. What is remembered of refusals is not looked at. An
// error means that none was decided, as far as anybody knows; under FailOpen there
// is none for a quotad that is away, and all results are allowed and degraded.
func (c *Client) CheckAll(ctx context.Context, questions []CheckRequest) ([]CheckResult, error) {
	if len(questions) == 0 {
		return nil, nil
	}
	by, err := c.oneCredential(questions)
	if err != nil {
		return nil, err
	}
	sent := struct {
		Checks []CheckRequest `json:"checks"`
	}{slices.Clone(questions)}
	h := by.header()
	for i := range sent.Checks {
		q := &sent.Checks[i]
		q.Path = encoded(q.Path)
		switch {
		case !q.ForwardedFor.IsValid():
		case by.token != "" && q.IP == "":
			q.IP = q.ForwardedFor.String()
		case by.token == "":
			h["X-Forwarded-For"] = []string{q.ForwardedFor.String()}
		}
	}
	text, err := json.Marshal(sent)
	if err != nil {
		return nil, fmt.Errorf("write checks: %w", err)
	}
	var results []CheckResult
	var refused error
	failure, err := c.send(ctx, http.MethodPost, "/v1/checks", h, text, maxAnswers, func(status int, h http.Header, body []byte) (err error) {
		if status == http.StatusOK {
			results, err = readResults(body, len(questions))
			return err
		}
		refused, err = readError(status, h, body)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case failure != nil && c.policy == FailClosed:
		return nil, unavailable(failure)
	case failure != nil:
		results = make([]CheckResult, len(questions))
		for i := range results {
			results[i] = CheckResult{Status: http.StatusOK, Decision: &c.instead(&questions[i], failure).decision}
		}
	}
	return results, refused
}

// oneCredential is what all questions are asked with.
func (c *Client) oneCredential(questions []CheckRequest) (credentials, error) {
	first := &questions[0]
	for i := range questions {
		q := &questions[i]
		if q.APIKey != first.APIKey || (q.Tenant == "") != (first.Tenant == "") {
			return credentials{}, NewError(CodeAmbiguousCredentials, fmt.Sprintf("checks[%d] is asked with another credential than checks[0]", i))
		}
		if first.Tenant == "" && q.ForwardedFor != first.ForwardedFor {
			return credentials{}, NewError(CodeInvalidRequest, fmt.Sprintf("checks[%d] came from another address than checks[0]", i))
		}
	}
	return c.credentials(first.APIKey, first.Tenant, c.key)
}

// readResults reads the answer to so many checks, which is one for each of them.
func readResults(body []byte, n int) ([]CheckResult, error) {
	var answer struct {
		Results []eitherResult `json:"results"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%w: 200 OK without results: %w", errOdd, err)
	}
	if len(answer.Results) != n {
		return nil, fmt.Errorf("%w: %d results of %d checks", errOdd, len(answer.Results), n)
	}
	results := make([]CheckResult, n)
	for i := range results {
		r := &results[i]
		*r = answer.Results[i].result()
		switch {
		case r.Decision != nil && r.Decision.Allowed && r.Problem == nil:
		case r.Decision == nil && r.Problem != nil && r.Problem.says(r.Status):
			r.Problem.Error = codeOf(r.Status, r.Problem.Error)
		default:
			return nil, fmt.Errorf("%w: results[%d] is neither an admission nor a problem", errOdd, i)
		}
	}
	return results, nil
}

// readError reads an answer that is not a success, where no decision is expected.
func readError(status int, h http.Header, body []byte) (said, err error) {
	p, err := readProblem(status, h, body)
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return odd(status), nil
	default:
		return p.err(), nil
	}
}
