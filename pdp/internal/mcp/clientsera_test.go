package mcp_test

import (
	"strings"
	"testing"

	"policy-service/pdp/pdptest/mcptest"
)

// A server that speaks both eras is not made to speak another than the client does, whoever came before; and one that speaks one
// alone is asked for the other once.
func TestNoEraIsForcedOnAClient(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]bool{"http": false, "program": true} {
		for _, speaks := range [][]string{{"legacy", "modern"}, {"legacy"}, {"modern"}} {
			t.Run(name+", "+strings.Join(speaks, "+"), func(t *testing.T) {
				t.Parallel()
				s := newSiege(t, camp{program: program, answers: mcptest.Answers{Eras: speaks}})
				for n, era := range []string{"legacy", "modern", "legacy", "modern"} {
					v := s.stranger(era, s.issuer.Token(t, mcptest.Claims{"sub": era + string(rune('a'+n))}))
					before := len(s.rec.Got())
					v.begin()
					if got := v.call("look", `{}`); !got.ran() {
						t.Fatalf("client %d, %s: %s", n, era, got)
					}
					asked := map[string]int{}
					for _, g := range s.rec.Got()[before:] {
						asked[g.Method]++
						modern := strings.Contains(string(g.Params), "io.modelcontextprotocol/protocolVersion")
						if want := len(speaks) == 1 && speaks[0] == "modern" || len(speaks) == 2 && era == "modern"; g.Method == "tools/call" && modern != want {
							t.Errorf("client %d, %s: the server got %s", n, era, g.Body)
						}
					}
					if n > 1 && (asked["initialize"] > 0) == (asked["server/discover"] > 0) {
						t.Errorf("client %d, %s: the server got %v, and what it speaks was known", n, era, asked)
					}
				}
			})
		}
	}
}
