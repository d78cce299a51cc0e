package rpc

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// WithoutInMeta returns a value without the members whose name begins with prefix in each object _meta, at any depth. A _meta
// that is empty then goes away. All else keeps its bytes. The value must have been read, and prefix must be ASCII.
func WithoutInMeta(v jsontext.Value, prefix string) jsontext.Value {
	if !bytes.Contains(v, []byte(prefix)) && !bytes.Contains(v, []byte(`\u`)) && !bytes.Contains(v, []byte(`\/`)) {
		return v // no other escape can hide a part of the prefix
	}
	s := metaScan{text: v, prefix: prefix}
	s.value(skipSpace(v, 0), false)
	if s.cuts == nil {
		return v
	}
	var kept []byte
	at := 0
	for _, c := range s.cuts {
		kept, at = append(kept, v[at:c.from]...), c.to
	}
	return append(kept, v[at:]...)
}

// metaScan finds the parts of a text that [WithoutInMeta] cuts out.
type metaScan struct {
	text   []byte
	prefix string
	cuts   []struct{ from, to int } // in the order of the text, each with one comma that goes with it
}

// value goes through the value at a place of the text. It returns where the value ends, and reports whether all its members are
// cut.
func (s *metaScan) value(at int, isMeta bool) (end int, emptied bool) {
	if s.text[at] != '{' && s.text[at] != '[' {
		return skipValue(s.text, at), false
	}
	isObject, before, kept, gone := s.text[at] == '{', at+1, false, false
	for at = next(s.text, skipSpace(s.text, at+1)); s.text[at] != '}' && s.text[at] != ']'; at = next(s.text, end) {
		begins, below, cut := at, false, false
		if isObject {
			ends := skipString(s.text, at)
			name := unquoted(s.text[at:ends])
			at = skipSpace(s.text, skipSpace(s.text, ends)+1) // behind the colon
			below = strings.EqualFold(name, "_meta")          // some clients ignore case
			cut = isMeta && strings.HasPrefix(name, s.prefix)
		}
		inside := len(s.cuts)
		end, emptied = s.value(at, below)
		cut = cut || below && emptied
		switch {
		case !cut:
			kept = true
		case kept:
			s.cuts = append(slices.Delete(s.cuts, inside, len(s.cuts)), struct{ from, to int }{before, end})
		default:
			s.cuts = append(slices.Delete(s.cuts, inside, len(s.cuts)), struct{ from, to int }{begins, next(s.text, end)})
		}
		before, gone = end, gone || cut
	}
	return at + 1, gone && !kept
}
