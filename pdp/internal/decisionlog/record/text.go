package record

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
)

// The minimum and maximum length of [Filter.Text], in characters.
const (
	minText = 2
	maxText = 256
)

// ErrText is the error for a text that cannot be searched for.
var ErrText = fmt.Errorf("is not of %d to %d characters in UTF-8; give a word, or a few, of what you look for", minText, maxText)

// TextDays is how far back a text is searched for if a filter has no From.
const TextDays = 90

// Bounded returns the filter with a From of [TextDays] before To or now, if it searches for a text without a From. set reports
// whether From was added.
func (f Filter) Bounded(now time.Time) (bounded Filter, set bool) {
	if f.Text == "" || !f.From.IsZero() {
		return f, false
	}
	if !f.To.IsZero() && f.To.Before(now) {
		now = f.To
	}
	f.From = now.AddDate(0, 0, -TextDays).UTC()
	return f, true
}

// A Sieve filters the lines of a log one after the other. It is not safe for concurrent use.
//
// A line has a text if the text is in one of its strings, ignoring case, or in the name of a member below context or properties:
// these names are the caller's. All strings count, except the members in unsearched and the stand-ins of masked values. The parts
// that an item inherits from the record of its batch count as its own.
type Sieve struct {
	filter Filter
	// resolve parses a record with what it inherits. If it is nil, inherited parts are not searched.
	resolve func(line []byte) (Recorded, error)
	word    []byte // folded
	quoted  []byte // the word as JSON, folded
	kind    []byte // as in a line; nil if most records are of the kind
	folded  []byte // the current line

	// inherited caches, by batch and inherited members, whether these have the word: records of batches are large.
	inherited map[string]bool
}

// maxInherited is the number of answers that a Sieve keeps. A batch needs a few, and its items are stored together.
const maxInherited = 64

// NewSieve returns a Sieve for the lines of a log. resolve adds to an item what it inherits.
func NewSieve(f Filter, resolve func(line []byte) (Recorded, error)) *Sieve {
	s := f.newSieve()
	s.resolve = resolve
	return &s
}

func (f Filter) newSieve() Sieve {
	quoted := quote(nil, f.Text)
	s := Sieve{filter: f, word: fold(nil, []byte(f.Text)), quoted: fold(nil, quoted[1:len(quoted)-1]), inherited: map[string]bool{}}
	if f.Kind != "" && f.Kind != format.KindDecision {
		s.kind = quote([]byte(`"kind":`), f.Kind)
	}
	return s
}

// Passes is [Filter.Matches] that also searches the inherited parts of an item.
func (s *Sieve) Passes(line []byte) (bool, error) {
	if s.filter.MatchesAll() {
		return true, nil
	}
	if (s.filter.Text != "" || s.kind != nil) && !s.mayPass(line) {
		return false, nil
	}
	r, err := Parse(line)
	if err != nil || !s.filter.Passes(r) {
		return false, err
	}
	if s.filter.Text == "" {
		return true, nil
	}
	has, err := s.containsWord(line)
	if err == nil && !has {
		has, err = s.inheritsWord(r)
	}
	return has, err
}

// mayPass rejects most lines without parsing them. It compares the tenant first: for a record that the reader may not see, the time
// must not depend on whether it has a word. A line that is not a JSON object is left to [Parse].
func (s *Sieve) mayPass(line []byte) bool {
	if s.filter.Tenants != nil {
		var of struct {
			Tenant string `json:"tenant"`
		}
		if readInto(&of, line) == nil && !slices.Contains(s.filter.Tenants, of.Tenant) {
			return false
		}
	}
	if !jsontext.Value(line).IsValid() || line[0] != '{' {
		return true
	}
	if s.kind != nil && !bytes.Contains(line, s.kind) {
		return false
	}
	s.folded = fold(s.folded[:0], line)
	return bytes.Contains(s.folded, s.quoted) ||
		bytes.Contains(line, []byte(`\u`)) || bytes.Contains(line, []byte(`\/`)) || // escapes of what another writer would not escape
		bytes.Contains(line, []byte(`,"inherits":[`))
}

// inheritsWord reports whether the inherited parts of an item have the word.
func (s *Sieve) inheritsWord(r *Recorded) (bool, error) {
	id := r.BatchID()
	if s.resolve == nil || id == "" {
		return false, nil
	}
	about := strings.Join(append([]string{r.Tenant, id}, r.Inherits...), "\x00")
	if has, known := s.inherited[about]; known {
		return has, nil
	}
	whole, err := s.resolve(r.Line)
	if err != nil {
		return false, err
	}
	has, err := s.containsWord(whole.Asked)
	if err != nil {
		return false, err
	}
	if len(s.inherited) >= maxInherited {
		clear(s.inherited)
	}
	s.inherited[about] = has
	return has, nil
}

// unsearched are the members of a record that nobody searches: times, digests, signatures, and the list of masked places.
var unsearched = []string{"time", "now", "masked", "rest", "bundle", "salt", "seal", "filed_at", "expires_at", "proof"}

// containsWord reports whether JSON text has the word.
func (s *Sieve) containsWord(text []byte) (bool, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	for own := 0; ; { // the depth at which names become the caller's; 0 if not inside such a member
		token, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("not a record: %w", err)
		}
		depth := d.StackDepth()
		if depth < own {
			own = 0
		}
		if token.Kind() != '"' {
			continue
		}
		value := token.String()
		if kind, n := d.StackIndex(depth); kind == '{' && n%2 == 1 && own == 0 {
			switch {
			case slices.Contains(unsearched, value):
				if err := d.SkipValue(); err != nil {
					return false, fmt.Errorf("not a record: %w", err)
				}
			case value == "context" || value == "properties":
				own = depth + 1
			}
			continue
		}
		if s.textHasWord(value) {
			return true, nil
		}
	}
}

// textHasWord reports whether a text has the word outside of the stand-ins of masked values.
func (s *Sieve) textHasWord(text string) bool {
	for {
		part, rest, more := cutMask(text)
		if s.folded = fold(s.folded[:0], []byte(part)); bytes.Contains(s.folded, s.word) {
			return true
		}
		if !more {
			return false
		}
		text = rest
	}
}

// digestLength is the length of the digest behind [evaluation.MaskPrefix].
const digestLength = 22

// cutMask splits a text around its first stand-in of a masked value.
func cutMask(text string) (before, after string, found bool) {
	for from := 0; ; {
		at := strings.Index(text[from:], evaluation.MaskPrefix)
		if at < 0 {
			return text, "", false
		}
		at += from
		from = at + len(evaluation.MaskPrefix)
		if end := from + digestLength; end <= len(text) {
			if _, err := base64.RawURLEncoding.DecodeString(text[from:end]); err == nil {
				return text[:at], text[end:], true
			}
		}
	}
}

// fold appends a text in a form that ignores case: each character becomes the lowest one that differs from it only by case.
func fold(to, text []byte) []byte {
	to = slices.Grow(to, len(text))
	for len(text) > 0 {
		if b := text[0]; b < utf8.RuneSelf {
			to, text = append(to, upperASCII[b]), text[1:]
			continue
		}
		c, n := utf8.DecodeRune(text)
		first := c
		for next := unicode.SimpleFold(c); next != c; next = unicode.SimpleFold(next) {
			first = min(first, next)
		}
		to, text = utf8.AppendRune(to, first), text[n:]
	}
	return to
}

// upperASCII maps an ASCII character to the lowest one that differs from it only by case.
var upperASCII = func() (all [utf8.RuneSelf]byte) {
	for c := range all {
		if all[c] = byte(c); 'a' <= c && c <= 'z' {
			all[c] -= 'a' - 'A'
		}
	}
	return all
}()
