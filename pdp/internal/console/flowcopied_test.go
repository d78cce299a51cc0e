package console_test

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/visible/hostile"
	"policy-service/pdp/pdptest/browsertest"
)

// copying keeps what a copy puts onto the clipboard, and selects what a person does: all of a text, all of a cell with its
// quotes and notes, or from the middle of a text to its end.
const copying = `
	document.addEventListener("copy", (e) => { globalThis.copied = e.defaultPrevented ? e.clipboardData.getData("text/plain") : "as drawn: " + getSelection(); });
	globalThis.selects = (row, cell, how) => {
		const tr = [...document.querySelectorAll(".box tbody tr")].find((tr) => tr.querySelector("th").textContent === row);
		const td = tr.querySelectorAll("td")[cell], texts = td.querySelectorAll("bdi.text"), text = texts[texts.length - 1], range = document.createRange();
		range.selectNodeContents(how === "cell" ? td : text);
		if (how === "mark") range.setStart(text.querySelector(".esc, .alike, .spaces").firstChild, 1);
		getSelection().removeAllRanges();
		getSelection().addRange(range);
		return tr.textContent;
	}; null`

// copies is what a person gets who selects a value and copies it.
func copies(p *browsertest.Page, name string, cell int, how string) string {
	quoted, _ := json.Marshal(name)
	at, _ := json.Marshal(cell)
	browsertest.Eval[string](p, "globalThis.copied = 'nothing'; selects("+string(quoted)+", "+string(at)+", '"+how+"')")
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		browsertest.Call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Commands: []string{"copy"}})
	}
	return browsertest.Eval[string](p, "globalThis.copied")
}

// TestBrowserCopiesTheValue copies values from the page of a request: each is the value, without its quotes, its marks, and the
// words for who hears the page.
func TestBrowserCopiesTheValue(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	now := map[string]any{
		"plain": "production", "same": "staging", "slash": `C:\temp\new "x"`, "lines": "a\n\tb  \n\nc", "hidden": "a\u202eb\u200b\u200bc", "alike": "p\u0430ypal", "spaces": " x" + strings.Repeat(" ", 40) + "y ",
		"many": "a" + strings.Repeat("\u200b", 30) + "b", "empty": "a\n\n\n\n\n\nb", "tabs": "a" + strings.Repeat("\t", 12) + "b", "emoji": "\U0001F468\u200d\U0001F469", "new": "only now", "number": 10000, "yes": true,
		"command": "deploy --force --all-the-regions --without-asking-anybody",
	}
	then := map[string]any{"plain": "staging", "same": "staging", "slash": `C:\temp`, "command": "deploy --all-the-regions --after-asking-somebody", "gone": "not \u200b any more", "number": 10}
	objects := map[string]any{"in": map[string]any{"a\u200b": "b\\\"\n\u202e" + strings.Repeat(" ", 40) + "c\u0430r", "list": []any{1.0, nil, "\t"}}, "list": []any{"x", 1.0}}
	all := map[string]any{}
	for _, of := range []map[string]any{now, objects} {
		for name, v := range of {
			all[name] = v
		}
	}
	text := func(of map[string]any) string {
		b, err := json.Marshal(of, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	id := f.asksAgain(text(then), text(all))
	p := f.open("alice")
	p.Goto("/console/approvals/" + id + "?whole")
	readyToDecide(t, p)
	browsertest.Eval[any](p, copying)
	for name, v := range now {
		want, is := v.(string)
		if !is {
			want = text(map[string]any{"": v})
			want = want[len(`{"":`) : len(want)-1]
		}
		for _, how := range []string{"text", "cell"} {
			if name == "command" && how == "cell" { // beside the steps
				continue
			}
			if got := copies(p, name, 0, how); got != want {
				t.Errorf("the %s of %s is copied as %q, and is %q", how, name, got, want)
			}
		}
	}
	for name, v := range objects {
		var got any
		if copied := copies(p, name, 0, "cell"); json.Unmarshal([]byte(copied), &got) != nil || text(map[string]any{"": got}) != text(map[string]any{"": v}) {
			t.Errorf("%s is copied as %q", name, copied)
		}
	}
	for name, want := range map[string]string{"plain": "staging", "number": "10", "gone": "not \u200b any more"} {
		if got := copies(p, name, 1, "text"); got != want {
			t.Errorf("%s of the last time is copied as %q", name, got)
		}
	}
	for name, want := range map[string]string{"hidden": "\u202eb\u200b\u200bc", "alike": "\u0430ypal"} {
		if got := copies(p, name, 0, "mark"); got != want {
			t.Errorf("from within a mark of %s on is copied %q", name, got)
		}
	}
	for _, word := range []string{"ins .hidden", "del .hidden", "bdi .hidden"} {
		if browsertest.Eval[int](p, `document.querySelectorAll("`+word+`").length`) > 0 {
			t.Errorf("there is %s: a word of the page's within a value", word)
		}
	}
	if !p.Has("insertion", "") || !strings.Contains(p.Tree(), `"new: \"production\""`) {
		t.Errorf("nothing says that it is new:\n%s", p.Tree())
	}
}

// TestBrowserCopiesHostileValues copies every hostile text, as an argument and within one.
func TestBrowserCopiesHostileValues(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	p := f.open("alice")
	for n, one := range someOf(hostile.Short(200)) {
		var quoted string
		if b, err := json.Marshal(one); err == nil {
			quoted = string(b)
		} else { // it is no UTF-8, and no argument
			continue
		}
		id := f.asks("agent-release", "github.push_code", `{"a":`+quoted+`,"b":[`+quoted+`]}`)
		p.Goto("/console/approvals/" + id + "?whole")
		browsertest.Eval[any](p, copying)
		ambiguous := browsertest.Eval[bool](p, `[...document.querySelectorAll(".spaces")].some((e) => /×.*×|of spaces/.test(e.textContent + e.title))`)
		if got := copies(p, "a", 0, "text"); got != one && !ambiguous && one != "" {
			t.Errorf("%d: %q is copied as %q", n, one, got)
		}
		var list []string
		if got := copies(p, "b", 0, "text"); json.Unmarshal([]byte(got), &list) != nil || len(list) != 1 || list[0] != one && !ambiguous {
			t.Errorf("%d: %q in a list is copied as %q", n, one, got)
		}
	}
}
