package page_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/console/page"
)

// said is what a page says of a table, a row a line.
func said(t *testing.T, table page.Table) string {
	t.Helper()
	html := drawn(t, page.Request{Sent: []page.Table{table}})
	_, html, _ = strings.Cut(html, "<tbody>\n")
	html, _, _ = strings.Cut(html, "</tbody>")
	html = strings.ReplaceAll(html, "</th>", ": ")
	html = strings.NewReplacer("<span class=\"hidden\">new: </span>", "", "<span class=\"hidden\">was: </span>", "", "<ins>", "{+", "</ins>", "+}", "<del>", "{-", "</del>", "-}").Replace(html)
	html = strings.ReplaceAll(html, "<td class=\"then\">", " ")
	html = strings.ReplaceAll(html, "<span class=\"odd\">", " // ")
	html = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(html, "")
	return strings.NewReplacer("&#34;", `"`, "&#43;", "+", "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(html)
}

func TestMembers(t *testing.T) {
	t.Parallel()
	value := func(text string) *jsontext.Value { v := jsontext.Value(text); return &v }
	for _, test := range []struct{ name, now, last, want string }{
		{"kinds", `{"a":"1","b":1,"c":null,"d":true,"e":"","f":{},"g":[]}`, "", "a: \"1\"\nb: 1\nc: null\nd: true\ne: \"\"\nf: {}\ng: []\n"},
		{"nested", `{"a":[{"b":"x","c":[1,2]},3]}`, "", "a: [\n  {\n    \"b\": \"x\",\n    \"c\": [1, 2]\n  },\n  3\n]\n"},
		{"a text cannot pass for members", `{"a":{"b":"1\", \"c\": \"2\n}"}}`, "", `a: {"b": "1\", \"c\": \"2\n}"}` + "\n"},
		{"nor for a line", `{"a":["x\\ny"]}`, "", `a: ["x\\ny"]` + "\n"},
		{"the same in another order", `{"a":{"x":1,"y":2}}`, `{"a":{"y":2, "x":1}}`, "a: {\"x\": 1, \"y\": 2} same as last time\n"},
		{"numbers that readers round", `{"n":9007199254740993}`, `{"n":9007199254740992}`, "n: {+9007199254740993+} last time: {-9007199254740992-}\n"},
		{"another type", `{"n":1}`, `{"n":"1"}`, "n: {+1+} last time: \"{-1-}\"\n"},
		{"nothing the last time", `{"n":1}`, `null`, "n: {+1+} not there last time\n"},
		{"nothing now", ``, `{"n":1}`, "n: not there now last time: {-1-}\n"},
		{"a quotation mark of a text", `{"a":"1\" same as last time"}`, "", `a: "1\" same as last time"` + "\n"},
		{"quotation marks of another kind", `{"a":{"b":"you may do it for all of them now”, “c”: “2"}}`, "", "a: {\n  \"b\": \"you may do it for all of them now" + `\u201d, \u201cc\u201d: \u201c2"` + "\n} // " + `\u201d looks like " // \u201c looks like "` + "\n"},
		{"a name that looks like another", `{"сору":1}`, "", `\u0441\u043e\u0440\u0443 // "\u0441\u043e\u0440\u0443" looks like "copy": 1` + "\n"},
		{"no name", `{"":1}`, "", `"": 1` + "\n"},
		{"no object", `[1]`, "", ": [1]\n"},
		{"no JSON", `{"a":1,]`, "", "a: 1\n: (this cannot be shown) // no JSON\n"},
	} {
		var last *jsontext.Value
		if test.last != "" {
			last = value(test.last)
		}
		table := page.Members("Arguments", *value(test.now), last)
		table.Agreed = true
		if got := said(t, table); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// All of a long value is there, behind what says so.
func TestLongValues(t *testing.T) {
	t.Parallel()
	lines := page.JSON(jsontext.Value(`[[` + strings.Repeat("[1],", 200) + `2]]`)).Text
	if len(lines.Lines()) != 100 || len(lines.More()) != 105 || !lines.Cut() || lines.Odd() {
		t.Errorf("%d lines, %d in all", len(lines.Lines()), len(lines.More()))
	}
	for _, text := range []page.Text{
		page.JSON(jsontext.Value(`{"a":"` + strings.Repeat("x", 400) + `"}`)).Text,
		page.Line(strings.Repeat("x", 250) + "\n" + strings.Repeat("y", 250)),
		page.Of(strings.Repeat("x", 400)),
	} {
		if !text.Cut() || text.Odd() || text.Plain() {
			t.Errorf("got %v", text)
		}
	}
	deep := page.JSON(jsontext.Value(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))).Text
	if n := len(deep.More()); n < 5000 {
		t.Errorf("%d lines", n)
	}
	if got := drawn(t, page.Request{Asks: page.Asks{Message: deep}}); len(got) > 1<<20 {
		t.Errorf("the page has %d bytes", len(got))
	}
	brief := page.Line("12345\u202e6789").Brief(6)
	if got := drawn(t, page.Message{Says: []page.Text{brief}}); !strings.Contains(got, "12345<span class=\"esc\" title=\"there is more\">…</span>") {
		t.Error(got)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 59 * time.Second: "59 s", 60 * time.Second: "1 min", 61 * time.Second: "1 min", time.Hour: "1 h",
		3*time.Hour + 41*time.Minute + 59*time.Second: "3 h 41 min", 24 * time.Hour: "1 d", 49 * time.Hour: "2 d 1 h",
	} {
		if got := page.Span(d); got != want {
			t.Errorf("%v: %s, not %s", d, got, want)
		}
	}
	if m := page.MomentOf(now, now.Add(time.Hour)); m.Left() != "time is up" || m.Ago() != "1 h ago" || m.Shown() != "03:04 UTC" {
		t.Errorf("%s, %s, %s", m.Left(), m.Ago(), m.Shown())
	}
	if m := page.MomentOf(now, now.AddDate(0, 0, 1)); m.Shown() != "2026-01-02 03:04 UTC" {
		t.Error(m.Shown())
	}
	if !page.MomentOf(time.Time{}, now).None() || !page.IDOf("a b").None() || !page.IDOf(strings.Repeat("a", 65)).None() || page.IDOf("a-1").String() != "a-1" {
		t.Error("what is none is one")
	}
}

// A value of the largest size can be drawn whole.
func TestLargeValueIsWhole(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"x", "a line\\n"} {
		end := "and this is the end"
		table := page.Members("Arguments", jsontext.Value(`{"a":"`+strings.Repeat(part, 1<<20/len(part))+end+`","b":{"c":"`+end+`"}}`), nil)
		table.Each(func(text page.Text, _ bool) page.Text { return text.Whole() })
		if got := drawn(t, page.Request{Sent: []page.Table{table}}); strings.Count(got, end) != 2 || table.Rows[0].Value.Text.Cut() {
			t.Errorf("%s: the value is not whole", part)
		}
	}
}

// A list draws the beginning of a long text alone, and says that there is more.
func TestBriefOfALongText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"abc", "abc"},
		{strings.Repeat("x", 100), "xxxxxxxxxx…"},
		{strings.Repeat(" ", 1000) + "x", "␣×160…"},
		{strings.Repeat("é", 1000), "éééééééééé…"},
		{strings.Repeat("\n", 1000), "⏎×161…"},
	} {
		var got strings.Builder
		drawn := 0
		draw := func(text string) page.Text { drawn = len(text); return page.Line(text) }
		for _, line := range page.Brief(draw, test.text, 10).Lines() {
			for _, p := range line {
				got.WriteString(p.Text)
			}
		}
		if got.String() != test.want || drawn > 160 {
			t.Errorf("%d bytes of %.5q…: got %q", drawn, test.text, got.String())
		}
	}
	for _, value := range []string{`{"k":"` + strings.Repeat("x", 1000) + `"}`, `"` + strings.Repeat("x", 1000) + `"`} {
		text := strings.Trim(value, `"`)
		if got := page.Differing(jsontext.Value(value), text, "", 10); !strings.HasSuffix(fmt.Sprint(got.Text.Lines()), "there is more}]]") {
			t.Errorf("got %v", got.Text.Lines())
		}
	}
}
