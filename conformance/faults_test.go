package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
)

// faults are all of them, each with the case that is named for it.
func faults() []fault {
	return slices.Concat(decisionFaults(), decodingFaults(), headerFaults(), batchFaults(), searchFaults(), pageFaults(), discoveryFaults(), transportFaults())
}

func decisionFaults() []fault {
	decide := func(change func(o object)) faulty {
		return answering(func(o object) {
			if _, ok := o["decision"]; ok {
				change(o)
			}
		})
	}
	var asked atomic.Int64
	return []fault{
		{"always allows", "c-2-2-2", decide(func(o object) { o["decision"] = true })},
		{"always denies", "c-2-2-1", decide(func(o object) { o["decision"] = false })},
		{"denies with 403", "c-2-2-2", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			if strings.Contains(a.Body.String(), `"decision":false`) {
				a.Code = 403
			}
		})},
		{"decision is a string", "c-2-3-1", decide(func(o object) {
			o["decision"] = map[bool]string{true: "true", false: "false"}[o["decision"].(bool)]
		})},
		{"decision is a number", "c-2-3-1", decide(func(o object) { o["decision"] = 1 })},
		{"says Permit instead of a decision", "c-2-2-1", decide(func(o object) { delete(o, "decision"); o["effect"] = "Permit" })},
		{"context is a string", "c-2-3-2", decide(func(o object) { o["context"] = "no" })},
		{"two decisions in one answer", "c-2-2-1", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			replace(a, a.Code, strings.Replace(a.Body.String(), `{"decision":`, `{"decision":false,"decision":`, 1))
		})},
		{"every third answer is another", "c-2-6", decide(func(o object) {
			if asked.Add(1)%3 == 0 {
				o["decision"] = !o["decision"].(bool)
			}
		})},
		{"says more than the interop clients expect", "todo-0", decide(func(o object) { o["context"] = object{} })},
		{"ignores the resource's properties", "c-1-4-5", asking(func(_ *http.Request, o object) { drop(o, "resource", "properties") })},
		{"ignores the subject's properties", "c-1-4-6", asking(func(_ *http.Request, o object) { drop(o, "subject", "properties") })},
		{"ignores the action's properties", "c-2-2-6", asking(func(_ *http.Request, o object) { drop(o, "action", "properties") })},
		{"refuses a context", "c-2-2-3", refusing(func(_ *http.Request, o object) bool { return o["context"] != nil })},
		{"refuses properties it has no use for", "c-2-2-8", refusing(func(_ *http.Request, o object) bool {
			a, _ := o["action"].(object)
			p, _ := a["properties"].(object)
			return p["method"] != nil
		})},
		{"refuses unknown members", "c-2-2-9", refusing(func(_ *http.Request, o object) bool { return o["foo"] != nil })},
		{"unknown users are an error", "unknown-subject-denied", refusing(func(_ *http.Request, o object) bool {
			s, _ := o["subject"].(object)
			return s["id"] == "nonexistent-user"
		})},
	}
}

func drop(o object, name, member string) {
	if inner, ok := o[name].(object); ok {
		delete(inner, member)
	}
}

func decodingFaults() []fault {
	allow := after(func(_ *http.Request, a *httptest.ResponseRecorder) {
		if a.Code == 400 {
			a.Header().Set("Content-Type", "application/json")
			replace(a, 200, `{"decision":true}`)
		}
	})
	lax := func(r *http.Request, body []byte) []byte {
		r.Header.Set("Content-Type", "application/json")
		return body
	}
	laxly := asking(func(*http.Request, object) {})
	strung := asking(func(_ *http.Request, o object) {
		for _, part := range o {
			inner, _ := part.(object)
			for name, v := range inner {
				if n, ok := v.(float64); ok {
					inner[name] = fmt.Sprint(n)
				}
			}
		}
	})
	return []fault{
		{"422 for no JSON", "c-2-4-4", turned(400, 422)},
		{"500 for a wrong type", "c-2-4-6-subject", turned(400, 500)},
		{"allows what is malformed", "evaluation-cut", allow},
		{"denies what is malformed, with 200", "c-2-4-1-resource", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			if a.Code == 400 {
				a.Header().Set("Content-Type", "application/json")
				replace(a, 200, `{"decision":false}`)
			}
		})},
		{"an empty body is a question", "c-2-4-5", before(func(_ *http.Request, body []byte) []byte {
			if len(body) == 0 {
				return []byte(`{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"record","id":"record-1"}}`)
			}
			return body
		})},
		{"takes any Content-Type", "c-2-4-3", before(lax)},
		{"takes a body without Content-Type", "resources-no-content-type", before(lax)},
		{"makes strings of numbers", "c-2-4-6-action-name", strung},
		{"makes strings of numbers in searches", "subjects-resource-id-number", strung},
		{"takes a member twice", "evaluation-duplicate-subject", laxly},
		{"takes a member twice in a batch", "batch-duplicate-deep", laxly},
		{"takes bytes that are no UTF-8", "evaluation-invalid-utf8", laxly},
		{"reads on after half a surrogate pair", "evaluation-lone-surrogate", laxly},
		{"ignores what comes after the object", "evaluation-trailing", before(func(_ *http.Request, body []byte) []byte {
			var first json.RawMessage
			_ = json.NewDecoder(bytes.NewReader(body)).Decode(&first)
			return first
		})},
		{"skips a byte order mark", "bom-evaluation", before(func(_ *http.Request, body []byte) []byte { return bytes.TrimPrefix(body, []byte("\ufeff")) })},
		{"null is a value", "evaluation-null-context", refusing(func(_ *http.Request, o object) bool {
			context, there := o["context"]
			return there && context == nil
		})},
		{"takes members in any case", "evaluation-member-in-capitals", asking(func(_ *http.Request, o object) {
			if s, ok := o["Subject"]; ok {
				o["subject"] = s
			}
		})},
		{"does not say where", "problem-evaluation", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			if a.Code == 400 {
				replace(a, 400, `{"type":"about:blank","title":"Bad Request","status":400,"detail":"no"}`)
			}
		})},
		{"400 for what is too long", "evaluation-body", turned(413, 400)},
	}
}

func headerFaults() []fault {
	id := func(change func(string) string) faulty {
		return after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if sent := r.Header.Get("X-Request-Id"); sent != "" {
				a.Header().Set("X-Request-Id", change(sent))
			}
		})
	}
	return []fault{
		{"no X-Request-ID back", "c-2-5-1", without("X-Request-Id")},
		{"an X-Request-ID of its own", "c-2-5-1", id(func(string) string { return "1" })},
		{"X-Request-ID in lower case", "evaluation-request-id-arbitrary", id(strings.ToLower)},
		{"X-Request-ID with white space trimmed", "batch-request-id-arbitrary", id(func(s string) string { return strings.Join(strings.Fields(s), " ") })},
		{"X-Request-ID made safe", "actions-request-id-arbitrary", id(func(s string) string { return strings.ReplaceAll(s, `"`, "") })},
		{"no X-Request-ID on errors", "evaluation-request-id-on-error", after(func(_ *http.Request, a *httptest.ResponseRecorder) {
			if a.Code == 400 {
				a.Header().Del("X-Request-Id")
			}
		})},
		{"no X-Request-ID on searches", "subjects-request-id", after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if strings.Contains(r.URL.Path, "search") {
				a.Header().Del("X-Request-Id")
			}
		})},
		{"wants an X-Request-ID", "c-2-5-2", refusing(func(r *http.Request, _ object) bool {
			return r.Method == "POST" && r.Header.Get("X-Request-Id") == ""
		})},
		{"answers in text/plain", "c-5-2", after(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Set("Content-Type", "text/plain") })},
		{"answers searches in text/html", "resources-media-type", after(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Set("Content-Type", "text/html") })},
		{"refuses a charset", "c-5-1", refusing(func(r *http.Request, _ object) bool { return strings.Contains(r.Header.Get("Content-Type"), ";") })},
		{"answers GET", "evaluation-method-get", after(func(r *http.Request, a *httptest.ResponseRecorder) {
			if a.Code == 405 {
				a.Header().Set("Content-Type", "application/json")
				replace(a, 200, `{"decision":true}`)
			}
		})},
		{"501 for another method", "batch-method-put", turned(405, 501)},
		{"405 without Allow", "resources-method-delete", without("Allow")},
	}
}
