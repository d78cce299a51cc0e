package authzenclient_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation/authzenclient"
)

// oddBodies come with 200 and application/json, and none of them permits.
// VERDICT is decision or allow, so that each is tried in both shapes.
var oddBodies = map[string]string{
	"empty":                    ``,
	"space":                    ` `,
	"null":                     `null`,
	"true":                     `true`,
	"string":                   `"true"`,
	"number":                   `1`,
	"array":                    `[{"VERDICT":true}]`,
	"empty object":             `{}`,
	"other name":               `{"permit":true}`,
	"upper case":               `{"VERDICT":TRUE}`,
	"name in upper case":       `{"UPPER":true}`,
	"name with space":          `{"VERDICT ":true}`,
	"null verdict":             `{"VERDICT":null}`,
	"string verdict":           `{"VERDICT":"true"}`,
	"number verdict":           `{"VERDICT":1}`,
	"object verdict":           `{"VERDICT":{}}`,
	"array verdict":            `{"VERDICT":[true]}`,
	"twice, true last":         `{"VERDICT":false,"VERDICT":true}`,
	"twice, true first":        `{"VERDICT":true,"VERDICT":false}`,
	"twice the same":           `{"VERDICT":true,"VERDICT":true}`,
	"twice, escaped":           `{"VERDICT":true,"\u0064ecision":false,"\u0061llow":false}`,
	"duplicate elsewhere":      `{"VERDICT":true,"x":{"a":1,"a":2}}`,
	"duplicate in context":     `{"VERDICT":true,"context":{"a":1,"a":2}}`,
	"says both":                `{"decision":true,"allow":true,"VERDICT":false}`,
	"says yes and no":          `{"VERDICT":true,"OTHER":false}`,
	"two objects":              `{"VERDICT":true}{"VERDICT":true}`,
	"two lines":                "{\"VERDICT\":true}\n{\"VERDICT\":false}",
	"trailing text":            `{"VERDICT":true}x`,
	"trailing comma":           `{"VERDICT":true,}`,
	"comment":                  `{"VERDICT":true/**/}`,
	"single quotes":            `{'VERDICT':true}`,
	"cut":                      `{"VERDICT":true`,
	"cut in context":           `{"VERDICT":true,"context":{"obligations":[`,
	"byte order mark":          "\xef\xbb\xbf{\"VERDICT\":true}",
	"invalid UTF-8":            "{\"VERDICT\":true,\"x\":\"\xff\"}",
	"lone surrogate":           `{"VERDICT":true,"x":"\ud800"}`,
	"NUL at the end":           "{\"VERDICT\":true}\x00",
	"UTF-16":                   "{\x00\"\x00}\x00",
	"nested too deep":          `{"VERDICT":true,"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
	"HTML":                     `<html>{"VERDICT":true}</html>`,
	"script":                   `while(1);{"VERDICT":true}`,
	"inside evaluations":       `{"evaluations":[{"VERDICT":true}]}`,
	"inside data":              `{"data":{"VERDICT":true}}`,
	"context is a string":      `{"VERDICT":true,"context":"x"}`,
	"context is an array":      `{"VERDICT":true,"context":[]}`,
	"context is true":          `{"VERDICT":true,"context":true}`,
	"error in context":         `{"VERDICT":true,"context":{"error":{"status":400,"message":"m"}}}`,
	"error beside":             `{"VERDICT":true,"error":"m"}`,
	"deny":                     `{"VERDICT":false}`,
	"deny with obligations":    `{"VERDICT":false,"context":{"obligations":[{"id":"a","type":"log","properties":{}}]}}`,
	"obligation":               `{"VERDICT":true,"context":{"obligations":[{"id":"a","type":"log","properties":{}}]}}`,
	"obligation, bare":         `{"VERDICT":true,"context":{"obligations":[{}]}}`,
	"obligation, null":         `{"VERDICT":true,"context":{"obligations":[null]}}`,
	"obligation, string":       `{"VERDICT":true,"context":{"obligations":["log"]}}`,
	"obligations, string":      `{"VERDICT":true,"context":{"obligations":"log"}}`,
	"obligations, empty text":  `{"VERDICT":true,"context":{"obligations":""}}`,
	"obligations, true":        `{"VERDICT":true,"context":{"obligations":true}}`,
	"obligations, false":       `{"VERDICT":true,"context":{"obligations":false}}`,
	"obligations, number":      `{"VERDICT":true,"context":{"obligations":0}}`,
	"obligations, object":      `{"VERDICT":true,"context":{"obligations":{"log":true}}}`,
	"obligations beside":       `{"VERDICT":true,"obligations":[{"id":"a","type":"log","properties":{}}]}`,
	"native obligation":        `{"VERDICT":true,"obligations":{"approval_required":true}}`,
	"native obligation, false": `{"VERDICT":true,"obligations":{"approval_required":false}}`,
	"native obligation, null":  `{"VERDICT":true,"obligations":{"approval_required":null}}`,
	"native obligation, text":  `{"VERDICT":true,"obligations":{"approval_required":"yes"}}`,
	"details alone":            `{"VERDICT":true,"obligation_details":[{"id":"a","type":"log","properties":{}}]}`,
	"details, no array":        `{"VERDICT":true,"obligations":{},"obligation_details":7}`,
	"odd properties":           `{"VERDICT":true,"context":{"obligations":[{"id":"a","type":"log","properties":7}]}}`,
	"reserved properties":      `{"VERDICT":true,"context":{"obligations":[{"id":"a","type":"log","properties":{"__entity":1}}]}}`,
	"required in vain":         `{"VERDICT":true,"context":{"required_obligations":["log"]}}`,
	"escaped obligations":      `{"VERDICT":true,"context":{"\u006fbligations":[{"id":"a","type":"log"}]}}`,
	"second obligations":       `{"VERDICT":true,"context":{"obligations":[],"obligations":[{"id":"a","type":"log"}]}}`,
	"obligations at both":      `{"VERDICT":true,"obligations":{},"context":{"obligations":[{"id":"a","type":"log"}]}}`,
	"problem":                  `{"type":"about:blank","title":"Forbidden","status":403,"VERDICT":"true"}`,
	"too large":                `{"VERDICT":true,"x":"` + strings.Repeat("x", 1<<16) + `"}`,
	"too large by a space":     `{"VERDICT":true}` + strings.Repeat(" ", 1<<16),
	"late deny":                `{"VERDICT":true}` + strings.Repeat("\n", 1<<15) + `{"VERDICT":false}`,
}

func inShape(body, verdict, other string) string {
	return strings.NewReplacer("VERDICT", verdict, "UPPER", strings.ToUpper(verdict), "OTHER", other).Replace(body)
}

func TestOddBodies(t *testing.T) {
	for name, body := range oddBodies {
		t.Run(name, func(t *testing.T) {
			small := authzenclient.WithMaxBody(1 << 16)
			c := newClient(t, stub(t, says(inShape(body, "decision", "allow"))), small)
			decided := strings.HasPrefix(name, "deny")
			wantNo(t, c.Evaluate(t.Context(), question), decided)
			for _, d := range c.EvaluateBatch(t.Context(), "", question, question) {
				wantNo(t, d, false)
			}
			c = newClient(t, stub(t, says(`{"evaluations":[`+inShape(body, "decision", "allow")+`]}`)), small)
			wantNo(t, c.EvaluateBatch(t.Context(), "", question)[0], decided)
			c = newClient(t, stub(t, says(inShape(body, "allow", "decision"))), small)
			wantNo(t, c.Authorize(t.Context(), question), decided)
		})
	}
}

// wantNo fails on a permit, and on a deny without an error that the PDP did not decide.
func wantNo(t *testing.T, d authzenclient.Decision, decided bool) {
	t.Helper()
	if d.Permitted() || d.String() == "permit" {
		t.Fatal("this reads as a permit")
	}
	if d.Err() == nil && !decided {
		t.Error("a deny without an error, which the PDP did not decide")
	}
}

// Everything but the body is odd: these say yes, each in its own wrong way.
func TestOddEnvelopes(t *testing.T) {
	const yes = `{"decision":true,"allow":true}`
	send := func(status int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = []string{"application/json"}
			for i := 0; i < len(headers); i += 2 {
				w.Header()[headers[i]] = nil
				if headers[i+1] != "" {
					w.Header()[headers[i]] = strings.Split(headers[i+1], "|")
				}
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, yes)
		}
	}
	cases := map[string]struct {
		handle http.HandlerFunc
		kind   authzenclient.Kind
	}{
		"no type":          {send(200, "Content-Type", ""), authzenclient.Odd},
		"two types":        {send(200, "Content-Type", "application/json|text/html"), authzenclient.Odd},
		"text":             {send(200, "Content-Type", "text/plain"), authzenclient.Odd},
		"HTML":             {send(200, "Content-Type", "text/html; charset=utf-8"), authzenclient.Odd},
		"problem":          {send(200, "Content-Type", "application/problem+json"), authzenclient.Odd},
		"JSON by suffix":   {send(200, "Content-Type", "application/vnd.api+json"), authzenclient.Odd},
		"no legal type":    {send(200, "Content-Type", "application/json; ;="), authzenclient.Odd},
		"other id":         {send(200, "X-Request-Id", "other"), authzenclient.Odd},
		"two ids":          {send(200, "X-Request-Id", "a|b"), authzenclient.Odd},
		"gzip, it says":    {send(200, "Content-Encoding", "gzip"), authzenclient.Unreachable},
		"hangs up":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, authzenclient.Unreachable},
		"longer, it says":  {send(200, "Content-Length", "4096"), authzenclient.Unreachable},
		"shorter, it says": {send(200, "Content-Length", "10"), authzenclient.Unreachable},
	}
	for _, status := range []int{201, 202, 203, 204, 205, 206, 226, 300, 301, 302, 303, 307, 308, 399} {
		cases[fmt.Sprint(status)] = struct {
			handle http.HandlerFunc
			kind   authzenclient.Kind
		}{send(status, "Location", "/"), authzenclient.Odd}
	}
	for _, status := range []int{400, 401, 403, 404, 405, 409, 413, 418, 422, 451} {
		cases[fmt.Sprint(status)] = struct {
			handle http.HandlerFunc
			kind   authzenclient.Kind
		}{send(status), authzenclient.Refused}
	}
	for _, status := range []int{429, 500, 501, 502, 503, 504, 599, 999} {
		cases[fmt.Sprint(status)] = struct {
			handle http.HandlerFunc
			kind   authzenclient.Kind
		}{send(status), authzenclient.Unavailable}
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, stub(t, test.handle))
			wantDeny(t, c.Evaluate(t.Context(), question), test.kind)
			wantDeny(t, c.Authorize(t.Context(), question), test.kind)
			wantDeny(t, c.EvaluateBatch(t.Context(), "", question)[0], test.kind)
			for r, err := range c.SearchSubjects(t.Context(), question) {
				if err == nil {
					t.Errorf("a search found %v", r)
				}
			}
		})
	}
}
