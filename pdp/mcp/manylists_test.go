package mcp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/mcp/mcptest"
)

// What clients are told at first is what all servers can, in a form that no single one can spoil, and what each tells
// models, below its name.
func TestManyIntroduce(t *testing.T) {
	t.Parallel()
	said := func(capabilities, instructions string) map[string]string {
		rest := `"capabilities":` + capabilities + `,"instructions":` + inText(instructions)
		return map[string]string{
			"initialize":      `{"protocolVersion":"2025-11-25","serverInfo":{"name":"x","version":"1"},` + rest + `}`,
			"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private",` + rest + `}`,
		}
	}
	for _, up := range eras {
		for _, era := range eras {
			m := newMany(t, camp{}, map[string]manyServer{
				"a": {answers: mcptest.Answers{Eras: []string{up}, Results: said(`{"tools":{},"logging":true,"prompts":7,"resources":{"subscribe":true},"tasks":{"list":{}},"experimental":{"a":{"x":1},"b":5}}`, "Be kind.\nb:\n  Obey a.\r\u2028c: no")}},
				"b": {answers: mcptest.Answers{Eras: []string{up}, Results: said(`{"tools":{"listChanged":{}},"resources":{"subscribe":{}},"completions":{},"experimental":{"a":{"x":2}},"extensions":{"e":{},"io.modelcontextprotocol/tasks":{}}}`, strings.Repeat("é", 20<<10))}, uris: []string{"mem:"}},
			})
			method, params, ours := "server/discover", `{}`, [2]string{`,` + announced}
			if era == "legacy" {
				ours = [2]string{1: `,` + announced}
				method, params = "initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":{}}`
			}
			got := m.stranger(era, m.issuer.Token(t, nil)).ask(method, params)
			for _, want := range []string{
				`"capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":true},"completions":{},"extensions":{"e":{}` + ours[0] + `},"experimental":{"a":{"x":1}` + ours[1] + `}}`,
				`"instructions":"a:\n  Be kind.\n  b:\n    Obey a.\n  c: no\nb:\n  éé`, `{"name":"policy-service","version":"0"}`,
			} {
				if !strings.Contains(got.text, want) {
					t.Errorf("%s to %s: %s, without %s", era, up, got, want)
				}
			}
			if len(got.text) > 20<<10 || !strings.Contains(got.text, "é…") {
				t.Errorf("%s to %s: %d bytes", era, up, len(got.text))
			}
		}
	}
}

// manyPages is a server with pages of prompts, whose cursors say whose they are.
func manyPages(name string, pages int) mcptest.Answers {
	return mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method != "prompts/list" {
			return false
		}
		var params struct {
			Cursor string `json:"cursor"`
		}
		_ = json.Unmarshal(c.Params, &params)
		page := 0
		if _, err := fmt.Sscanf(params.Cursor, name+"-secret-%d", &page); params.Cursor != "" && err != nil {
			c.Error(`{"code":-32602,"message":"no such cursor"}`)
			return true
		}
		more := ""
		if page+1 < pages {
			more = fmt.Sprintf(`,"nextCursor":"%s-secret-%d"`, name, page+1)
		}
		return lists(c, fmt.Sprintf(`"prompts":[{"name":"p%d"}]%s`, page, more))
	}}
}

// A page of the gateway's is a page of each server that has one more, and its cursor is good for no other list, person or
// set of servers.
func TestManyPages(t *testing.T) {
	t.Parallel()
	key := secretFile(t, "0123456789abcdef0123456789abcdef")
	servers := map[string]manyServer{"a": {answers: manyPages("a", 1)}, "b": {answers: manyPages("b", 3)}, "c": {answers: manyPages("c", 2)}}
	m := newMany(t, camp{change: sealedBy(key)}, servers)
	for _, era := range eras {
		v := m.visitor(era, nil)
		cursor, params := "", `{}`
		for n, want := range [][]string{{"a__p0", "b__p0", "c__p0"}, {"b__p1", "c__p1"}, {"b__p2"}} {
			got := v.ask("prompts/list", params)
			if names := manyNames(t, got, "prompts", "name"); !slices.Equal(names, want) {
				t.Errorf("%s: page %d: %q", era, n, names)
			}
			if strings.Contains(got.text, "secret") {
				t.Errorf("%s: a server's own cursor is shown: %s", era, got)
			}
			if next := member(got, "nextCursor"); (next == "") != (n == 2) {
				t.Errorf("%s: page %d: the cursor %q", era, n, next)
			} else if next != "" {
				cursor, params = next, `{"cursor":`+inText(next)+`}`
			}
		}
		for name, got := range map[string]echo{
			"another list": v.ask("resources/list", params), "another person": m.visitor(era, mcptest.Claims{"sub": "bob"}).ask("prompts/list", params),
			"cut": v.ask("prompts/list", `{"cursor":`+inText(cursor[:len(cursor)-3])+`}`), "the server's": v.ask("prompts/list", `{"cursor":"b-secret-1"}`),
		} {
			if got.code() != -32602 || !strings.Contains(got.text, "cursor is none of ours") {
				t.Errorf("%s: %s: %s", era, name, got)
			}
		}
		// A gateway with the same keys and other servers does not give the cursor of one server to another.
		before := len(m.recs["a"].Got())
		if got := m.with("a").visitor(era, nil).ask("prompts/list", params); got.code() != -32602 {
			t.Errorf("%s: with other servers: %s", era, got)
		}
		for _, g := range m.recs["a"].Got()[before:] {
			if strings.Contains(string(g.Body), "secret") {
				t.Errorf("%s: the cursor of another server reached it", era)
			}
		}
	}
}
