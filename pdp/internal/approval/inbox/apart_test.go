package inbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/approval/inbox"
)

// What is for the same is told apart by the members that differ, wherever they stand. What is equal says so, of the first one.
func TestTellApart(t *testing.T) {
	t.Parallel()
	ask := func(rest string) inbox.Request {
		t.Helper()
		var r inbox.Request
		text := `{"id":"a1","tenant":"default","request":{"action":{"name":"push"},"resource":{"type":"tool","id":"x"},` + rest + `}}`
		if strings.HasPrefix(rest, "redacted") {
			text = `{"id":"a1","tenant":"default","redacted_at":"2026-11-21T10:00:00Z","request":null}`
		}
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	many := func(last string) string {
		var all strings.Builder
		for n := range 64 {
			fmt.Fprintf(&all, `"k%02d":%d,`, n, n)
		}
		return "{" + all.String() + `"z":` + last + "}"
	}
	const bot = `"subject":{"type":"agent","id":"bot"}`
	for name, test := range map[string]struct {
		all  []string
		want string
	}{
		"none":                   {nil, ""},
		"alone":                  {[]string{bot + `,"context":{"arguments":{"n":1}}`}, "-"},
		"arguments come first":   {[]string{bot + `,"context":{"arguments":{"n":1},"a":1}`, bot + `,"context":{"arguments":{"n":2},"a":2}`}, "n=1 context.a=1|n=2 context.a=2"},
		"equal":                  {[]string{bot + `,"context":{"arguments":{"n":1}}`, bot + `,"context":{"arguments":{"n":1}}`, bot + `,"context":{"arguments":{"n":1}}`}, "-|- as 0|- as 0"},
		"two of three":           {[]string{bot + `,"context":{"arguments":{"n":1}}`, bot + `,"context":{"arguments":{"n":2}}`, bot + `,"context":{"arguments":{"n":2}}`}, "n=1|n=2|n=2 as 1"},
		"one has none":           {[]string{bot, bot + `,"context":{"arguments":{"n":1}}`}, "n=|n=1"},
		"of another subject":     {[]string{bot + `,"context":{"n":1}`, `"subject":{"type":"agent","id":"other"},"context":{"n":2}`}, "-|-"},
		"properties":             {[]string{`"subject":{"type":"agent","id":"bot","properties":{"n":1}}`, `"subject":{"type":"agent","id":"bot","properties":{"n":2}}`}, "subject.n=1|subject.n=2"},
		"a name that poses":      {[]string{bot + `,"context":{"n":1,"arguments":{"context.n":1}}`, bot + `,"context":{"n":2,"arguments":{"context.n":1}}`}, "context.n=1|context.n=2"},
		"an argument that poses": {[]string{bot + `,"context":{"arguments":{"context.n":1}}`, bot + `,"context":{"arguments":{"context.n":2}}`}, "arguments.context.n=1|arguments.context.n=2"},
		"no object":              {[]string{bot + `,"context":{"arguments":[1]}`, bot + `,"context":{"arguments":[2]}`}, "arguments=[1]|arguments=[2]"},
		"many members":           {[]string{bot + `,"context":{"arguments":` + many("1") + `}`, bot + `,"context":{"arguments":` + many("2") + `}`}, "arguments=" + many("1") + "|arguments=" + many("2")},
		"a large context":        {[]string{bot + `,"context":` + many("1"), bot + `,"context":` + many("2")}, "context=" + many("1") + "|context=" + many("2")},
		"those that are erased":  {[]string{"redacted", "redacted", bot}, "-|-|-"},
	} {
		var all []inbox.Request
		for _, one := range test.all {
			all = append(all, ask(one))
		}
		var got []string
		for _, one := range inbox.TellApart(all) {
			text := ""
			for _, m := range one.Members {
				text += fmt.Sprintf(" %v=%s", m, m.Value)
			}
			if text == "" {
				text = " -"
			}
			if one.As >= 0 {
				text += fmt.Sprint(" as ", one.As)
			}
			got = append(got, text[1:])
		}
		if is := strings.Join(got, "|"); is != test.want {
			t.Errorf("%s: got %s, want %s", name, is, test.want)
		}
	}
}
