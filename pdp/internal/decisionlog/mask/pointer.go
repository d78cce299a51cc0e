package mask

import (
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Pointer masks a JSON Pointer into the request that was sent: it masks each segment. The pointer ends at a value that is
// masked whole, because the names inside that value are not on record. A name that the recorded request lacks becomes its
// digest, because it may be anything, such as a key that was sent in the place of a name. Secrets are sought in unescaped,
// whole names; of a pointer that ends in … only the beginning is kept.
//
// place is the same pointer into the request, of which at least the end is equal, or "" if it is unknown. If place is known,
// a name that was not sent is one that the schema declares.
func (k *Masking) Pointer(pointer, place string) string {
	segments := strings.Split(pointer, "/")
	var end int
	if strings.HasSuffix(pointer, cut) {
		end = min(2, len(segments)-1)
	} else { // the pointer is short, and so is the place
		end = len(segments) - k.masker.below(place)
	}
	segments = segments[:max(1, end)]
	for n, segment := range segments {
		name := unescape.Replace(segment)
		if n == 0 && name == "" || slices.Contains(words, name) || evaluation.Protocol(name) || isIndex(name) {
			continue
		}
		masked, ok := k.text(name, nil)
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

// words are names of the protocol, which are no secrets.
var words = []string{
	"subject", "action", "resource", "context", "type", "id", "name", "properties", "evaluations", "options", "page",
	"tenant_id", "actor", "actor_id", "actor_type", "roles", "department_id", "labels", "purpose",
	"agent", "on_behalf_of", "requester", "arguments", "continues", "decision", "round", "pdp", "unknown", "evaluations_semantic", "capability", "person",
	"__entity", "__extn",
}

// isIndex reports whether a segment can be the index of an element. Arrays have less than 10,000 elements.
func isIndex(segment string) bool {
	return segment != "" && len(segment) <= 4 && strings.Trim(segment, "0123456789") == ""
}

// shows reports whether the record holds a member of that name.
func (k *Masking) shows(name string) bool {
	if k.shown == nil {
		k.shown = map[string]bool{}
		for _, o := range objects(&k.Request) {
			k.addNames(o.Value())
		}
	}
	return k.shown[name] || k.beside != nil && k.beside.shows(name)
}

// addNames adds the names of all members in v to k.shown.
func (k *Masking) addNames(v evaluation.Value) {
	for name, member := range v.Object().All {
		k.shown[name] = true
		k.addNames(member)
	}
	for _, e := range v.Elements {
		k.addNames(e)
	}
}
