package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Query asks for a page of records. A cursor stands between two records: at n
// before record n. It means the same whatever was appended meanwhile.
type Query struct {
	Filter record.Filter
	// Newest begins with the newest record and goes back.
	Newest bool
	// Cursor is where the page begins; [End] is after the newest record.
	Cursor uint64
	Limit  int
	// Enough, if there is one, ends a page early, with More, once it reports true. It is asked between two parts.
	Enough func() bool
}

// End is the cursor after the newest record, whichever that is.
const End = uint64(math.MaxUint64)

// Page holds the record lines of a page, in the order asked for.
type Page struct {
	Lines [][]byte
	// Next is the cursor of the next page. Where there is no More, a page that goes
	// from old to new begins there with what will be appended.
	Next uint64
	More bool
	// Examined is how many records were examined, including records that do not pass.
	Examined int
}

// ErrNoSuchCursor is returned for a cursor beyond the end of the log: it belongs
// to another log, or to one that was rolled back.
var ErrNoSuchCursor = errors.New("the cursor is beyond the end of the log")

// Query returns a page of the records that pass a filter, including records after the
// newest checkpoint. Records without content never pass. Query is exact: neither the
// index, nor what is appended, redacted or dropped meanwhile, makes it skip or
// repeat a record that stays.
func (l *Log) Query(ctx context.Context, q Query) (Page, error) {
	if err := q.Filter.Check(); err != nil {
		return Page{}, err
	}
	if err := l.waitUntilFilled(ctx); err != nil {
		return Page{}, err
	}
	size := l.Size()
	if q.Cursor == End {
		q.Cursor = size
	}
	if q.Cursor > size {
		return Page{}, fmt.Errorf("%w: it is %d, and there are %d records", ErrNoSuchCursor, q.Cursor, size)
	}
	p := pager{reader: l.Reader, index: l.index, query: q, sieve: l.Sieve(q.Filter), terms: termsOfFilter(q.Filter)}
	low, high, err := uint64(0), size, error(nil)
	if !q.Filter.From.IsZero() { // records are in the order of their times
		low, err = p.notBefore(q.Filter.From, size)
	}
	if err == nil && !q.Filter.To.IsZero() {
		high, err = p.notBefore(q.Filter.To, size)
	}
	if err != nil {
		return Page{}, err
	}
	p.low, p.high = low, min(high, q.Cursor)
	if !q.Newest {
		p.low, p.high, p.page.Next = max(low, q.Cursor), high, size
	}
	err = p.run(ctx)
	return p.page, err
}

// notBefore returns the first record that is not before a moment. Where the
// records around it have no content any more, it returns the record after these: they pass
// no filter anyway.
func (p *pager) notBefore(moment time.Time, size uint64) (uint64, error) {
	low, high := uint64(0), size
	for low < high {
		middle := low + (high-low)/2
		at, found, err := p.firstFrom(middle, high)
		if err != nil {
			return 0, err
		}
		if found == high || !at.Before(moment) {
			high = middle
		} else {
			low = found + 1
		}
	}
	return low, nil
}

// firstFrom returns the first record of a span that has content, and its time. If
// there is none, it returns the end of the span.
func (p *pager) firstFrom(from, to uint64) (at time.Time, sequence uint64, err error) {
	for from < to {
		s, err := p.reader.FindFile(from)
		if err != nil {
			if errors.Is(err, segment.ErrGone) { // its segment was moved away
				from = p.reader.SegmentFiles()[0].First
				continue
			}
			return at, 0, err
		}
		some, err := p.reader.ReadSpan(s, from, to, false, 1)
		if err != nil {
			return at, 0, err
		}
		if len(some) > 0 {
			at, ok := segment.ParseTime(some[0].Line)
			if !ok {
				err = fmt.Errorf("record %d: %w: it has no time", some[0].Sequence, record.ErrDamaged)
			}
			return at, some[0].Sequence, err
		}
		from = p.reader.EndOfFile(s)
	}
	return at, to, nil
}

// pager fills a page.
type pager struct {
	reader    *segment.Reader
	index     *index.Index
	query     Query
	sieve     *record.Sieve
	terms     [][]string // what the index can be asked for
	low, high uint64     // what is still to be looked at
	page      Page
}

// run fills the page. It moves low and high as records are examined, so that a page that runs out of time ends there.
func (p *pager) run(ctx context.Context) error {
	for p.low < p.high && !p.page.More {
		at := p.low
		if p.query.Newest {
			at = p.high - 1
		}
		s, err := p.reader.FindFile(at)
		if errors.Is(err, segment.ErrGone) { // nothing is left of it, nor of any before
			if p.low = p.reader.SegmentFiles()[0].First; p.query.Newest {
				return nil
			}
			continue
		}
		if err != nil {
			return err
		}
		low, high := max(p.low, s.First), min(p.high, p.reader.EndOfFile(s))
		if err := p.takeFrom(ctx, s, low, high); err != nil {
			return err
		}
		if p.query.Newest {
			p.high = low
		} else {
			p.low = high
		}
	}
	return nil
}

// takeFrom adds the records of one segment in a span that pass. Where the
// index reaches, it examines only the records that the index names.
func (p *pager) takeFrom(ctx context.Context, s *segment.File, low, high uint64) error {
	if len(p.terms) == 0 {
		return p.takeAll(ctx, s, low, high)
	}
	list, upTo := p.index.Candidates(index.Segment{Number: s.Number, First: s.First, End: p.reader.EndOfFile(s)}, p.terms)
	first := func() error { return p.takeNamed(ctx, s, between(list, s.First, low, high)) }
	then := func() error { return p.takeAll(ctx, s, max(low, upTo), high) }
	if p.query.Newest {
		first, then = then, first
	}
	if err := first(); err != nil {
		return err
	}
	return then()
}

// between returns the part of a list that is in a span.
func between(list []uint32, first, low, high uint64) []uint64 {
	from, _ := slices.BinarySearch(list, uint32(low-first))
	to, _ := slices.BinarySearch(list, uint32(high-first))
	out := make([]uint64, 0, to-from)
	for _, n := range list[from:to] {
		out = append(out, first+uint64(n))
	}
	return out
}

// takeNamed adds the records with some sequences that pass.
func (p *pager) takeNamed(ctx context.Context, s *segment.File, sequences []uint64) error {
	if p.query.Newest {
		slices.Reverse(sequences)
	}
	for len(sequences) > 0 && !p.page.More {
		if paused, err := p.pause(ctx); paused || err != nil {
			return err
		}
		n := min(len(sequences), max(16, p.query.Limit+1-len(p.page.Lines)), segment.MaxRecords)
		some, err := p.reader.ReadListed(s, sequences[:n])
		if err == nil {
			err = p.takePassing(some)
		}
		if err != nil {
			return err
		}
		p.movePast(sequences[n-1])
		sequences = sequences[n:]
	}
	return nil
}

// movePast moves the bounds past a record.
func (p *pager) movePast(sequence uint64) {
	if p.query.Newest {
		p.high = sequence
	} else {
		p.low = sequence + 1
	}
}

// pause ends the page here if there is no more time for it. By then it has examined some records.
func (p *pager) pause(ctx context.Context) (bool, error) {
	err := segment.AwaitTurn(ctx)
	late := errors.Is(err, context.DeadlineExceeded) || err == nil && p.query.Enough != nil && p.query.Enough()
	if !late || p.page.Examined == 0 {
		return false, err
	}
	if p.page.More, p.page.Next = true, p.low; p.query.Newest {
		p.page.Next = p.high
	}
	return true, nil
}

// takeAll adds the records in a span that pass.
func (p *pager) takeAll(ctx context.Context, s *segment.File, low, high uint64) error {
	for low < high && !p.page.More {
		if paused, err := p.pause(ctx); paused || err != nil {
			return err
		}
		some, err := p.reader.ReadSpan(s, low, high, p.query.Newest, segment.MaxRecords)
		if err == nil {
			err = p.takePassing(some)
		}
		if err != nil || len(some) == 0 {
			return err
		}
		last := some[len(some)-1].Sequence
		if p.movePast(last); p.query.Newest {
			high = last
		} else {
			low = last + 1
		}
	}
	return nil
}

// takePassing adds the records that pass, and ends the page when it is full.
func (p *pager) takePassing(some []record.Record) error {
	for _, r := range some {
		p.page.Examined++
		passes, err := p.sieve.Passes(r.Line)
		switch {
		case err != nil:
			return fmt.Errorf("record %d: %w", r.Sequence, err)
		case !passes:
		case len(p.page.Lines) < p.query.Limit:
			p.page.Lines = append(p.page.Lines, r.Line)
		default:
			if p.page.More, p.page.Next = true, r.Sequence; p.query.Newest {
				p.page.Next++
			}
			return nil
		}
	}
	return nil
}

// Layout implements [index.Source].
func (l *Log) Layout() []index.Segment {
	size := l.Size() // before the segments: they are added before it grows
	all := l.SegmentFiles()
	list := make([]index.Segment, len(all))
	for i, s := range all {
		end := max(size, s.First)
		if i+1 < len(all) {
			end = all[i+1].First
		}
		list[i] = index.Segment{Number: s.Number, First: s.First, End: end}
	}
	return list
}

// Terms implements [index.Source].
func (l *Log) Terms(from, to uint64) ([]index.Record, error) {
	s, err := l.FindFile(from)
	if err != nil {
		return nil, err
	}
	some, err := l.ReadSpan(s, from, to, false, segment.MaxRecords)
	out := make([]index.Record, len(some))
	for i, r := range some {
		out[i] = index.Record{Sequence: r.Sequence, Terms: termsOfLine(r.Line)}
	}
	return out, err
}
