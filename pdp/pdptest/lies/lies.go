// Package lies makes no promise: it is for the tests of this module alone. It holds answers that look like a yes
// and must not count as one, as from something that is no PDP. Clients and gateways are held to the same lies.
//
// [Bodies] come where an answer is right but for its body, [Envelopes] have the body of a permit and something else wrong.
package lies

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Bodies come with 200 and application/json, and none of them permits. VERDICT is decision or allow, so that each is told
// in both shapes: see [InShape]. Those whose name begins with "deny" are answers, all others are none.
var Bodies = map[string]string{
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

// InShape is a body with the name of the verdict in its shape, and that of the other shape.
func InShape(body, verdict, other string) string {
	return strings.NewReplacer("VERDICT", verdict, "UPPER", strings.ToUpper(verdict), "OTHER", other).Replace(body)
}

// MaxBody is the size that bodies which are too large are larger than.
const MaxBody = 1 << 16

// Envelope is an answer whose body permits, in either shape.
type Envelope struct {
	Handle http.HandlerFunc
	// Kind is what the answer is to a client: [Odd], [Refused] or [Unavailable], or [Broken].
	Kind Kind
}

// Kind is what is wrong with an answer.
type Kind uint8

// No answer to the question; the PDP says no; it says not now; and the connection does not bring a whole answer.
const (
	Odd Kind = iota
	Refused
	Unavailable
	Broken
)

// Envelopes are told by name.
func Envelopes() map[string]Envelope {
	cases := map[string]Envelope{
		"no type":          {send(200, "Content-Type", ""), Odd},
		"two types":        {send(200, "Content-Type", "application/json|text/html"), Odd},
		"text":             {send(200, "Content-Type", "text/plain"), Odd},
		"HTML":             {send(200, "Content-Type", "text/html; charset=utf-8"), Odd},
		"problem":          {send(200, "Content-Type", "application/problem+json"), Odd},
		"JSON by suffix":   {send(200, "Content-Type", "application/vnd.api+json"), Odd},
		"no legal type":    {send(200, "Content-Type", "application/json; ;="), Odd},
		"other id":         {send(200, "X-Request-Id", "other"), Odd},
		"two ids":          {send(200, "X-Request-Id", "a|b"), Odd},
		"gzip, it says":    {send(200, "Content-Encoding", "gzip"), Broken},
		"hangs up":         {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Broken},
		"longer, it says":  {send(200, "Content-Length", "4096"), Broken},
		"shorter, it says": {send(200, "Content-Length", "10"), Broken},
	}
	for _, status := range []int{201, 202, 203, 204, 205, 206, 226, 300, 301, 302, 303, 307, 308, 399} {
		cases[fmt.Sprint(status)] = Envelope{send(status, "Location", "/"), Odd}
	}
	for status := 400; status < 500; status++ {
		cases[fmt.Sprint(status)] = Envelope{send(status), Refused}
	}
	for status := 500; status < 600; status++ {
		cases[fmt.Sprint(status)] = Envelope{send(status), Unavailable}
	}
	for _, status := range []int{429, 999} {
		cases[fmt.Sprint(status)] = Envelope{send(status), Unavailable}
	}
	return cases
}

// send says yes with a status and headers. Each header is a name and its values with | between; "" is none.
func send(status int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = []string{"application/json"}
		for i := 0; i < len(headers); i += 2 {
			w.Header()[headers[i]] = nil
			if headers[i+1] != "" {
				w.Header()[headers[i]] = strings.Split(headers[i+1], "|")
			}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"decision":true,"allow":true}`)
	}
}

// Without returns a text of JSON without the members of a name.
func Without(text []byte, name string) []byte {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return text
	}
	var strip func(any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			delete(v, name)
			for _, inner := range v {
				strip(inner)
			}
		case []any:
			for _, inner := range v {
				strip(inner)
			}
		}
	}
	strip(v)
	text, _ = json.Marshal(v)
	return text
}
