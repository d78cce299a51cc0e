package page_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/visible/hostile"
)

// compared is a table of a value and of that of the last time.
func compared(now, last string) page.Table {
	then := jsontext.Value(last)
	table := page.Members("Arguments", jsontext.Value(now), &then)
	table.Agreed = true
	return table
}

// lines is the JSON of a text of numbered lines, in which some are others.
func lines(n int, others map[int]string) string {
	var all []string
	for i := range n {
		line, other := others[i]
		if !other {
			line = fmt.Sprint("line ", i)
		}
		if line != "-" {
			all = append(all, line)
		}
	}
	text, _ := json.Marshal(strings.Join(all, "\n"))
	return string(text)
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, now, last, want string }{
		{"another word", `{"env":"production"}`, `{"env":"staging"}`, `env: "{+production+}" last time: "{-staging-}"`},
		{"a number is no text with more at its end", `{"n":10000}`, `{"n":10}`, `n: {+10000+} last time: {-10-}`},
		{"a longer word", `{"b":"maintenance"}`, `{"b":"main"}`, `b: "{+maintenance+}" last time: "{-main-}"`},
		{"words within", `{"c":"rm -rf /tmp/a --force"}`, `{"c":"rm -r /tmp/a"}`, `c: "rm -{+rf+} /tmp/a{+ --force+}" last time: "rm -{-r-} /tmp/a"`},
		{"no words between", `{"c":"a, b"}`, `{"c":"c, d"}`, `c: "{+a, b+}" last time: "{-c, d-}"`},
		{"what is drawn alike", `{"c":"a\n\n\n\n\nb"}`, `{"c":"a\n\n \n\n\nb"}`, "c: \"{+a\n⏎×4\nb+}\" // 4 empty lines in a row last time: \"{-a\n⏎×4\nb-}\" // 4 empty lines in a row"},
		{"a doubled backslash", `{"c":"a\\b"}`, `{"c":"a\\\\b"}`, `c: "a\\b" last time: "a\\{-\\-}b"`},
		{"another kind", `{"c":{"a":1}}`, `{"c":"x"}`, `c: {+{"a": 1}+} last time: "{-x-}"`},
		{"members", `{"files":[{"name":"a","mode":"0644"},{"name":"b","mode":"0777"}],"x":1}`, `{"files":[{"name":"a","mode":"0644"},{"name":"b","mode":"0600"}],"x":1}`,
			"files: differs from last time:\n\nfiles[1].mode: \"{+0777+}\" last time: \"{-0600-}\"\n2 others are the same\n\nall of it now:\n" +
				"[\n  {\"name\": \"a\", \"mode\": \"0644\"},\n  {\"name\": \"b\", \"mode\": \"0777\"}\n]\nx: 1 same as last time"},
		{"elements", `{"to":["eve","ann","bob"]}`, `{"to":["ann","bob","cid"]}`,
			"to: differs from last time:\n\nto[0]: \"{+eve+}\"\nto[2]: \"{-cid-}\"\n2 others are the same\n\nall of it now:\n[\"eve\", \"ann\", \"bob\"]"},
		{"names that are no words", `{"a.b":{"\"]":1,"c":2}}`, `{"a.b":{"\"]":2,"c":2}}`,
			"a.b: differs from last time:\n\n[\"a.b\"][\"\\\"]\"]: {+1+} last time: {-2-}\n1 other is the same\n\nall of it now:\n{\"\\\"]\": 1, \"c\": 2}"},
		{"lines", `{"t":` + lines(12, map[int]string{5: "line five"}) + `}`, `{"t":` + lines(12, nil) + `}`,
			"t: differs from last time:\n\n3 lines are the same\nline 3\nline 4\nline {-5-}\nline {+five+}\nline 6\nline 7\n4 lines are the same\n\nall of it now:\n\"" +
				strings.ReplaceAll(strings.Trim(lines(12, map[int]string{5: "line five"}), `"`), `\n`, "\n") + `"`},
		{"lines that are gone", `{"t":` + lines(4, map[int]string{1: "-"}) + `}`, `{"t":` + lines(4, nil) + `}`,
			"t: differs from last time:\n\nline 0\n{-line 1-}\nline 2\nline 3\n\nall of it now:\n\"line 0\nline 2\nline 3\""},
		{"an empty line", `{"t":"a\n\nb"}`, `{"t":"a\nb"}`, "t: differs from last time:\n\na\n{+⏎+}\nb\n\nall of it now:\n\"a\n\nb\""},
		{"a line that looks like another step", `{"t":"a\n+ b\n- c"}`, `{"t":"a\nd"}`, "t: differs from last time:\n\na\n{-d-}\n{++ b+}\n{+- c+}\n\nall of it now:\n\"a\n+ b\n- c\""},
	} {
		if got := strings.TrimSpace(said(t, compared(test.now, test.last))); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// A value that is not cut is drawn to its end, however long its marks make it: nothing says otherwise, so it may be approved.
func TestValueWithManyMarksIsDrawnWhole(t *testing.T) {
	t.Parallel()
	for _, lead := range []string{`"`, `\`, "\u202e", "а", "a ", "	", "é"} {
		for _, last := range []string{"x", "END", lead} {
			text, _ := json.Marshal(strings.Repeat(lead, 290/len(lead)) + "END")
			was, _ := json.Marshal(last)
			table := compared(`{"c":`+string(text)+`}`, `{"c":`+string(was)+`}`)
			cut := 0
			table.Each(func(text page.Text, again bool) page.Text {
				if text.Cut() && !again {
					cut++
				}
				return text.Begun()
			})
			if drawn := strings.Contains(said(t, table), "END"); cut == 0 && !drawn {
				t.Errorf("%q after %q: the end is not drawn, and nothing is cut", lead, last)
			}
		}
	}
}

// Steps leave out what is the same, and never anything that differs, once all is asked for; the value is there as ever.
func TestManyDifferences(t *testing.T) {
	t.Parallel()
	others := map[int]string{}
	for n := range 30 {
		others[3*n] = fmt.Sprint("other ", n)
	}
	table := compared(`{"t":`+lines(95, others)+`,"u":1}`, `{"t":`+lines(95, nil)+`,"u":2}`)
	whole := said(t, table)
	if n := table.Fold(); n != 1 || len(table.Rows[1].Steps) != 20 {
		t.Errorf("%d rows lack steps", n)
	}
	folded := said(t, table)
	for n := range 30 {
		for _, text := range []string{whole, folded} {
			if _, all, _ := strings.Cut(text, "all of it now:"); !strings.Contains(all, others[3*n]+"\n") {
				t.Errorf("the value lacks %s", others[3*n])
			}
		}
		if !strings.Contains(whole, "{+other+} ") && !strings.Contains(whole, fmt.Sprintf("{+other %d+}", n)) {
			t.Errorf("%d is no difference", n)
		}
	}
	if strings.Contains(whole, "more") || !strings.Contains(folded, "more\n") {
		t.Errorf("%s", folded)
	}
}

// A long line is shortened where it is the same, on both sides, and what differs is there.
func TestDifferenceInLongLine(t *testing.T) {
	t.Parallel()
	long := func(word string) string {
		return `{"t":"` + strings.Repeat("before ", 200) + word + strings.Repeat(" after", 200) + `"}`
	}
	table := compared(long("evil"), long("good"))
	if steps := table.Rows[0].Steps; len(steps) != 2 {
		t.Fatalf("%d steps", len(steps))
	}
	table.Each(func(text page.Text, _ bool) page.Text { return text.Begun() })
	got := said(t, table)
	if n := strings.Count(got, "before"); n > 70 {
		t.Errorf("%d words are shown", n)
	}
	if !strings.Contains(got, "before {+evil+} after") || !strings.Contains(got, "before {-good-} after") {
		t.Error(got)
	}
}

// allowed are the elements that a table may have.
var allowed = strings.Fields("bdi bdo span ins del tr th td ul li p details summary")

// No text makes another element or an attribute in a difference, nor leaves the present value.
func TestHostileDifferences(t *testing.T) {
	t.Parallel()
	texts := hostile.UTF8()
	for n, text := range texts {
		if testing.Short() && n%4 > 0 {
			continue
		}
		text = strings.ToValidUTF8(text[:min(len(text), longText)], "")
		other := strings.ToValidUTF8(texts[(n+1)%len(texts)][:min(len(texts[(n+1)%len(texts)]), longText)], "")
		object := func(text, beside string) string {
			b, err := json.Marshal(map[string]any{"t": text, text: 1, "in": map[string]any{"list": []string{text, beside}, text: text}, "l": "a\n" + text + "\nb"}, json.Deterministic(true))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		now := object(text, other)
		html := drawn(t, page.Request{Sent: []page.Table{compared(now, object(other, text))}})
		_, inside, _ := strings.Cut(html, "<tbody>")
		inside, _, _ = strings.Cut(inside, "</tbody>")
		for _, tag := range strings.Split(inside, "<")[1:] {
			name, _, _ := strings.Cut(strings.TrimPrefix(strings.SplitN(tag, ">", 2)[0], "/"), " ")
			if name != "" && !slices.Contains(allowed, strings.TrimSpace(name)) {
				t.Fatalf("%.100q makes <%s>", text, name)
			}
		}
		alone := page.Members("Arguments", jsontext.Value(now), nil)
		both := compared(now, object(other, text))
		for _, row := range alone.Rows { // the value is drawn as it is without a last time
			r := slices.IndexFunc(both.Rows, func(other page.Row) bool { return fmt.Sprint(other.Name) == fmt.Sprint(row.Name) })
			if got := fmt.Sprint(both.Rows[r].Value.Text.Whole()); got != fmt.Sprint(row.Value.Text.Whole()) {
				t.Fatalf("%.100q is %.200q", text, got)
			}
			var parts []string
			for _, p := range both.Rows[r].Value.Parts {
				for _, line := range p.Text.Whole().Lines() {
					for _, piece := range line {
						parts = append(parts, piece.Text)
					}
				}
			}
			var pieces []string
			for _, line := range row.Value.Text.Whole().Lines() {
				for _, piece := range line {
					pieces = append(pieces, piece.Text)
				}
			}
			if len(parts) > 0 && strings.Join(parts, "") != strings.Join(pieces, "") {
				t.Fatalf("%.100q has the parts %q", text, parts)
			}
		}
	}
}

// A hostile pair of texts takes no long time: the search for what is the same is bounded.
func TestDifferencesAreBounded(t *testing.T) {
	t.Parallel()
	var now, last strings.Builder
	for n := range 6_000 {
		fmt.Fprintf(&now, "%d\\n", n*7919%6_000)
		fmt.Fprintf(&last, "%d\\n", n*104729%6_000)
	}
	table := compared(`{"t":"`+now.String()+`"}`, `{"t":"`+last.String()+`"}`)
	table.Fold()
	if html := drawn(t, page.Request{Sent: []page.Table{table}}); len(html) > 1<<20 {
		t.Errorf("the page has %d bytes", len(html))
	}
	deep := func(leaf string) string {
		return `{"a":` + strings.Repeat("[", 4000) + leaf + strings.Repeat("]", 4000) + `}`
	}
	if steps := compared(deep("1"), deep("2")).Rows[0].Steps; len(steps) != 1 {
		t.Errorf("%d steps", len(steps))
	}
	var wide []string
	for n := range 2000 {
		wide = append(wide, fmt.Sprintf(`{"%s":%d}`, strings.Repeat("x", 30_000/2000), n))
	}
	compared(`{"a":[`+strings.Join(wide, ",")+`]}`, `{"a":[`+strings.ReplaceAll(strings.Join(wide, ","), ":", ":1")+`]}`)
}
