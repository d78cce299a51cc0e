package cedartext_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/internal/cedartext"
)

// A text that is half written, or none of Cedar at all, is read to its end: what is no token keeps nobody from what follows.
func TestLex(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`@id("a\"b")`:               `Sign:@ Name:id Sign:( Text:"a\"b" Sign:)`,
		"a // b \r\n// c":           "Name:a Space:_ Comment://_b_\r Space:\n Comment://_c",
		"a/* b\n*/c":                "Name:a Comment:/*_b\n*/ Name:c",
		"/*/ a":                     "Unknown:/*/_a",
		"App::Tool::\"x\".a":        `Name:App Sign::: Name:Tool Sign::: Text:"x" Sign:. Name:a`,
		"1<=2==3>=4!=5||6&&!7":      "Number:1 Sign:<= Number:2 Sign:== Number:3 Sign:>= Number:4 Sign:!= Number:5 Sign:|| Number:6 Sign:&& Sign:! Number:7",
		"12ab_3":                    "Number:12 Name:ab_3",
		"a = b | c & d / e # é":     "Name:a Space:_ Unknown:= Space:_ Name:b Space:_ Unknown:| Space:_ Name:c Space:_ Unknown:& Space:_ Name:d Space:_ Unknown:/ Space:_ Name:e Space:_ Unknown:# Space:_ Unknown:é",
		"resource.labels.\nx":       "Name:resource Sign:. Name:labels Sign:. Space:\n Name:x",
		"\"open, context\nwhen {":   "Unknown:\"open,_context Space:\n Name:when Space:_ Sign:{",
		"\"ends in \\\nwhen":        "Unknown:\"ends_in_\\ Space:\n Name:when",
		"\ufeffpermit \x00\xff\xc3": "Unknown:\ufeff Name:permit Space:_ Unknown:\x00 Unknown:\xff Unknown:\xc3",
		"":                          "",
	} {
		var got []string
		for _, token := range cedartext.Lex(text) {
			got = append(got, fmt.Sprintf("%s:%s", kinds[token.Kind], strings.ReplaceAll(token.Text, " ", "_")))
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
		whole(t, text)
	}
}

var kinds = map[cedartext.Kind]string{
	cedartext.Space: "Space", cedartext.Comment: "Comment", cedartext.Name: "Name", cedartext.Number: "Number",
	cedartext.Text: "Text", cedartext.Sign: "Sign", cedartext.Unknown: "Unknown",
}

// whole: the tokens joined are the text, and each is where it says.
func whole(t *testing.T, text string) {
	t.Helper()
	at := cedartext.Position{Line: 1, Column: 1}
	for n, token := range cedartext.Lex(text) {
		before := text[:at.Offset]
		line := before[strings.LastIndexByte(before, '\n')+1:]
		switch {
		case token.Text == "" || !strings.HasPrefix(text[at.Offset:], token.Text):
			t.Fatalf("token %d of %q is %q", n, text, token.Text)
		case token.Position != at || at.Line != 1+strings.Count(before, "\n"):
			t.Fatalf("token %d of %q is said to be at %+v", n, text, token.Position)
		case utf8.ValidString(text) && at.Column != 1+utf8.RuneCountInString(line):
			t.Fatalf("token %d of %q is said to be in column %d of %q", n, text, at.Column, line)
		}
		at = token.End()
	}
	if at.Offset != len(text) {
		t.Fatalf("the tokens of %q end at %d", text, at.Offset)
	}
}

// A policy begins for cedar-go where its first word is, and it has as many policies as there are semicolons.
func TestLexReadsAsCedarGo(t *testing.T) {
	t.Parallel()
	for _, text := range append(repository(t), generated(300, making.scattered)...) {
		list, err := cedar.NewPolicyListFromBytes("", []byte(text))
		must(t, err)
		var begin []cedartext.Position
		fresh := true
		for _, token := range cedartext.Lex(text) {
			if token.Trivia() {
				continue
			}
			if fresh {
				begin = append(begin, token.Position)
			}
			fresh = token.Text == ";"
		}
		if len(begin) != len(list) {
			t.Fatalf("%d policies, and cedar-go reads %d, of\n%s", len(begin), len(list), text)
		}
		for n, p := range list {
			if at := p.Position(); begin[n] != (cedartext.Position{Offset: at.Offset, Line: at.Line, Column: at.Column}) {
				t.Errorf("policy %d begins at %+v, and cedar-go says at %+v, in\n%s", n, begin[n], at, text)
			}
		}
	}
}
