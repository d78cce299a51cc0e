package evaluation

import "strings"

// Error is the fault of a request, as facts: the place (a JSON Pointer into the
// body that was sent), the fault, and a remedy. It never quotes a value.
type Error struct {
	// TooLarge is set where the body as a whole exceeds its limit (HTTP 413);
	// every other Error is a malformed request (HTTP 400).
	TooLarge bool
	// Limit is set where a part of the body exceeds one of the [Limits].
	Limit bool
	// Pointer is the JSON Pointer (RFC 6901) of the offending value; "" is the
	// whole body.
	Pointer string
	// Detail is the fault there.
	Detail string
	// Try is the remedy; it may be empty.
	Try string
}

// Error makes the one-line text of the facts.
func (e *Error) Error() string {
	text := e.Detail
	if e.Pointer != "" {
		text = e.Pointer + ": " + text
	}
	if e.Try != "" {
		text += "; " + e.Try
	}
	return text
}

// maxPointer bounds the pointer an error repeats: a caller's member name may be
// a megabyte long, and an error need not be.
const maxPointer = 512

func newError(pointer, detail, try string) *Error {
	return &Error{Pointer: short(pointer), Detail: detail, Try: try}
}

func short(pointer string) string {
	if len(pointer) <= maxPointer {
		return pointer
	}
	// Neither a character nor an escape is cut in two: it stays a pointer.
	return strings.TrimSuffix(strings.ToValidUTF8(pointer[:maxPointer], ""), "~") + "…"
}

// Malformed returns an Error at the pointer made of the given reference tokens.
func Malformed(detail, try string, at ...string) *Error {
	return newError(pointerTo(at...), detail, try)
}

// beyond returns an Error of a part that exceeds a limit.
func beyond(pointer, detail, try string) *Error {
	err := newError(pointer, detail, try)
	err.Limit = true
	return err
}

// MisfitAt returns a Mismatch at the pointer made of the given reference tokens.
func MisfitAt(detail string, at ...string) Mismatch {
	place := pointerTo(at...)
	return Mismatch{Pointer: short(place), Detail: detail, Place: place}
}

func pointerTo(tokens ...string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		_, _ = pointerEscaper.WriteString(&b, t)
	}
	return b.String()
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")
