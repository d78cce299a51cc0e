package mcp_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"policy-service/pdp/mcp/mcptest"
)

// What is beyond the limits of the PDP, or no arguments at all, is refused and does not arrive. TestParseRefuses of rpc has what is
// no message.
func TestArgumentsBeyondTheLimits(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	nested := func(n int, open, inside, end string) string {
		return `{"a":` + strings.Repeat(open, n) + inside + strings.Repeat(end, n) + `}`
	}
	many := func(n int, each string) string { return strings.TrimSuffix(strings.Repeat(each+",", n), ",") }
	var members []string
	for i := range 19_000 {
		members = append(members, `"`+strconv.Itoa(i)+`":1`)
	}
	for name, arguments := range map[string]string{
		"too deep for a message": nested(40, `{"a":`, "1", "}"),
		"too deep for the PDP":   nested(20, `{"a":`, "1", "}"),
		"arrays in arrays":       nested(5, "[", "", "]"),
		"a long array":           `{"a":[` + many(5000, "1") + `]}`,
		"a long array of arrays": `{"a":[` + many(200, "[]") + `]}`,
		"too many values":        `{` + strings.Join(members, ",") + `}`,
		"too large":              `{"a":"` + strings.Repeat("x", 513<<10) + `"}`,
		"too large a body":       `{"a":"` + strings.Repeat("x", 2<<20) + `"}`,
		"an array":               `[1]`,
		"a string":               `"{}"`,
		"null":                   `null`,
		"a number":               `1`,
	} {
		for _, era := range eras {
			v := s.visitor(era, nil)
			if got := v.call("look", arguments); got.ran() || got.fault == nil || got.result != nil {
				t.Errorf("%s, %s: %s", name, era, got)
			}
		}
	}
	s.untouched(t)
}

// Members that nobody knows survive: of tools, of calls, and of results.
func TestUnknownMembersSurvive(t *testing.T) {
	t.Parallel()
	const (
		tool   = `{"name":"odd", "x-unknown" :{"b":1,"a":1.0,"A":[null]},"inputSchema":{"type":"object","$defs":{"z":true},"x-y":1e2},"Title":"\u00e9"}`
		result = `"content":[{"type":"text","text":"ran","x-more":{"b":1,"a":1.0}}],"x-result":[1.0,null,{"k":"\u006b"}],"structuredContent":{"n":9007199254740993}`
	)
	for _, server := range eras {
		s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{server}, Tools: "[" + tool + "]", Handle: func(c *mcptest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			if c.Modern {
				c.Result(`{"resultType":"complete",` + result + `}`)
			} else {
				c.Result(`{` + result + `}`)
			}
			return true
		}}})
		for _, era := range eras {
			name := fmt.Sprintf("%s client, %s server", era, server)
			v := s.visitor(era, nil)
			if got := v.ask("tools/list", `{}`); !strings.Contains(got.text, tool) {
				t.Errorf("%s: the tool is not listed as it is: %s", name, got)
			}
			got := v.ask("tools/call", `{"name":"odd","x-call":{"b":1,"a":1.0},"arguments":{"q":"\u00e9"},"x-more":null}`)
			if !got.ran() || !strings.Contains(got.text, result) {
				t.Errorf("%s: the result is not as it was: %s", name, got)
			}
			all := s.rec.Executed()
			if last := string(all[len(all)-1].Params); !strings.Contains(last, `"x-call":{"b":1,"a":1.0},"arguments":{"q":"\u00e9"},"x-more":null`) {
				t.Errorf("%s: the server got %s", name, last)
			}
		}
	}
}
