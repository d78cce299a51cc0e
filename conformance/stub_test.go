package conformance

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"
)

// The stub's HTTP.

// stub is the reference PDP. Its fields are faults that cannot be made by looking
// at requests and answers from outside; zero is right.
type stub struct {
	takesDuplicates, takesAnyBytes, takesTrailing, skipsBOM bool
	nullIsPresent, coerces                                  bool
	mergesProperties, ignoresDefaults, keepsOnlyID          bool
	wholeBatchFails, startsOver, dropsShortCircuit          bool
	trustsTokens, forgetsLimit, overlaps, losesLast         bool
	noLastToken, searchesDenied, readsSoughtID              bool
	metadataHost                                            bool
}

var endpoints = map[string]string{
	"/access/v1/evaluation": "evaluation", "/access/v1/evaluations": "evaluations",
	"/access/v1/search/subject": "subject", "/access/v1/search/resource": "resource", "/access/v1/search/action": "action",
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if id := r.Header.Get("X-Request-Id"); len(id) > 256 || strings.ContainsFunc(id, unicode.IsControl) {
		refuse(w, 400, "", "no such X-Request-ID")
		return
	} else if id != "" {
		w.Header().Set("X-Request-Id", id)
	}
	name, known := endpoints[r.URL.Path]
	switch {
	case known:
		s.api(w, r, name)
	case strings.HasPrefix(r.URL.Path, "/.well-known/"):
		s.wellKnown(w, r)
	default:
		refuse(w, 404, "", "nothing here")
	}
}

func refuse(w http.ResponseWriter, status int, pointer, detail string) {
	problem := object{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail}
	if pointer != "" {
		problem["pointer"] = pointer
	}
	send(w, status, "application/problem+json", problem)
}

func send(w http.ResponseWriter, status int, mediaType string, body any) {
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	text, ok := body.([]byte)
	if !ok {
		text, _ = json.Marshal(body)
	}
	_, _ = w.Write(text)
}

// api answers one of the five endpoints.
func (s *stub) api(w http.ResponseWriter, r *http.Request, name string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, 405, "", "POST only")
		return
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20+1))
	if len(body) > 1<<20 {
		refuse(w, 413, "", "too long")
		return
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" || r.Header.Get("Content-Encoding") != "" {
		refuse(w, 400, "", "application/json only")
		return
	}
	answer, err := s.answer(name, body)
	var bad *stubError
	if errors.As(err, &bad) {
		refuse(w, 400, bad.pointer, bad.detail)
		return
	}
	w.Header().Set("X-Decision-Id", "1")
	send(w, 200, "application/json", answer)
}

func (s *stub) answer(name string, body []byte) (any, error) {
	o, err := s.parse(body)
	if err != nil {
		return nil, err
	}
	switch name {
	case "evaluation":
		q, err := s.question(o, "")
		return decision(q), err
	case "evaluations":
		return s.batch(o)
	}
	return s.search(o, name)
}

type stubDecision struct {
	Decision bool   `json:"decision"`
	Context  object `json:"context,omitempty"`
}

func decision(q stubQuestion) stubDecision {
	if !knownForm(q.subject.typ) || !knownForm(q.resource.typ) {
		return stubDecision{Context: object{"reason": "unknown_type"}}
	}
	return stubDecision{Decision: permits(q.subject, q.action, q.properties, q.resource)}
}
