package mask

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// pattern has the segments of a JSON Pointer (RFC 6901) into a request in its canonical form. The segment * matches any
// member or element.
type pattern []string

// Check checks patterns, without a key.
func Check(patterns []string) error {
	_, err := New(make([]byte, KeySize), patterns)
	return err
}

var (
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
)

func parsePattern(text string) (pattern, error) {
	rest, ok := strings.CutPrefix(text, "/")
	if !ok || badEscape.MatchString(text) {
		return nil, fmt.Errorf("the mask %q is no JSON Pointer; begin with a slash, and write ~0 for ~ and ~1 for / in a name", text)
	}
	p := pattern(strings.Split(rest, "/"))
	for n := range p {
		p[n] = unescape.Replace(p[n])
	}
	if !p.reaches() {
		// Without this error, the operator would learn only from the log that the pattern masks nothing.
		return nil, fmt.Errorf("the mask %q addresses nothing that is masked; begin with /context/NAME, or with /subject, /resource or /action and properties/NAME; types, ids and action names stay as they are", text)
	}
	return p, nil
}

// badEscape matches a ~ that is no escape of a JSON Pointer.
var badEscape = regexp.MustCompile(`~([^01]|$)`)

// reaches reports whether a pattern can address a value in the four objects of a request that a caller fills freely. No
// pattern addresses such an object itself, which stays an object; /context/* addresses all its members.
func (p pattern) reaches() bool {
	if len(p) >= 2 && (p[0] == "context" || p[0] == "*") && !(p[0] == "*" && len(p) == 2) {
		return true
	}
	return len(p) >= 3 && (p[1] == "properties" || p[1] == "*") &&
		slices.Contains([]string{"subject", "action", "resource"}, p[0])
}

// ofConstraints returns patterns for the constraints that a new capability is to put on arguments. They mask the
// arguments that p masks in a call: a constraint has an argument in its member value, or in the elements of values.
func (p pattern) ofConstraints() []pattern {
	fits := func(n int, name string) bool { return p[n] == "*" || p[n] == name }
	if len(p) < 4 || !fits(0, "context") || !fits(1, "arguments") {
		return nil
	}
	return []pattern{
		slices.Concat(p[:3], pattern{"value"}, p[3:]), slices.Concat(p[:3], pattern{"values", "*"}, p[3:]),
	}
}

// at is a place in a request: the remaining segments of each pattern that matches the segments up to there.
type at []pattern

// in returns the place one segment further down, and reports whether a pattern ends there.
func (a at) in(segment string) (inner at, whole bool) {
	for _, p := range a {
		if p[0] != "*" && p[0] != segment {
			continue
		}
		if len(p) == 1 {
			return nil, true
		}
		inner = append(inner, p[1:])
	}
	return inner, false
}

// into returns the place several segments further down.
func (a at) into(segments []string) at {
	for _, s := range segments {
		a, _ = a.in(s)
	}
	return a
}
