package toolschema

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"policy-service/evaluation"
)

// follow reads the target of a reference. It must be in the same document. Other readers ignore what stands beside it, or
// take it as well: either way the value is one that the target takes.
func (r *reader) follow(ref evaluation.Value, at string, depth int) (*shape, bool) {
	fragment, inside := strings.CutPrefix(ref.Text(), "#")
	pointer, err := url.PathUnescape(fragment)
	switch {
	case ref.Kind() != evaluation.String || !inside || err != nil || pointer != "" && pointer[0] != '/':
		return r.leave(at, "a reference that leads out of the definition, or by a name")
	case r.moved:
		return r.leave(at, "a reference in a schema of which a part has an address of its own ($id)")
	case slices.Contains(r.following, pointer):
		return r.leave(at, "a schema within itself")
	}
	target, found := r.root.Value(), true
	for _, token := range evaluation.Tokens(pointer) {
		if target, found = below(target, token); !found {
			return r.leave(at, "a reference to what is not there")
		}
	}
	r.following = append(r.following, pointer)
	defer func() { r.following = r.following[:len(r.following)-1] }()
	return r.read(target, "/inputSchema"+pointer, depth)
}

// below is the value at one step of a JSON Pointer.
func below(v evaluation.Value, token string) (evaluation.Value, bool) {
	if v.Kind() == evaluation.Map {
		return v.Object().Get(token)
	}
	at, err := strconv.Atoi(token)
	if v.Kind() != evaluation.Array || err != nil {
		return evaluation.Value{}, false
	}
	for n, e := range v.Elements {
		if n == at {
			return e, true
		}
	}
	return evaluation.Value{}, false
}
