package export

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Reader goes once through an export of the form "log", or through a merge. It checks no proof: package verify does.
type Reader struct {
	// Parts are the exports of a merge, or the export itself.
	Parts []Part

	*source
	files Files
	at    int // the part that a line is of
	merge bool
	seen  map[string]*seen
	steps steps
}

// Part is the log that an export is of, by its first line.
type Part struct {
	Origin     string        `json:"origin"`
	Size       int64         `json:"size"`
	Checkpoint string        `json:"checkpoint"`
	Filter     record.Filter `json:"filter"`
}

// partOf reads the first line of an export.
func partOf(line []byte) (Part, error) {
	var is struct {
		Export string `json:"export"`
		Format int    `json:"format"`
		Form   string `json:"form"`
		Part   `json:",inline"`
	}
	if err := json.Unmarshal(line, &is); err != nil || is.Export != format.LineBegin || is.Format != format.ExportVersion || is.Form != format.FormLog {
		return Part{}, fmt.Errorf("this is no export of a decision log of format %d; give what log export writes", format.ExportVersion)
	}
	return is.Part, nil
}

// Leaf is a record of a log.
type Leaf struct {
	// Record is without its Leaf if it has its Line, which is valid until the next.
	record.Record
	// Part is the number of the export.
	Part int
	// Again says that the record came before: in another export of its log, or as a step that another log has, too.
	Again bool
}

// NewReader reads the beginning of a file.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{source: newSource(in), seen: map[string]*seen{}}
	err := r.next()
	for err == nil && (r.is(format.LineBegin) || len(r.Parts) == 0) {
		if len(r.Parts) == format.MaxParts {
			return nil, fmt.Errorf("line %d: a merge has %d parts at most", r.number, format.MaxParts)
		}
		var one Part
		one, err = partOf(r.line)
		r.Parts, r.seen[one.Origin] = append(r.Parts, one), &seen{taken: -1, gone: -1}
		if err == nil {
			err = r.next()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", r.number, err)
	}
	return r, nil
}

// next goes to the next line of a part, or to the last line. At the end of the file it is io.EOF.
func (r *Reader) next() error {
	for {
		ended := r.is(format.LineMerged) || !r.merge && r.is(format.LineEnd)
		switch err := r.read(); {
		case errors.Is(err, io.EOF) && !ended:
			return errors.New("the file ends before its last line")
		case err != nil:
			return err
		}
		first := r.number == 1 && r.is(format.LineMerge)
		if r.merge = r.merge || first; !first && !(r.merge && r.is(format.LinePart)) {
			return nil
		}
		var is struct {
			Format int `json:"format"`
			Part   int `json:"part"`
		}
		if err := json.Unmarshal(r.line, &is); err != nil || first && is.Format != format.MergeVersion || is.Part < 0 || is.Part > len(r.Parts) {
			return fmt.Errorf("this is no line of a merge of format %d", format.MergeVersion)
		}
		r.at = is.Part
	}
}

// KeepBundles has the reader keep the bundles that it reads, for Bundle.
func (r *Reader) KeepBundles() { r.files.Keep = true }

// Bundle returns the files of a bundle, nil if they did not come before the records that were read.
func (r *Reader) Bundle(digest string) map[string][]byte { return r.files.Of(digest) }

// Leaves yields each record, in the order of the file.
func (r *Reader) Leaves() iter.Seq2[Leaf, error] {
	return func(yield func(Leaf, error) bool) {
		for err := error(nil); ; err = r.next() {
			if errors.Is(err, io.EOF) {
				return
			}
			var all []Leaf
			if err == nil {
				all, err = r.leaves()
			}
			if err != nil {
				yield(Leaf{}, fmt.Errorf("line %d: %w", r.number, err))
				return
			}
			for _, one := range all {
				if one.Part = r.at; !yield(one, nil) {
					return
				}
			}
		}
	}
}

// passedOver are the lines that have no leaves, and no bundles.
var passedOver = []string{format.LineBegin, format.LineProof, format.LineEnd, format.LineMerged}

// leaves are those of a line.
func (r *Reader) leaves() (all []Leaf, err error) {
	if r.at >= len(r.Parts) {
		return nil, errors.New("it is of no part of the merge")
	}
	of := r.seen[r.Parts[r.at].Origin]
	if r.is(format.LineLeaves) {
		var is struct {
			First  int64       `json:"first"`
			Why    string      `json:"why"`
			Hashes []tlog.Hash `json:"hashes"`
		}
		err := json.Unmarshal(r.line, &is)
		for n, hash := range is.Hashes {
			one := Leaf{Record: record.Record{Sequence: uint64(is.First) + uint64(n), Leaf: hash, Gone: is.Why}}
			one.Again = is.Why != format.WhyFiltered && of.again(&of.gone, one.Sequence)
			all = append(all, one)
		}
		return all, err
	}
	if r.is(format.LineFile) || r.is(format.LineBundle) {
		var is struct {
			fileLine
			Digest string `json:"digest"`
			List   string `json:"list"`
		}
		if err := json.Unmarshal(r.line, &is); err != nil {
			return nil, err
		}
		if r.is(format.LineFile) {
			return nil, r.files.File(is.SHA256, is.Content, is.More)
		}
		return nil, r.files.Bundle(is.Digest, is.List)
	}
	if r.envelope { // a word may be written in several ways, and verify reads all: no line must be passed over
		if !slices.ContainsFunc(passedOver, r.is) {
			return nil, errors.New("no export has such a line")
		}
		return nil, nil
	}
	one := Leaf{Record: record.Record{Line: bytes.TrimSuffix(r.line, []byte("\n"))}}
	digits, _, _ := bytes.Cut(bytes.TrimPrefix(r.line, []byte(`{"sequence":`)), []byte(","))
	if one.Sequence, err = strconv.ParseUint(string(digits), 10, 63); err != nil {
		return nil, errors.New("it is no record")
	}
	one.Again = of.again(&of.taken, one.Sequence)
	if r.merge && !one.Again && (bytes.Contains(one.Line, []byte(`"kind":"approval"`)) || bytes.Contains(one.Line, []byte(`"kind":"capability"`))) {
		var is struct {
			ID string `json:"id"`
		}
		err = json.Unmarshal(one.Line, &is)
		one.Again = r.steps.again(is.ID)
	}
	return []Leaf{one}, err
}

// seen are the latest records of a log, with content and without. Several exports of the log have them in one order.
type seen struct{ taken, gone int64 }

func (*seen) again(last *int64, sequence uint64) bool {
	is := int64(sequence) <= *last
	*last = max(*last, int64(sequence))
	return is
}

// stepsMost is how many steps are remembered, in some 50 MB.
const stepsMost = 1 << 20

// steps are the ids of the latest steps of approvals and capabilities, in two halves: when the younger one is full, the
// older one is forgotten. One that was recorded again, so many steps later, counts as another then.
type steps struct{ young, older map[[16]byte]bool }

func (s *steps) again(id string) bool {
	sum := sha256.Sum256([]byte(id))
	name := [16]byte(sum[:])
	is := s.young[name] || s.older[name]
	if s.young == nil || len(s.young) >= stepsMost/2 {
		s.young, s.older = map[[16]byte]bool{}, s.young
	}
	s.young[name] = true
	return is
}
