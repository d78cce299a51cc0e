package ask_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/internal/mcp/internal/ask"
)

// yes is a PDP that permits all, without a network.
type yes struct{}

func (yes) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	answer := `{"decision":true}`
	if n := strings.Count(string(body), `"resource":`); strings.HasSuffix(r.URL.Path, "/evaluations") {
		answer = `{"decision":false,"context":{"possible":true}}`
		answer = `{"evaluations":[` + strings.Repeat(answer+",", n-1) + answer + `]}`
	}
	header := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": r.Header["X-Request-Id"], "X-Decision-Id": {"d"}}
	return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(answer)), Request: r, ContentLength: int64(len(answer))}, nil
}

func swift(b *testing.B, set func(*ask.Options)) *stage {
	client, err := authzenclient.New("http://127.0.0.1:1", authzenclient.WithHTTPClient(&http.Client{Transport: yes{}}))
	s := &stage{t: b}
	s.must(err)
	o := ask.Options{PDP: map[string]*authzenclient.Client{"default": client}, Resource: resource}
	set(&o)
	s.Asker, err = ask.New(o)
	s.must(err)
	return s
}

// What does it cost to ask about a call with 1 KiB of arguments, the PDP's own time and the network aside?
func BenchmarkAsk(b *testing.B) {
	arguments := `{"target":"production","body":"` + strings.Repeat("x", 700) + `","tags":["a","b","c"],"n":12345,"more":{` + strings.Repeat(`"member":{"a":1,"b":"two"},`, 1) + `"flag":true},"note":"` + strings.Repeat("y", 200) + `"}`
	for name, definition := range map[string]string{"plain": jira, "declared": strings.Replace(jira, `{"type":"object"}`, `{"x-authzen-mapping":{"evaluation":{"action":{"name":"read"},"resource":{"type":"x","id":"$params.arguments.target"},"context":{"agent":"$token.?client_id"}}}}`, 1)} {
		for _, form := range []ask.Ask{ask.ToolInvoke, ask.COAZ} {
			b.Run(name+"/"+string(form), func(b *testing.B) {
				s := swift(b, func(o *ask.Options) { o.Ask = form })
				op := s.call(alice(b), s.tool(definition, map[string]string{"impact": "write"}), arguments)
				b.ReportAllocs()
				for b.Loop() {
					p, refusal := s.Ask(b.Context(), op)
					if refusal != nil {
						b.Fatalf("%+v", refusal)
					}
					p.Done(b.Context())
				}
			})
		}
	}
}

// What does it cost to ask about a list of 200 tools?
func BenchmarkFilter(b *testing.B) {
	s := swift(b, func(*ask.Options) {})
	items := make([]ask.Item, 200)
	for n := range items {
		items[n].Tool = s.tool(strings.Replace(jira, "create_ticket", fmt.Sprint("t", n), 1), map[string]string{"impact": "write"})
	}
	op := request(alice(b), "tools/list", ``)
	b.ReportAllocs()
	for b.Loop() {
		if keep, refusal := s.Filter(b.Context(), op, items); refusal != nil || !keep[199] {
			b.Fatalf("%+v", refusal)
		}
	}
}
