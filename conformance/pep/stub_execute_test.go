package pep

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// How the stub executes what is permitted.

// rewriting is what a PEP makes of text that is to pass as it is.
type rewriting struct{ wrong, old, new string }

// forwarded are done to messages, and shown to results.
var (
	forwarded = []rewriting{
		{"rewrites completions", `"value":"s"`, `"value":"t"`},
		{"subscribes for unsubscribe", "resources/unsubscribe", "resources/subscribe"},
		{"executes the first of two", `,"amount":1000000`, ""},
		{"changes params after the decision", `"sent"`, `"changed"`},
		{"rebuilds numbers as floats", "9007199254740993", "9007199254740992"},
	}
	shown = []rewriting{
		{"hides that it has tasks", `"tasks":{"list"`, `"x":{"list"`},
		{"hides that it has tasks", "io.modelcontextprotocol/tasks", "x"},
		{"shows clients other mappings", "$token.sub", "$token.email"},
		{"hides mappings from clients", "x-authzen-mapping", "x-hidden"},
	}
)

func (s *stub) rewritten(text string, all []rewriting) string {
	for _, r := range all {
		if s.wrong[r.wrong] {
			text = strings.ReplaceAll(text, r.old, r.new)
		}
	}
	return text
}

// execute forwards to the upstream the bytes that came, or does it here and reports it.
func (s *stub) execute(r *http.Request, method string, params any, body []byte, id string) (result string, err error) {
	if s.shape == server {
		result, err = s.here(method, params, body)
	} else {
		result, err = s.forward(r, method, s.rewritten(string(body), forwarded))
	}
	switch {
	case err != nil || id == "":
		return "", err
	case result == "":
		return "", refusal{http.StatusNotFound, -32601, "no such method"}
	}
	if method == "tools/list" && s.wrong["leads on for ever"] {
		return fmt.Sprintf(`{"tools":[],"nextCursor":"page-%d"}`, s.session.Add(1)), nil
	}
	if method == "tools/list" && s.wrong["leads back to the first page"] {
		return `{"tools":[],"nextCursor":"page-1"}`, nil
	}
	return s.rewritten(result, shown), nil
}

// here executes and reports it; the result is "" if there is no such method.
func (s *stub) here(method string, params any, body []byte) (result string, err error) {
	o, err := offers()
	if err != nil {
		return "", err
	}
	if !slices.Contains(own, method) {
		report := fmt.Sprintf(`{"method":%q}`, method)
		if params := rawMember(string(body), "params"); params != "" {
			report = fmt.Sprintf(`{"method":%q,"params":%s}`, method, params)
		}
		resp, err := s.patient.Post(s.wiring.Report, "application/json", strings.NewReader(report))
		if err != nil {
			return "", errUnavailable
		}
		_ = resp.Body.Close()
	}
	return (&upstream{offered: o}).result(method, params), nil
}

// forward has the upstream execute; the result is "" if there is no such method.
func (s *stub) forward(r *http.Request, method, body string) (result string, err error) {
	out, err := http.NewRequestWithContext(r.Context(), http.MethodPost, s.wiring.Upstream, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for _, name := range []string{"Content-Type", "Accept", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"} {
		out.Header.Set(name, r.Header.Get(name))
	}
	if s.wrong["passes the token on"] || s.wrong["lists with the client's token"] && slices.Contains(own, method) {
		out.Header.Set("Authorization", r.Header.Get("Authorization"))
	}
	resp, err := s.patient.Do(out)
	if err != nil {
		return "", errUnavailable
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return rawMember(string(text), "result"), nil
}
