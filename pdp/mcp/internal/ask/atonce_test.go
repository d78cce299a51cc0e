package ask_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"policy-service/pdp/mcp/internal/ask"
)

// Many at once: each is decided by its own arguments, and what one owes is nothing to another.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, map[string]string{"a.cedar": `@id("even") permit(principal, action == Action::"tool.invoke", resource) when { context.arguments.even };
		@id("mask") @obligation("mask") permit(principal, action == Action::"tool.invoke", resource) when { context.arguments.mask };
		@id("declared") permit(principal, action == Action::"read", resource);`,
		"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n"})
	tool := s.tool(declares("a", `{"evaluation":{"action":{"name":"read"},"resource":{"type":"x","id":"$params.arguments.id"}}}`), map[string]string{"a": "b"})
	items := []ask.Item{{Tool: tool}, {Tool: tool}}
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for i := range 12 {
				even, mask := (n+i)%2 == 0, i%3 == 0
				p, refusal := s.Ask(t.Context(), s.call(alice(t), tool, fmt.Sprintf(`{"id":"%d-%d","even":%v,"mask":%v}`, n, i, even, mask)))
				if (p != nil) != (even || mask) {
					t.Errorf("%d-%d: %+v", n, i, refusal)
				}
				if p == nil {
					continue
				}
				m, refusal := p.Result(result(`{"structuredContent":{"ssn":"123-45-6789"}}`))
				if refusal != nil || strings.Contains(string(m.Result), "123") == mask {
					t.Errorf("%d-%d: %s, %+v", n, i, m.Result, refusal)
				}
				p.Done(t.Context())
				if keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), items); refusal != nil || !keep[0] || !keep[1] {
					t.Errorf("%v, %+v", keep, refusal)
				}
			}
		})
	}
	group.Wait()
}
