package page_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/net/html"

	"policy-service/pdp/internal/console/page"
	"policy-service/pdp/internal/visible/hostile"
)

var views = []page.View{page.Login{}, page.Message{}, page.Inbox{}, page.Request{}, page.Capabilities{}, page.Capability{}, page.Decisions{}, page.Decision{}}

// ours are the types that hold no text of others, or only where a browser does nothing with it.
var ours = []reflect.Type{
	reflect.TypeFor[page.Text](), reflect.TypeFor[page.Typed](), reflect.TypeFor[page.Label](), reflect.TypeFor[page.Href](),
	reflect.TypeFor[page.Token](), reflect.TypeFor[page.ID](), reflect.TypeFor[page.Moment](), reflect.TypeFor[page.Status](),
	reflect.TypeFor[page.Change](), reflect.TypeFor[page.Field](), reflect.TypeFor[bool](), reflect.TypeFor[int](),
	reflect.TypeFor[time.Duration](),
}

// What others wrote can enter a view as Text alone.
func TestViewsHoldNoStrings(t *testing.T) {
	var walk func(at string, of reflect.Type)
	walk = func(at string, of reflect.Type) {
		switch {
		case slices.Contains(ours, of):
		case of.Kind() == reflect.Slice:
			walk(at+"[]", of.Elem())
		case of.Kind() == reflect.Struct:
			for f := range of.Fields() {
				walk(at+"."+f.Name, f.Type)
			}
		default:
			t.Errorf("%s is a %s; give it a type of this package that says why it is safe", at, of)
		}
	}
	for _, v := range views {
		walk(reflect.TypeOf(v).Name(), reflect.TypeOf(v))
	}
}

// Nothing switches the escaping off, and no page has a script or a style of its own.
func TestNoRawMarkup(t *testing.T) {
	for pattern, never := range map[string][]string{
		"*.go":             {"template.HTML", "template.JS", "template.CSS", "template.URL", "template.Srcset", "text/template"},
		"templates/*.html": {" style=", "<style", " on", "javascript:", "http:", "https:", "//", "<img", "<iframe", "<object"},
		"style.css":        {"url(", "@import", "http", "expression"},
		"console.js":       {"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "XMLHttp", "Beacon", "submit("},
	} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range never {
				if !strings.HasSuffix(name, "_test.go") && strings.Contains(markup(name, string(text)), part) {
					t.Errorf("%s has %s", name, part)
				}
			}
		}
	}
	if n := strings.Count(page.Script, "fetch("); n != 1 || !strings.Contains(page.Script, "fetch(path, { headers: { Accept:") {
		t.Errorf("the script asks in %d places, and not for how many wait alone", n)
	}
	if len(page.Script) > 8<<10 {
		t.Errorf("the script has %d bytes", len(page.Script))
	}
}

// markup is a template without what people read, so that words are no attributes.
func markup(name, text string) string {
	if filepath.Ext(name) != ".html" {
		return text
	}
	var b strings.Builder
	for part := range strings.SplitSeq(text, "<") {
		tag, _, _ := strings.Cut(part, ">")
		b.WriteString("<" + tag + ">")
	}
	return b.String()
}

// turns take the branches of the templates. Each text has one of them in each view.
const turns = 8

// longText is how much of a text the fields have: enough of it for lines and texts to be cut.
const longText = 1000

// filled is a view in which every text is the given one. Each turn takes other branches of the templates.
func filled(v page.View, text string, turn int) page.View {
	in, shown := reflect.New(reflect.TypeOf(v)).Elem(), []page.Text{page.Of(text), page.Line(text)}[turn%2]
	var fill func(in reflect.Value)
	fill = func(in reflect.Value) {
		switch at := in.Addr().Interface().(type) {
		case *page.Text:
			*at = shown
		case *page.Typed:
			*at = page.Typed(text)
		case *page.Label:
			*at = "label"
		case *page.Href:
			*at = "/console/elsewhere"
		case *page.Token:
			*at = "token"
		case *page.ID:
			*at = page.IDOf("01a1fdbe")
		case *page.Moment:
			*at = page.MomentOf(now, now)
		case *page.Status:
			*at = []page.Status{page.Unknown, page.Pending, page.Approved, page.Denied, page.Expired, page.Cancelled, page.UsedUp, page.Revoked}[turn%8]
		case *page.Change:
			*at = []page.Change{page.Uncompared, page.Same, page.Differs, page.New, page.Gone}[turn%5]
		case *page.Field:
			*at = []page.Field{page.NoField, page.ReasonField, page.ToReasonField, page.PersonField}[turn%4]
		case *bool:
			*at = turn%2 == 0
		case *int:
			*at = turn
		case *time.Duration:
			*at = time.Duration(turn) * time.Minute
		case *[]page.Step:
			if turn%3 > 0 { // a row has steps, or what was there
				*at = make([]page.Step, 2)
				fill(in.Index(0))
				fill(in.Index(1))
			}
		case *[]page.Part:
			if turn%2 > 0 { // parts of a value differ, or all of it
				*at = make([]page.Part, 2)
				fill(in.Index(0))
				fill(in.Index(1))
			}
		default:
			if in.Kind() == reflect.Slice {
				in.Set(reflect.MakeSlice(in.Type(), 2, 2))
				for n := range in.Len() {
					fill(in.Index(n))
				}
				return
			}
			for n := range in.NumField() {
				fill(in.Field(n))
			}
		}
	}
	fill(in)
	return in.Interface().(page.View)
}

// marks are the elements that draw a text and the notes about it.
func isMark(n *html.Node) bool {
	class := ""
	for _, a := range n.Attr {
		if a.Key == "class" {
			class = a.Val
		}
	}
	switch n.Data {
	case "span":
		return slices.Contains([]string{"esc", "spaces", "alike", "aside", "odd"}, class)
	case "bdi", "bdo":
		return class == "text"
	case "details":
		return class == "more"
	case "summary":
		return n.Parent.Data == "details" && isMark(n.Parent)
	}
	return false
}

// skeleton is all of a page but texts: its elements with their attributes, in order. Of the values that people see or
// typed only the name of the attribute counts.
func skeleton(t *testing.T, page string) (all []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.CommentNode {
			all = append(all, "<!-- "+n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		if isMark(n) {
			for _, a := range n.Attr {
				if !slices.Contains([]string{"class", "title", "dir"}, a.Key) {
					all = append(all, fmt.Sprintf("mark with %s", a.Key))
				}
			}
			continue
		}
		line := n.Data
		for _, a := range n.Attr {
			if line += " " + a.Key; a.Key != "value" || n.Data == "button" {
				line += "=" + a.Val
			}
		}
		all = append(all, line)
	}
	return all
}

// No text makes an element or an attribute, whatever it is and wherever it stands, and no text disappears.
func TestHostileTexts(t *testing.T) {
	for _, v := range views {
		for turn := range turns {
			t.Run(fmt.Sprintf("%T/%d", v, turn), func(t *testing.T) {
				t.Parallel()
				want := skeleton(t, drawn(t, filled(v, "harmless", turn)))
				for n, text := range hostile.Texts() {
					if text == "" || n%turns != turn || testing.Short() && n%(2*turns) != turn { // what is not there may be left out
						continue
					}
					text = text[:min(len(text), longText)]
					if got := skeleton(t, drawn(t, filled(v, text, turn))); !slices.Equal(got, want) {
						t.Fatalf("%.100q:\n%s\ninstead of\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
				}
			})
		}
	}
}

// What is sent as JSON is the same: names and values make no element.
func TestHostileMembers(t *testing.T) {
	t.Parallel()
	of := func(text string) string {
		name, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		object := fmt.Appendf(nil, `{%s: %[1]s, "in": {%[1]s: [%[1]s, 7]}}`, name)
		return drawn(t, page.Request{Sent: []page.Table{page.Members("Arguments", object, nil)}})
	}
	want := skeleton(t, of("harmless"))
	for _, text := range hostile.UTF8() {
		text = strings.ToValidUTF8(text[:min(len(text), longText)], "")
		if got := skeleton(t, of(text)); !slices.Equal(got, want) {
			t.Fatalf("%.100q:\n%s", text, strings.Join(got, "\n"))
		}
	}
}
