package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/format"
)

// A record has the members of a line that verify reads; the rest of it is only looked at for being
// JSON. Details are kept of events that verify must know.
type record struct {
	sequence int64
	time     string
	event    string
	details  details
	loaded   loaded
	// These are as they stand, without their quotes, and valid until the next line is read.
	id     []byte
	bundle []byte // that decided, empty if it is no decision

	batch    bool // of kind batch
	inherits bool // from the record of its batch
}

// of is the id of the batch that a record is an item of, nil where it is none.
func (r *record) of() []byte {
	if dot := bytes.LastIndexByte(r.id, '.'); dot > 0 {
		return r.id[:dot]
	}
	return nil
}

// details are the members that verify reads of the events it knows.
type details struct {
	File     segmentFile   `json:"file"`     // record_redacted
	Files    []segmentFile `json:"files"`    // segments_retired
	Sequence int64         `json:"sequence"` // record_redacted
	Below    int64         `json:"below"`    // segments_retired
	Tail                   // unsigned_tail
	// segment_opened: those of before
	UnsignedTails []Tail `json:"unsigned_tails"`
	Withdrawn            // withdrawn
}

// loaded are the details of bundle_loaded.
type loaded struct {
	Bundle string `json:"bundle"`
}

// segmentFile is a segment's file from this record on, and the file that it replaces.
type segmentFile struct {
	Segment  int64  `json:"segment"`
	Digest   string `json:"digest"`
	Replaces string `json:"replaces"`
}

// reads are the events whose details verify reads.
var reads = map[string]bool{
	format.EventSegment:  true,
	format.EventRedacted: true,
	format.EventRetired:  true,
	format.EventUnsigned: true,

	format.EventWithdrawn: true,
}

// recordStart is how every record line begins, and no line of an export's envelope does.
var recordStart = []byte(`{"sequence":`)

// A scanner reads record lines, one after the other, without allocating for each.
type scanner struct {
	decoder *jsontext.Decoder
	reader  bytes.Reader
}

func newScanner() *scanner { return &scanner{decoder: jsontext.NewDecoder(bytes.NewReader(nil))} }

// record parses a line: one JSON object, no name twice, valid UTF-8, with the members
// that every record has. Every later reader of the line reads the same in it.
func (s *scanner) record(line []byte) (r record, err error) {
	if !bytes.HasPrefix(line, recordStart) || bytes.IndexByte(line, '\n') >= 0 || len(line) > format.MaxLine {
		return r, errors.New("it is no record")
	}
	m, err := s.members(line)
	if err != nil {
		return r, fmt.Errorf("it is no record: %w", err)
	}
	if m.sequence == nil || m.id == nil || m.time == nil || m.kind == nil || m.salt == nil {
		return r, errors.New("it lacks a member that every record has")
	}
	if r.sequence, err = number(m.sequence); err != nil {
		return r, err
	}
	if len(m.time) != len(format.TimeLayout)+2 || m.time[0] != '"' {
		return r, errors.New("its time is not written as times are")
	}
	if len(m.id) < 2 || m.id[0] != '"' {
		return r, errors.New("its id is no text")
	}
	r.id, r.inherits, r.batch = m.id[1:len(m.id)-1], m.inherits != nil, string(m.kind) == `"`+format.KindBatch+`"`
	r.time = string(m.time[1 : len(m.time)-1])
	if _, err := time.Parse(format.TimeLayout, r.time); err != nil {
		return r, errors.New("its time is none")
	}
	if string(m.kind) == `"`+format.KindAdmin+`"` && len(m.event) > 2 {
		r.event = string(m.event[1 : len(m.event)-1])
	}
	if len(m.bundle) > 2 {
		r.bundle = m.bundle[1 : len(m.bundle)-1]
	}
	switch {
	case m.details == nil:
	case r.event == format.EventBundleLoaded: // whose "files" is a number
		err = json.Unmarshal(m.details, &r.loaded)
	case reads[r.event]:
		err = json.Unmarshal(m.details, &r.details)
	}
	return r, err
}

// members are the values of a line that verify reads, as they stand.
type members struct{ sequence, id, time, kind, inherits, bundle, salt, event, details []byte }

func (s *scanner) members(line []byte) (m members, err error) {
	s.reader.Reset(line)
	s.decoder.Reset(&s.reader)
	if _, err := s.decoder.ReadToken(); err != nil {
		return m, err
	}
	for s.decoder.PeekKind() == '"' {
		name, err := s.decoder.ReadToken()
		if err != nil {
			return m, err
		}
		into := m.of(name.String())
		from := s.decoder.InputOffset()
		if err := s.decoder.SkipValue(); err != nil {
			return m, err
		}
		if into != nil {
			*into = bytes.TrimLeft(line[from:s.decoder.InputOffset()], ": \t\r")
		}
	}
	if _, err := s.decoder.ReadToken(); err != nil {
		return m, err
	}
	if _, err := s.decoder.ReadToken(); err != io.EOF {
		return m, errors.New("something follows it")
	}
	return m, nil
}

func (m *members) of(name string) *[]byte {
	switch name {
	case "sequence":
		return &m.sequence
	case "id":
		return &m.id
	case "time":
		return &m.time
	case "kind":
		return &m.kind
	case "inherits":
		return &m.inherits
	case "bundle":
		return &m.bundle
	case "salt":
		return &m.salt
	case "event":
		return &m.event
	case "details":
		return &m.details
	}
	return nil
}

// number reads a sequence in the one way it is written: 7, not 7.0 or 7e0.
func number(text []byte) (n int64, err error) {
	for _, c := range text {
		if c < '0' || c > '9' || n > 1<<53 {
			return 0, errors.New("its sequence is no number")
		}
		n = n*10 + int64(c-'0')
	}
	if len(text) == 0 || len(text) > 1 && text[0] == '0' {
		return 0, errors.New("its sequence is no number")
	}
	return n, nil
}

// batches says of each item of a batch whether the record that it inherits from stands
// before it, as it must: between the two there are only items of the same batch.
type batches struct {
	id   []byte // of the batch that the record before belongs to, empty for none
	gone bool   // a record without content followed that may have been one of a batch
}

// lacks takes a record, and reports whether that of its batch is missing.
func (b *batches) lacks(r *record) bool {
	of := r.of()
	switch {
	case r.batch:
		of = r.id
	case of != nil && (bytes.Equal(of, b.id) || b.gone):
	default:
		*b = batches{id: b.id[:0]}
		return r.inherits
	}
	*b = batches{id: append(b.id[:0], of...)}
	return false
}
