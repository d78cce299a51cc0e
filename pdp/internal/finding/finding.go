// Package finding describes what is found by looking at a part of a program, which changes nothing there. Each part returns its
// own findings from a method Findings; the doctors and config check print them.
package finding

import (
	"context"
	"fmt"
	"strings"
)

// Finding is the result of one look.
type Finding struct {
	// Check is the part that was looked at, in one word.
	Check string `json:"check"`
	// Bites is set if something is to be done.
	Bites bool `json:"bites"`
	// Message is the result, and if it bites, its consequence.
	Message string `json:"message"`
	// Try is the remedy; empty if nothing bites.
	Try string `json:"try,omitzero"`
	// Key is the key of the configuration that it is about, "" if it is about none.
	Key string `json:"-"`
}

// Looked is a part that can be looked at.
type Looked interface {
	// Findings returns what is well and what bites, always in the same order.
	Findings(ctx context.Context) List
}

// Of returns the findings of parts, in their order.
func Of(ctx context.Context, parts ...Looked) (all List) {
	for _, one := range parts {
		all = append(all, one.Findings(ctx)...)
	}
	return all
}

// List gathers findings.
type List []Finding

// OK adds a finding that is good.
func (l *List) OK(check, format string, args ...any) {
	*l = append(*l, Finding{Check: check, Message: fmt.Sprintf(format, args...)})
}

// Bites adds a finding with its remedy.
func (l *List) Bites(check, try, format string, args ...any) {
	*l = append(*l, Finding{Check: check, Bites: true, Message: fmt.Sprintf(format, args...), Try: try})
}

// Wrong adds a finding for each line of an error, which is "mistake; remedy". Without an error it adds none.
func (l *List) Wrong(check string, err error) { l.WrongKey(check, "", err) }

// WrongKey does as [List.Wrong], about a key of the configuration.
func (l *List) WrongKey(check, key string, err error) {
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		message, try, _ := strings.Cut(strings.TrimSpace(line), "; ")
		*l = append(*l, Finding{Check: check, Bites: true, Message: message, Try: try, Key: key})
	}
}

// Text returns the message, and the remedy if there is one.
func (f Finding) Text() string {
	if f.Try == "" {
		return f.Message
	}
	return f.Message + "; " + f.Try
}
