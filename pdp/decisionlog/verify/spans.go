package verify

import (
	"slices"
	"sort"
)

// spans are ranges of sequences, ascending and apart: what has no content, until it is
// explained. Retention leaves one range; only single redactions make many.
type spans []span

type span struct{ first, end int64 }

// maxSpans bounds what a hostile export, every other record of which is a hash, makes us
// keep: 16 MB. No log has a million redactions that lie apart.
const maxSpans = 1 << 20

// add appends a sequence behind the others; it is false where there are too many.
func (s *spans) add(sequence int64) bool {
	if last := len(*s) - 1; last >= 0 && (*s)[last].end == sequence {
		(*s)[last].end++
		return true
	}
	*s = append(*s, span{sequence, sequence + 1})
	return len(*s) <= maxSpans
}

// cut takes out a range, and returns how many sequences of it there were.
func (s *spans) cut(first, end int64) (n int64) {
	from := sort.Search(len(*s), func(i int) bool { return (*s)[i].end > first })
	var rest spans
	to := from
	for ; to < len(*s) && (*s)[to].first < end; to++ {
		old := (*s)[to]
		n += min(old.end, end) - max(old.first, first)
		if old.first < first {
			rest = append(rest, span{old.first, first})
		}
		if old.end > end {
			rest = append(rest, span{end, old.end})
		}
	}
	if to > from {
		*s = slices.Replace(*s, from, to, rest...)
	}
	return n
}
