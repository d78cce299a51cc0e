package cli

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-isatty"

	"policy-service/evaluation"
	"policy-service/pdp/internal/visible"
)

// Quoted is a text in which the words of others are in quotes, with escapes, as %q, JSON and policies write them; or a
// text that is to be copied, such as a command. A backslash in it stays one.
type Quoted string

// Lines are a text of several lines, which stay lines when they are printed; otherwise they are [Quoted].
type Lines string

// Shown is visible already, and the marks in it are ours.
type Shown string

// The colours of output, as ANSI has them.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
)

// Colour marks a text if a person looks at a terminal and does not object (https://no-color.org).
func (s Streams) Colour(code string, text any) Shown {
	text = visibleValue(text)
	if !IsTerminal(s.Out) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return Shown(fmt.Sprint(text))
	}
	return Shown(fmt.Sprintf("\x1b[%sm%s\x1b[0m", code, text))
}

// IsTerminal reports whether a person may be looking.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// visibleValues escapes invisible characters in the values of Printf, so that foreign text cannot steer the terminal.
func visibleValues(values []any) []any {
	all := make([]any, len(values))
	for n, v := range values {
		all[n] = visibleValue(v)
	}
	return all
}

func visibleValue(v any) any {
	switch v := v.(type) {
	case Shown:
		return v
	case Lines:
		return visible.QuotedLines(string(v))
	case Quoted:
		return visible.Quoted(string(v))
	case []byte: // JSON
		return visible.Quoted(string(v))
	}
	switch k := reflect.ValueOf(v).Kind(); {
	case reflect.Bool <= k && k <= reflect.Float64:
		return v
	case k == reflect.String:
		return visible.Text(fmt.Sprint(v))
	}
	return visible.Quoted(fmt.Sprint(v))
}

// Cut is the beginning of a foreign text, made visible, with a note of how much is left out.
func Cut(text string, most int) Shown {
	short, left := Shorten(text, most)
	if left == 0 {
		return Shown(visible.Text(text))
	}
	return Shown(visible.Text(short) + More(left))
}

// Shorten keeps at most so many characters, and says how many are left out.
func Shorten(text string, most int) (short string, left int) {
	if left = utf8.RuneCountInString(text) - most; left <= 0 {
		return text, 0
	}
	return string([]rune(text)[:most]), left
}

// More is the note at the end of a text of which so many characters are left out.
func More(left int) string { return fmt.Sprintf("… (and %s)", Plural(left, "more character")) }

// Shell quotes a word for sh, if it needs quotes.
func Shell(word string) string {
	special := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,:/@%", r)
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Plural counts in words that people read.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Counts says how many there are of each name, between two texts. It is "" if there is nothing to count.
func Counts[N int | int64](before string, of map[string]N, after string) string {
	all := make([]string, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%d %s", of[name], name))
	}
	if len(all) == 0 {
		return ""
	}
	return before + strings.Join(all, ", ") + after
}

// Time is a time for people.
func Time(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }

// TimeOr is a time for people, or none in its place.
func TimeOr(at time.Time, none string) string {
	if at.IsZero() {
		return none
	}
	return Time(at)
}

// Entity is an entity as people read it, and * for the unknown of a search.
func Entity(e evaluation.Ref) string {
	if e.Type == "" {
		return "*"
	}
	return e.Type + "/" + e.ID
}

// Position is the line and the column of a byte of a text.
func Position(text []byte, offset int) (line, column int) {
	return 1 + bytes.Count(text[:offset], []byte("\n")), offset - bytes.LastIndexByte(text[:offset], '\n')
}
