package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/boltfile/pages"
	"policy-service/pdp/internal/plainfile"
)

// postings are the index of one segment: by term, how far from its first the
// records are that have it. Lists only grow at their end.
type postings struct {
	segment     uint64
	first, next uint64 // it covers the sequences from one to before the other
	lists       map[string]*[]uint32
	replaced    bool // the segment was, since: some of it may be of records that are gone
}

func newPostings(segment, first uint64) *postings {
	return &postings{segment: segment, first: first, next: first, lists: map[string]*[]uint32{}}
}

// add adds records, which come in order, and their end.
func (p *postings) add(records []Record, next uint64) {
	for _, r := range records {
		p.addOne(r.Sequence, r.Terms)
	}
	p.next = next
}

// addOne adds a record, and reaches up to the one behind it.
func (p *postings) addOne(sequence uint64, terms Terms) {
	offset := uint32(sequence - p.first)
	for rest, term, ok := terms.cut(); ok; rest, term, ok = rest.cut() {
		list := p.lists[string(term)]
		if list == nil {
			list = new([]uint32)
			p.lists[string(term)] = list
		}
		if n := len(*list); n == 0 || (*list)[n-1] != offset { // a policy may be named twice
			*list = append(*list, offset)
		}
	}
	p.next = sequence + 1
}

// of is the list of a term.
func (p *postings) of(term string) []uint32 {
	if list := p.lists[term]; list != nil {
		return *list
	}
	return nil
}

// The names in a file of the index.
const (
	bucketMeta  = "meta"
	bucketTerms = "terms"
	metaFormat  = "format"
	metaFirst   = "first"
	metaNext    = "next"
)

var errDamaged = errors.New("the index is damaged")

// writeTerms is how many terms one transaction writes.
const writeTerms = 20_000

// write makes the file of an index that is complete. It may be given up at any time.
func (x *Index) write(ctx context.Context, p *postings) error {
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		return err
	}
	name := x.path(p.segment)
	draft := filepath.Join(x.dir, "."+filepath.Base(name))
	err := writeIndex(ctx, draft, p)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return os.Rename(draft, name)
	}
	return errors.Join(err, plainfile.Remove(draft))
}

// writeIndex writes the terms in their order. Synced once, at the end: until the
// file has its name it is not read.
func writeIndex(ctx context.Context, name string, p *postings) (err error) {
	if err := plainfile.Remove(name); err != nil {
		return err
	}
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	db.AllocSize = 1 << 20
	defer func() { err = errors.Join(err, db.Close()) }()
	terms := slices.Sorted(maps.Keys(p.lists))
	for some := range slices.Chunk(terms, writeTerms) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := db.Update(func(tx *bbolt.Tx) error { return putTerms(tx, p, some) }); err != nil {
			return err
		}
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists([]byte(bucketTerms)); err != nil {
			return err
		}
		meta, err := tx.CreateBucket([]byte(bucketMeta))
		return errors.Join(err, meta.Put([]byte(metaFormat), strconv.AppendInt(nil, Version, 10)),
			meta.Put([]byte(metaFirst), number(p.first)), meta.Put([]byte(metaNext), number(p.next)))
	})
	return errors.Join(err, db.Sync())
}

func putTerms(tx *bbolt.Tx, p *postings, terms []string) error {
	b, err := tx.CreateBucketIfNotExists([]byte(bucketTerms))
	if err != nil {
		return err
	}
	b.FillPercent = 1 // they come in order
	for _, term := range terms {
		last, list := uint32(0), make([]byte, 0, 8)
		for _, n := range p.of(term) {
			list = binary.AppendUvarint(list, uint64(n-last))
			last = n
		}
		if err := b.Put([]byte(term), list); err != nil {
			return err
		}
	}
	return nil
}

// Candidates are how far from the first record of a segment, in order, those stand that
// may pass what asks for terms: one at least of each list. The index ends at upTo: what
// comes from there on is to be scanned.
func (x *Index) Candidates(s Segment, terms [][]string) (list []uint32, upTo uint64) {
	if p := x.followed(s.Number); p != nil {
		return x.inMemory(p, terms)
	}
	list, err := x.onDisk(s, terms)
	switch {
	case err == nil:
		return list, s.End
	case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, boltfile.ErrLocked):
		_ = plainfile.Remove(x.path(s.Number)) // it is made again
	}
	x.wakeUp()
	return nil, s.First
}

func (x *Index) inMemory(p *postings, terms [][]string) ([]uint32, uint64) {
	lists := map[string][]uint32{}
	x.mu.Lock()
	upTo := p.next
	for _, any := range terms {
		for _, term := range any {
			lists[term] = p.of(term)
		}
	}
	lists[TermOdd] = p.of(TermOdd)
	x.mu.Unlock()
	list, _ := narrow(terms, func(term string) ([]uint32, error) { return lists[term], nil })
	return list, upTo
}

func (x *Index) onDisk(s Segment, terms [][]string) (list []uint32, err error) {
	err = boltfile.Look(x.path(s.Number), errDamaged, lookWait, func(f *pages.File) error {
		list, err = readLists(f, s, terms)
		return err
	})
	return list, err
}

// readLists reads which records of a segment have a term of each list, counted from the segment's first. The file must
// be the index of that segment. A term that the index does not have is in no record.
func readLists(f *pages.File, s Segment, terms [][]string) ([]uint32, error) {
	meta, isIndex, err := f.Bucket(bucketMeta)
	if err != nil || !isIndex {
		return nil, errors.Join(fmt.Errorf("%w: it is no index", errDamaged), err)
	}
	values, err := meta.Values(metaFormat, metaFirst, metaNext)
	if err != nil {
		return nil, err
	}
	if string(values[metaFormat]) != strconv.Itoa(Version) ||
		!bytes.Equal(values[metaFirst], number(s.First)) || !bytes.Equal(values[metaNext], number(s.End)) {
		return nil, fmt.Errorf("%w: it is the index of something else", errDamaged)
	}
	b, isIndex, err := f.Bucket(bucketTerms)
	if err != nil || !isIndex {
		return nil, errors.Join(fmt.Errorf("%w: it is no index", errDamaged), err)
	}
	return narrow(terms, func(term string) ([]uint32, error) {
		e, _, err := b.Get([]byte(term))
		if err != nil {
			return nil, err
		}
		return readList(e.Value, uint32(s.End-s.First))
	})
}

// fewCandidates are looked at sooner than a list that most records are in is read.
const fewCandidates = 16

// narrow takes the records that are in a list of each group, and those under TermOdd. Where few are left it leaves out
// the groups that follow: the caller reads each record anyway.
func narrow(terms [][]string, read func(term string) ([]uint32, error)) ([]uint32, error) {
	var narrowed []uint32
	for i, any := range terms {
		if i > 0 && len(narrowed) <= fewCandidates {
			break
		}
		var group []uint32
		for _, term := range any {
			list, err := read(term)
			if err != nil {
				return nil, err
			}
			group = union(group, list)
		}
		if i == 0 {
			narrowed = group
		} else {
			narrowed = intersection(narrowed, group)
		}
	}
	odd, err := read(TermOdd)
	return union(narrowed, odd), err
}

func union(a, b []uint32) []uint32 {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	both := append(slices.Clone(a), b...)
	slices.Sort(both)
	return slices.Compact(both)
}

func intersection(a, b []uint32) (both []uint32) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			both, a, b = append(both, a[0]), a[1:], b[1:]
		}
	}
	return both
}

// readList reads ascending positions below limit. Each is stored as the difference to the one before.
func readList(b []byte, limit uint32) (list []uint32, err error) {
	at := uint64(0)
	for len(b) > 0 {
		n, width := binary.Uvarint(b)
		if at += n; width <= 0 || n >= uint64(limit) || at >= uint64(limit) { // so at cannot overflow
			return nil, fmt.Errorf("%w: a list of the index", errDamaged)
		}
		list, b = append(list, uint32(at)), b[width:]
	}
	return list, nil
}

// number is n in 8 bytes, big-endian.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
