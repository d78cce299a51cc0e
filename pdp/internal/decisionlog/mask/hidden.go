package mask

import (
	"slices"
	"strings"

	"policy-service/evaluation"
)

// The list of hidden places is a part of the record, so it is bounded: an array may have thousands of masked elements,
// and the name of a member may be half a megabyte long.
const (
	maxHidden = 64 // places
	// In bytes of all pointers. Each item of a batch has a list of its own, and the records of a batch may take only so
	// much in all; see batch.go of package recorder.
	maxHiddenBytes       = 8 << 10
	maxHiddenBytesOfItem = 512
	entryFrame           = len(`{"at":"","type":"string","removed":true},`)
)

// mask masks the request.
func (k *Masking) mask(r evaluation.Request) {
	k.Request = r
	if k.prefixed && holdsPrefix(&r) {
		k.Hidden = []evaluation.Hidden{}
	}
	if !k.any {
		return
	}
	var roots [len(places)]spot
	for n, o := range objects(&k.Request) {
		*o, roots[n] = k.object(*o, k.masker.place(n, r.Action.Name), false)
		roots[n].segment = strings.Join(places[n], "/")
	}
	room := maxHiddenBytes
	if k.beside != nil {
		room = maxHiddenBytesOfItem
	}
	k.Hidden = append(k.Hidden, listed(roots[:], room)...)
}

// holdsPrefix reports if a text or a name in a request looks like a mask.
func holdsPrefix(r *evaluation.Request) bool {
	all := objects(r)
	return slices.ContainsFunc(all[:], func(o *evaluation.Object) bool { return o.Value().Contains(Prefix) })
}

// spot is a value that something is masked in. The zero spot is a value that was not changed.
type spot struct {
	segment string // of the pointer to it, not escaped
	kind    evaluation.Kind
	is      hiding
	below   []spot // in order
}

// hiding says what is hidden of a value itself.
type hiding uint8

const (
	nothing hiding = iota // at most something below it
	part
	whole
	removed
)

func (s *spot) add(segment string, inner spot) {
	if inner.is != nothing || len(inner.below) > 0 {
		inner.segment = segment
		s.below = append(s.below, inner)
	}
}

// forget takes out members that kept their names: renamed ones, which came to have these names, may stand in their
// place. s is a part then, which says that such members are not what was sent.
func (s *spot) forget(names []string) {
	if len(names) == 0 || len(s.below) == 0 {
		return
	}
	taken := make(map[string]bool, len(names))
	for _, name := range names {
		taken[name] = true
	}
	s.below = slices.DeleteFunc(s.below, func(inner spot) bool { return taken[inner.segment] })
}

// spotOfText is the spot of a text that became another one.
func spotOfText(masked string) spot {
	s := spot{kind: evaluation.String, is: part}
	if len(masked) == len(Prefix)+digestLength && strings.HasPrefix(masked, Prefix) {
		s.is = whole
	}
	return s
}

// listed lists the places of roots. It makes places coarser until there are few enough: containers with many places
// directly below them become one place first.
func listed(roots []spot, room int) (all []evaluation.Hidden) {
	for most := maxHidden / 2; ; most /= 2 {
		places, bytes := 0, 0
		for n := range roots {
			roots[n].count(0, &places, &bytes)
		}
		if places <= maxHidden && bytes <= room {
			break
		}
		for n := range roots {
			roots[n].gather(most)
		}
		if most == 0 { // only roots are left
			break
		}
	}
	for _, root := range roots {
		all = root.list(all, "")
	}
	return all
}

// count adds the places in s, and the bytes of their pointers. above is the length of the pointer to what s is in.
func (s *spot) count(above int, places, bytes *int) {
	above += len("/") + len(s.segment) + strings.Count(s.segment, "~") + strings.Count(s.segment, "/") // escaped
	if s.is != nothing {
		*places, *bytes = *places+1, *bytes+above+entryFrame
	}
	for n := range s.below {
		s.below[n].count(above, places, bytes)
	}
}

// gather makes s one place if more than so many are directly below it, and does so with all below it before.
func (s *spot) gather(most int) {
	for n := range s.below {
		s.below[n].gather(most)
	}
	if len(s.below) > most {
		s.is, s.below = whole, nil
	}
}

func (s *spot) list(all []evaluation.Hidden, above string) []evaluation.Hidden {
	if s.is == nothing && len(s.below) == 0 {
		return all
	}
	at := above + "/" + s.segment
	if above != "" {
		at = above + "/" + escape.Replace(s.segment)
	}
	if s.is != nothing {
		all = append(all, evaluation.Hidden{At: at, Type: s.kind.TypeName(), Part: s.is == part, Removed: s.is == removed})
	}
	for n := range s.below {
		all = s.below[n].list(all, at)
	}
	return all
}
