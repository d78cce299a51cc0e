// Package page draws the pages of the console: a view goes in, HTML comes out. Start with [Render], and with the views:
// [Login], [Inbox], [Request], [Capabilities], [Capability], [Message]. The pages load [Style], [Icon] and [Script].
//
// Words of a request, a policy or a person enter a view only as [Text], which is harmless and is no other than it looks.
// All that is not Text is ours, and has a type that says why it is safe. No type of html/template that switches its
// escaping off is in this package, and no page has a style or a script of its own.
//
// The package knows nothing of HTTP, sessions or the API, and reads no clock.
package page

import (
	"bytes"
	"embed"
	"html/template"
	"strconv"
	"strings"
	"sync"
)

// Style is the style sheet of every page, and Icon the mark of the console. Script makes pages more convenient. No page needs
// Script.
var (
	//go:embed style.css
	Style string
	//go:embed icon.svg
	Icon string
	//go:embed console.js
	Script string
)

//go:embed templates/*.html
var files embed.FS

// templates are parsed when the first page is drawn: most commands draw none.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{"class": classOf}).ParseFS(files, "templates/*.html"))
})

// View is the content of a page.
type View interface{ template() string }

// Render draws a view. It returns all of the page or an error, never a half of it.
func Render(v View) ([]byte, error) {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, v.template(), v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Label is words of ours: a constant of the console, never a text from elsewhere.
type Label string

// Href is a link within the console. It is made of paths of the console, of ids ([ID]) and of encoded queries.
type Href string

// Token is a secret of a form, made by the console.
type Token string

// Typed is a text that the person at the page typed, or has in the address of the page. It stands only in the form field that
// it was typed into, where a browser shows it and does nothing else with it.
type Typed string

// ID is the id of an approval request, a capability or a record, as this service makes them. Nothing else becomes an ID, so it can
// stand in links and titles.
type ID struct{ id string }

const longestID = 64

// IDOf is the ID of a text, and the zero ID if the text is none.
func IDOf(text string) ID {
	if len(text) > longestID {
		return ID{}
	}
	for _, c := range []byte(text) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_') {
			return ID{}
		}
	}
	return ID{text}
}

// RecordIDOf is the ID of the id of a record: that of an item of a batch has its number behind a dot.
func RecordIDOf(text string) ID {
	batch, item, dotted := strings.Cut(text, ".")
	of := IDOf(batch)
	if !dotted || of.None() {
		return of
	}
	if _, err := strconv.ParseUint(item, 10, 31); err != nil && item != "possible" {
		return ID{}
	}
	return ID{text}
}

// String is the id.
func (i ID) String() string { return i.id }

// None reports if there is no id.
func (i ID) None() bool { return i.id == "" }
