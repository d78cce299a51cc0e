package approve

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/command/cli"
)

// Rows that are for one tool say by what they differ, and no more.
func TestRowsAreToldApart(t *testing.T) {
	rows := func(of ...string) []string {
		t.Helper()
		var all []inbox.Request
		for _, text := range of {
			var r inbox.Request
			if err := json.Unmarshal([]byte(`{"id":"a1","status":"pending","tenant":"default","message":"m","request":{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},`+text+`}}`), &r); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		var out bytes.Buffer
		if err := (listCommand{}).printAll(cli.Streams{Out: &out}, all); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		for n, line := range lines {
			_, lines[n], _ = strings.Cut(strings.Join(strings.Fields(line), " "), " tool/")
		}
		return lines[1:]
	}
	of := func(tool, arguments string) string {
		return `"resource":{"type":"tool","id":"` + tool + `"},"context":{"arguments":` + arguments + `}`
	}
	for name, test := range map[string]struct{ all, want []string }{
		"alone":         {[]string{of("push", `{"branch":"main"}`)}, []string{"push m"}},
		"of two tools":  {[]string{of("push", `{"branch":"main"}`), of("pull", `{"branch":"next"}`)}, []string{"push m", "pull m"}},
		"one differs":   {[]string{of("push", `{"branch":"main","n":1}`), of("push", `{"branch":"next","n":1}`), of("pull", `{}`)}, []string{`push branch: "main" m`, `push branch: "next" m`, "pull m"}},
		"one is absent": {[]string{of("push", `{"force":true,"n":1}`), of("push", `{"n":1}`)}, []string{"push force: true m", "push no force m"}},
		"in two":        {[]string{of("push", `{"a":{"x":1},"b":2}`), of("push", `{"a":{"x":2},"b":3}`)}, []string{`push a: {"x":1}, b: 2 m`, `push a: {"x":2}, b: 3 m`}},
		"equal":         {[]string{of("push", `{"a":1}`), of("push", `{"a":1}`)}, []string{"push m", "push m"}},
		"no object":     {[]string{of("push", `7`), of("push", `[]`)}, []string{"push arguments: 7 m", "push arguments: [] m"}},
		"what hides":    {[]string{of("push", `{"to":"a"}`), of("push", "{\"to\":\"b\u202e\"}")}, []string{`push to: "a" m`, `push to: "b\u202e" m`}},
	} {
		if got := rows(test.all...); strings.Join(got, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
