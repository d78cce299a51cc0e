package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/mattn/go-isatty"
)

// colour marks text with an ANSI colour where a person looks at a terminal and
// does not object (https://no-color.org).
func colour(w io.Writer, code string, text any) coloured {
	text = shownOne(text)
	f, ok := w.(*os.File)
	if !ok || !isatty.IsTerminal(f.Fd()) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return coloured(fmt.Sprint(text))
	}
	return coloured(fmt.Sprintf("\x1b[%sm%s\x1b[0m", code, text))
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// printJSON writes v as one line, members in a fixed order, durations in nanoseconds. Names of files may hold bytes that
// are not UTF-8; they become U+FFFD. What cannot be seen is in strings alone, and is escaped there as JSON does.
func (s streams) printJSON(v any) error {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsonv1.FormatDurationAsNano(true))
	if err != nil {
		return fmt.Errorf("cannot write the answer as JSON: %w; try it without --json", err)
	}
	s.print("%s", b)
	return nil
}

// shell quotes a word for sh, where it needs it.
func shell(word string) string {
	plain := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,:/@%", r)
	}
	if word != "" && !strings.ContainsFunc(word, plain) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// plural counts in words people read.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
