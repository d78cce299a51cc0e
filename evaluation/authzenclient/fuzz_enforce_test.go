package authzenclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/obligations"
)

// FuzzObligations holds what [authzenclient.Client.Enforce] permits to what the standard library's reader finds in the
// same bytes: each obligation, wherever it stands, is of a type whose handler was called for it and returned nil.
func FuzzObligations(f *testing.F) {
	for _, test := range obliging {
		for _, verdict := range []string{"decision", "allow"} {
			f.Add([]byte(strings.ReplaceAll(test.body, `"V"`, `"`+verdict+`"`)))
		}
	}
	f.Add([]byte(`{"allow":true,"context":{"obligaticns":[{"id":"a","type":"log","properties":{"n":1e400}}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := authzenclient.New("https://pdp", authzenclient.WithHTTPClient(&http.Client{Transport: canned(body)}), authzenclient.WithTenant("default"))
		if err != nil {
			t.Fatal(err)
		}
		done, failed := map[string]int{}, false
		fine := func(_ context.Context, o evaluation.Obligation) error { done[o.Type]++; return nil }
		e := c.Enforce(t.Context(), question, obligations.Handlers{
			"log": fine, "notification": fine,
			"step-up": func(context.Context, evaluation.Obligation) error { failed = true; return errors.New("no") },
			"panic":   func(context.Context, evaluation.Obligation) error { failed = true; panic("no") },
		})
		if !e.Permitted() {
			return
		}
		owed, ok := owing(body, "decision")
		if !ok || failed {
			t.Errorf("permit of %q", body)
		}
		for typ, n := range owed {
			if done[typ] < n {
				t.Errorf("permit of %q, which owes %q %d times and got it %d times", body, typ, n, done[typ])
			}
		}
	})
}

// owing counts obligations by type. It is not ok where the body is no allow, or holds what is no obligation.
func owing(body []byte, verdict string) (owed map[string]int, ok bool) {
	var o map[string]any
	numbers := json.NewDecoder(bytes.NewReader(body))
	numbers.UseNumber() // a number beyond float64 is one all the same, as 1e400 is
	if !json.Valid(body) || numbers.Decode(&o) != nil || o[verdict] != true {
		return nil, false
	}
	owed, ok = map[string]int{}, true
	context, _ := o["context"].(map[string]any)
	for _, place := range []map[string]any{o, context} {
		details := map[string]int{}
		ok = ok && count(details, place["obligation_details"]) && !owes(place["required_obligations"]) && place["error"] == nil
		if types, is := place["obligations"].(map[string]any); is {
			for typ, v := range types {
				ok = ok && v == true
				details[typ] = max(details[typ], 1)
			}
		} else {
			ok = ok && count(details, place["obligations"])
		}
		for typ, n := range details {
			owed[typ] += n
		}
	}
	return owed, ok
}

func count(owed map[string]int, v any) bool {
	if v == nil {
		return true
	}
	items, ok := v.([]any)
	for _, i := range items {
		o, _ := i.(map[string]any)
		typ, _ := o["type"].(string)
		id, _ := o["id"].(string)
		owed[typ]++
		ok = ok && typ != "" && id != ""
	}
	return ok
}
