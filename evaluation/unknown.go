package evaluation

import (
	"fmt"
	"slices"
	"strings"
)

// The most that may be unknown of one request: so many places, with pointers of so many bytes. A policy sees
// all that lies below a place as unknown, so that few places say enough.
const (
	MaxUnknown        = 16
	MaxUnknownPointer = 256
)

// Unknown are the places of a request whose values are not known, because the question comes before them: which
// tools could be called, with whatever arguments? A request that has one asks what is possible, and not
// whether it is permitted; the answer is a [Possibility]. That is Impossible only if no values at these places can be
// permitted, as far as each policy by itself can tell. What the request has there is ignored.
//
// Make one with [UnknownAt]. One without places is not the same as none: all is known then, and the question
// is still what is possible.
type Unknown struct{ pointers []string }

// UnknownAt makes the places of JSON Pointers into a request in the AuthZEN shape. They lie in the properties of
// subject, action and resource, or in the context, or are /context/pdp/approved or /context/pdp/capability:
// what the PDP will know of the call. The error is an [*Error].
func UnknownAt(pointers ...string) (*Unknown, error) {
	if err := checkUnknown(pointers, "options", "unknown"); err != nil {
		return nil, err
	}
	return &Unknown{slices.Clone(pointers)}, nil
}

// Pointers are the places, in the order in which they were given. They are never nil if u is not.
func (u *Unknown) Pointers() []string {
	if u == nil {
		return nil
	}
	return append([]string{}, u.pointers...)
}

// Size is the length of the pointers.
func (u *Unknown) Size() (n int) {
	if u != nil {
		for _, pointer := range u.pointers {
			n += len(pointer)
		}
	}
	return n
}

// checkUnknown finds faults of the pointers of the list at a place.
func checkUnknown(pointers []string, at ...string) *Error {
	if len(pointers) > MaxUnknown {
		return beyond(pointerTo(at...), fmt.Sprintf("more than %d places are unknown", MaxUnknown), "name what lies above them")
	}
	for n, pointer := range pointers {
		here := pointerTo(append(slices.Clone(at), fmt.Sprint(n))...)
		if len(pointer) > MaxUnknownPointer {
			return beyond(here, fmt.Sprintf("a pointer of more than %d bytes", MaxUnknownPointer), "name what lies above that place")
		}
		if detail, try := unknowable(pointer); detail != "" {
			return newError(here, detail, try)
		}
	}
	return nil
}

const anyProperty = "name what it says besides, such as /subject/properties/NAME or /context/NAME"

// unknowable says why the value at a pointer cannot be unknown. If it can be, detail is empty.
func unknowable(pointer string) (detail, try string) {
	if !strings.HasPrefix(pointer, "/") || !escaped(pointer) {
		return "not a JSON Pointer into the request", anyProperty
	}
	tokens := Tokens(pointer)
	switch tokens[0] {
	case tuple[0], tuple[1], tuple[2]:
		if len(tokens) < 2 || tokens[1] != "properties" {
			return "types, ids and names must be known, and are all that this is", "name its properties, or one of them: /" + tokens[0] + "/properties/NAME"
		}
		return "", ""
	case tuple[3]:
		return unknowableContext(tokens[1:])
	}
	return "no part of a request that policies see", anyProperty
}

// unknowableContext is [unknowable] for a place below the context.
func unknowableContext(names []string) (detail, try string) {
	byPDP := func(name string) bool { return name == "approved" || name == "capability" }
	switch {
	case len(names) == 0:
		return "", ""
	case names[0] == "pdp":
		if len(names) == 2 && byPDP(names[1]) {
			return "", ""
		}
		return "only the PDP sets this member of the context, and knows it", "of context.pdp, name approved or capability"
	case names[0] == "action":
		return "only the PDP sets this member of the context", "name /action/properties"
	case Protocol(names[0]) || byPDP(names[0]):
		if byPDP(names[0]) {
			return "no policy sees this member of the context", "name /context/pdp/" + names[0]
		}
		return "no policy sees this member of the context", "leave it out"
	}
	return "", ""
}

// unknown reads the places that are unknown in the options at a path.
func (r *reader) unknown(options Object, path ...string) *Unknown {
	if !has(options, "unknown") {
		return nil
	}
	at := append(slices.Clone(path), "unknown")
	list, ok := r.member(options, at, false, Array, "an array of JSON Pointers")
	if !ok {
		return nil
	}
	pointers := make([]string, 0, list.Len())
	for n, v := range list.Elements {
		r.want(v.Kind() == String, "not a JSON Pointer, which is a string", append(slices.Clone(at), fmt.Sprint(n))...)
		pointers = append(pointers, v.Text())
	}
	if r.err == nil {
		r.err = checkUnknown(pointers, at...)
	}
	return &Unknown{pointers}
}
