package pdp

import (
	"strconv"
	"strings"
)

// Unknown is the error of [PDP.Evaluate] if the decision hangs on values that are hidden: two
// values that can have stood in one of these places give two decisions.
type Unknown struct {
	// Paths are the places, JSON Pointers into the request in the AuthZEN shape, in order.
	Paths []string
	// Policies are the ids of the policies that read them, in order.
	Policies []string
}

// Error implements error.
func (u *Unknown) Error() string {
	text := "the decision depends on what is masked at " + quoteAll(u.Paths)
	if len(u.Policies) > 0 {
		text += "; the policies that read it: " + quoteAll(u.Policies)
	}
	return text
}

// quoteAll quotes names, because a caller chose them.
func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for n, name := range names {
		quoted[n] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}
