package mask

import (
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Pointer is a JSON Pointer into what was sent, as a record has it: each segment without
// secrets. It ends at a value that is masked whole, whose inner names nobody sees. A name
// that the request on record does not hold is the caller's alone, and anything: a key that
// was sent where a name belongs. It becomes its digest. A name is looked at as it was sent:
// escaped, or cut, a secret in it would not be found, so of a pointer that ends in … only
// its beginning is left. Place is the pointer into the request, of which at least the end
// is the same; where it is known, a name that was not sent is one that the schema declares.
// "" is where that is not known.
func (k *Masking) Pointer(pointer, place string) string {
	segments := strings.Split(pointer, "/")
	var end int
	if strings.HasSuffix(pointer, cut) {
		end = min(2, len(segments)-1)
	} else { // which is short, and so is the place
		end = len(segments) - k.masker.below(place)
	}
	segments = segments[:max(1, end)]
	for n, segment := range segments {
		name := unescape.Replace(segment)
		if n == 0 && name == "" || vocabulary(name) || isIndex(name) {
			continue
		}
		masked, ok := k.text(name)
		if !ok || place == "" && !k.shows(masked) {
			masked = k.masker.digestOfText(name)
		}
		segments[n] = escape.Replace(masked)
	}
	if strings.HasSuffix(pointer, cut) {
		segments = append(segments, cut)
	}
	return strings.Join(segments, "/")
}

// cut ends a pointer that was too long to be repeated.
const cut = "…"

// words are the names that the protocol gives.
var words = []string{
	"subject", "action", "resource", "context", "type", "id", "name", "properties", "evaluations", "options", "page",
	"tenant_id", "actor", "actor_id", "actor_type", "roles", "department_id", "labels", "purpose",
	"agent", "on_behalf_of", "arguments", "pdp", "unknown", "evaluations_semantic", "capability", "person", "__entity", "__extn",
}

func vocabulary(name string) bool { return slices.Contains(words, name) || evaluation.Protocol(name) }

// isIndex reports whether a segment is the place of an element: arrays are not longer.
func isIndex(segment string) bool {
	return segment != "" && len(segment) <= 4 && strings.Trim(segment, "0123456789") == ""
}

// shows reports whether the record shows a member of that name.
func (k *Masking) shows(name string) bool {
	return k.names()[name] || k.beside != nil && k.beside.shows(name)
}

// names are those of the members of the request as it is masked.
func (k *Masking) names() map[string]bool {
	if k.shown == nil {
		k.shown = map[string]bool{}
		request := k.Request()
		for _, o := range objects(&request) {
			k.showNames(o.Value())
		}
	}
	return k.shown
}

func (k *Masking) showNames(v evaluation.Value) {
	for name, member := range v.Object().Members {
		k.shown[name] = true
		k.showNames(member)
	}
	for _, e := range v.Elements {
		k.showNames(e)
	}
}
