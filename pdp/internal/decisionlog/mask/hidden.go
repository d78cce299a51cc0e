package mask

import (
	"strings"

	"policy-service/evaluation"
)

// The list of hidden places stands in the record, so it is bounded: an array may have thousands of masked elements,
// and the name of a member may be half a megabyte long.
const (
	maxHidden            = 64      // places
	maxHiddenBytes       = 8 << 10 // of all entries
	maxHiddenBytesOfItem = 512     // each item of a batch has a list; see batch.go of package recorder
	entryFrame           = len(`{"at":"","type":"string","removed":true},`)
)

// mask masks a request, and lists the places that it masked. Until the list fits its bounds, mask makes places coarser:
// containers with many places directly below them become one place first.
func (k *Masking) mask(r evaluation.Request) {
	k.Request = r
	for _, o := range objects(&r) {
		if k.prefixed && o.Value().Contains(Prefix) {
			k.Hidden = []evaluation.Hidden{}
		}
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
	for most := maxHidden / 2; ; most /= 2 {
		places, bytes := 0, 0
		for n := range roots {
			roots[n].count(0, &places, &bytes)
		}
		if places <= maxHidden && bytes <= room {
			break
		}
		for n := range roots {
			roots[n].merge(most)
		}
		if most == 0 { // only roots are left
			break
		}
	}
	for n := range roots {
		k.Hidden = roots[n].list(k.Hidden, "")
	}
}

// spot is a tree of the masked places in a value. The zero spot is a value that was not changed.
type spot struct {
	segment string // the last segment of the pointer to the value, not escaped
	kind    evaluation.Kind
	is      hiding
	below   []spot // in order
}

// hiding says how much of a value itself is hidden.
type hiding uint8

const (
	nothing hiding = iota // but a value below may be hidden
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

// count adds the number of places in s, and the bytes of their entries. above is the length of the pointer to the value
// around s.
func (s *spot) count(above int, places, bytes *int) {
	above += len("/") + len(s.segment) + strings.Count(s.segment, "~") + strings.Count(s.segment, "/") // escaped
	if s.is != nothing {
		*places, *bytes = *places+1, *bytes+above+entryFrame
	}
	for n := range s.below {
		s.below[n].count(above, places, bytes)
	}
}

// merge makes each spot with more than most spots directly below it one place, the lowest spots first.
func (s *spot) merge(most int) {
	for n := range s.below {
		s.below[n].merge(most)
	}
	if len(s.below) > most {
		s.is, s.below = whole, nil
	}
}

// list appends the places in s. above is the pointer to the value around s.
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
