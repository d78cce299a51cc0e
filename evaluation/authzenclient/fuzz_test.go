package authzenclient_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/pdptest/lies"
)

// canned is a transport that has one answer.
type canned []byte

func (body canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(body)),
		Request:    r,
	}, nil
}

// FuzzAnswer holds what permits to what an independent reader, the standard library's, makes of the same bytes: exactly
// one JSON object with the verdict true and no obligations.
func FuzzAnswer(f *testing.F) {
	for _, body := range lies.Bodies {
		if len(body) > 1<<12 { // mutating these teaches nothing and takes long
			continue
		}
		f.Add([]byte(lies.InShape(body, "decision", "allow")))
		f.Add([]byte(lies.InShape(body, "allow", "decision")))
	}
	for _, body := range []string{
		`{"decision":true}`, `{"decision":true,"context":{"obligations":[]}}`, `{"allow":true,"obligations":{}}`, `{"allow":true}`,
		`{"evaluations":[{"decision":true},{"decision":true}]}`, `{"results":[{"type":"user","id":"a"}],"page":{"next_token":""}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := authzenclient.New("https://pdp", authzenclient.WithHTTPClient(&http.Client{Transport: canned(body)}), authzenclient.WithTenant("default"), authzenclient.MaxPages(3, 3))
		if err != nil {
			t.Fatal(err)
		}
		d := c.Evaluate(t.Context(), question)
		if want := permits(body, "decision", "allow"); d.Permitted() != want && (d.Permitted() || plain(body, "decision")) {
			t.Errorf("AuthZEN: %v of %q, want permit %v", d, body, want)
		}
		checkBatch(t, body, c.EvaluateBatch(t.Context(), "", question, question))
		for r, err := range c.SearchSubjects(t.Context(), question) {
			if err == nil && (r.Type != "user" || !json.Valid(body)) {
				t.Errorf("a search found %v in %q", r, body)
			}
		}
	})
}

// plain reports whether the body is the shortest permit there is, which must read as one.
func plain(body []byte, verdict string) bool {
	return string(bytes.Join(bytes.Fields(body), nil)) == `{"`+verdict+`":true}`
}

func permits(body []byte, verdict, other string) bool {
	var o map[string]any
	if !json.Valid(body) || json.Unmarshal(body, &o) != nil || o[verdict] != true || o[other] == false {
		return false
	}
	context, _ := o["context"].(map[string]any)
	if o["context"] != nil && context == nil {
		return false
	}
	for _, place := range []map[string]any{o, context} {
		for _, name := range []string{"obligations", "obligation_details", "required_obligations", "error"} {
			if owes(place[name]) {
				return false
			}
		}
	}
	return true
}

func owes(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

func checkBatch(t *testing.T, body []byte, decisions []authzenclient.Decision) {
	var o struct {
		Evaluations []json.RawMessage `json:"evaluations"`
	}
	err := json.Unmarshal(body, &o)
	for n, d := range decisions {
		if d.Permitted() && (err != nil || len(o.Evaluations) != len(decisions) || !permits(o.Evaluations[n], "decision", "allow")) {
			t.Errorf("item %d is %v of %q", n, d, body)
		}
	}
}
