package report

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// SampleOptions say how many decisions are chosen, by which seed, and from which
// time: from From on and before To.
type SampleOptions struct {
	N        int
	Seed     string
	From, To time.Time
}

// The bounds of a sample.
const (
	SampleMost = 10_000
	seedMost   = 256 // bytes
	sampleHold = 256 << 20
)

// Check finds errors in options.
func (o SampleOptions) Check() error {
	switch {
	case o.N < 1 || o.N > SampleMost:
		return fmt.Errorf("a sample of %d; take 1 to %d", o.N, SampleMost)
	case o.Seed == "" || len(o.Seed) > seedMost || !utf8.ValidString(o.Seed) || strings.ContainsFunc(o.Seed, invisible):
		return fmt.Errorf("a seed is 1 to %d bytes of text in one line; take something that nobody could know before, such as the result of a lottery", seedMost)
	}
	return record.Filter{From: o.From, To: o.To}.Check()
}

// invisible characters have no place in a seed: it is compared by eye.
func invisible(r rune) bool { return !unicode.IsGraphic(r) }

// ErrNoPopulation is returned where there is nothing to choose from.
var ErrNoPopulation = errors.New("there is no decision to choose from")

// Sample is a choice of decisions, with the files that it takes to check it. README.md says how.
type Sample struct {
	Summary SampleSummary `json:"summary"`
	Files   Files         `json:"files"`
}

// Files are the contents of files by their paths. In JSON they are a list in the order of the paths, each with its
// content as text if it is valid UTF-8, else in base64.
type Files map[string][]byte

type file struct {
	Path    string  `json:"path"`
	Content *string `json:"content,omitempty"`
	Base64  []byte  `json:"base64,omitempty"`
}

// MarshalJSON writes the list.
func (f Files) MarshalJSON() ([]byte, error) {
	list := make([]file, 0, len(f))
	for _, path := range slices.Sorted(maps.Keys(f)) {
		one := file{Path: path, Base64: f[path]}
		if utf8.Valid(f[path]) {
			text := string(f[path])
			one.Content, one.Base64 = &text, nil
		}
		list = append(list, one)
	}
	return json.Marshal(list, jsontext.AllowInvalidUTF8(true))
}

// UnmarshalJSON reads the list.
func (f *Files) UnmarshalJSON(b []byte) error {
	var list []file
	err := json.Unmarshal(b, &list)
	*f = Files{}
	for _, one := range list {
		if (*f)[one.Path] = one.Base64; one.Content != nil {
			(*f)[one.Path] = []byte(*one.Content)
		}
	}
	return err
}

// ErrSampleTooLarge is returned where the records of a sample are more than can be
// held at once.
var ErrSampleTooLarge = fmt.Errorf("the records of the sample are more than %d bytes; take fewer", sampleHold)

// Choose chooses decisions. The score of one is SHA-256(seed, 0x00, leaf hash), and
// those with the smallest scores are the sample: it depends on nothing but the seed
// and what there is to choose from, so that anybody can choose again. The log is
// read once, and only the sample is held. The sample says for which times the log
// has no decisions, up to its last checkpoint.
func Choose(ctx context.Context, s *segment.Snapshot, o SampleOptions) (Sample, error) {
	if err := o.Check(); err != nil {
		return Sample{}, err
	}
	p := picking{options: o, span: span{o.From, o.To}, byID: map[string]*picked{}}
	p.gaps.found = p.countGap
	if err := each(ctx, s, p.look); err != nil {
		return Sample{}, err
	}
	last, err := segment.ParseCheckpoint(s.Head.Checkpoint, nil)
	if err != nil {
		return Sample{}, err
	}
	p.gaps.reached(last.Time)
	if p.population == 0 {
		return Sample{}, ErrNoPopulation
	}
	return writeSample(s, &p)
}

// picked is a decision that is chosen so far. Its receipts come later in the log.
type picked struct {
	record.Record
	score    [sha256.Size]byte
	id       string
	time     time.Time
	bundle   string
	receipts []record.Record
	held     int // bytes of all these lines
}

// picking is a sample in the making.
type picking struct {
	options    SampleOptions
	span       span
	population int64
	gone       SampleGone
	gaps       gaps
	best       []*picked // the best first
	held       int       // bytes of lines
	byID       map[string]*picked
}

func (p *picking) look(l record.Record) error {
	s, err := p.gaps.read(l)
	if s == nil || err != nil {
		return err
	}
	switch s.Kind {
	case format.KindDecision:
		if p.span.has(s.Time) {
			p.population++
			p.offer(&picked{Record: l, score: score(p.options.Seed, l.Leaf), id: s.ID, time: s.Time, bundle: s.Bundle, held: len(l.Line)})
		}
	case format.KindReceipt:
		if of := p.byID[s.Receipt().Decision]; of != nil {
			of.receipts = append(of.receipts, l)
			of.held, p.held = of.held+len(l.Line), p.held+len(l.Line)
		}
	}
	if p.held > sampleHold {
		return ErrSampleTooLarge
	}
	return nil
}

// score orders the decisions of a sample.
func score(seed string, hash tlog.Hash) [sha256.Size]byte {
	return sha256.Sum256(append(append([]byte(seed), 0), hash[:]...))
}

// offer takes a decision in. If that is one too many, the worst one goes.
func (p *picking) offer(d *picked) {
	at, _ := slices.BinarySearchFunc(p.best, d, (*picked).compare)
	if at == p.options.N {
		return
	}
	p.best = slices.Insert(p.best, at, d)
	p.held += d.held
	if len(p.best) > p.options.N {
		worst := p.best[p.options.N]
		p.best = p.best[:p.options.N]
		delete(p.byID, worst.id)
		p.held -= worst.held
	}
	p.byID[d.id] = d // last: the worst one may have the same id
}

func (d *picked) compare(other *picked) int { return bytes.Compare(d.score[:], other.score[:]) }

// countGap counts the records of a gap that are, or may be, of the time that is sampled.
func (p *picking) countGap(g DatedGap) {
	count := &p.gone.Redacted
	if g.Why == format.WhyRetired {
		count = &p.gone.Retired
	}
	switch {
	case p.span.hasAll(g):
		count.Inside += int64(g.Next - g.First)
	case p.span.mayHave(g):
		count.Perhaps += int64(g.Next - g.First)
	}
}

// chosen are the decisions of the sample in order.
func (p *picking) chosen() []*picked {
	return slices.SortedFunc(slices.Values(p.best), func(a, b *picked) int { return cmp.Compare(a.Sequence, b.Sequence) })
}

func (d *picked) summary() Chosen {
	c := Chosen{Sequence: d.Sequence, ID: d.id, Time: d.time, LeafHash: d.Leaf.String(), Score: hex.EncodeToString(d.score[:]), Bundle: d.bundle, Receipts: []uint64{}}
	for _, receipt := range d.receipts {
		c.Receipts = append(c.Receipts, receipt.Sequence)
	}
	return c
}
