package export

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/decisionlog"
)

// A merge is exports of the form "log" in one file. Each line of each export is in it once, byte for byte, and the lines of one
// export stand in their order: without the lines of the merge, and without those of the other exports, an export is the file
// that it was, and verifies as that.
//
//	{"export":"merge","format":1,"parts":2}
//	{"export":"part","part":0}
//	{"export":"begin",…}
//	{"export":"part","part":1}
//	{"export":"begin",…}
//	{"sequence":0,…}
//	{"sequence":1,…}
//	{"export":"part","part":0}
//	{"sequence":0,…}
//	{"export":"end",…}
//	{"export":"part","part":1}
//	{"export":"end",…}
//	{"export":"merged","digest":"…"}
//
// "merge" is the first line. A line "part" says of which export the lines below it are, up to the next such line. The exports
// are counted from 0, in the order of their origins, then of their sizes, then of their first lines, of which no two are
// equal. First come the first lines of all. The records stand in the order of their times, at one time in that of origins,
// then of sequences, then of parts. A line that is no record goes with the line before it of its export. So the exports alone
// make the order, and a merge of the same exports is the same file. "merged" is the last line, with the SHA-256, as 64
// hexadecimal digits, of every byte before it.
//
// A step that another replica recorded again, because the log that was to have it was lost, may stand in two logs with one id.
// Both lines stay: the proof of each log needs its own. [Reader] marks the second.
//
// The format grows as that of an export does.
const (
	// MergeFormat is the number of this format.
	MergeFormat = 1
	// MaxParts is how many exports a merge has at most.
	MaxParts = 1000

	// The lines of the merge.
	LineMerge  = "merge"
	LinePart   = "part"
	LineMerged = "merged"
)

// Input is an export that Merge reads, once. Errors give its name.
type Input struct {
	Name string
	io.Reader
}

// Merged says what a merge holds.
type Merged struct {
	Parts   []Part
	Records int64
}

// Merge writes exports as one. It holds a line of each. It finds lines that are no export's, and verifies nothing: the caller
// does, and also sees whether two exports of one log are of one history.
func Merge(w io.Writer, inputs []Input) (Merged, error) {
	var done Merged
	if len(inputs) == 0 || len(inputs) > MaxParts {
		return done, fmt.Errorf("%d exports make no merge; give up to %d", len(inputs), MaxParts)
	}
	var all []*input
	for _, one := range inputs {
		in := newInput(one)
		if err := in.begin(); err != nil {
			return done, in.failed(err)
		}
		all = append(all, in)
	}
	slices.SortFunc(all, (*input).order)
	for n, in := range all {
		if in.part = n; n > 0 && bytes.Equal(in.line, all[n-1].line) {
			return done, fmt.Errorf("%s and %s are one export, of %s; leave one of them out", all[n-1].name, in.name, in.Origin)
		}
		done.Parts = append(done.Parts, in.Part)
	}
	buffered := bufio.NewWriterSize(w, 1<<16)
	out := newLines(buffered, 0)
	err := out.write(0, fmt.Appendf(nil, "{\"export\":%q,\"format\":%d,\"parts\":%d}\n", LineMerge, MergeFormat, len(all)))
	at := -1
	write := func(in *input) error { // its line, and goes on to the next
		if err == nil && at != in.part {
			at = in.part
			err = out.write(0, fmt.Appendf(nil, "{\"export\":%q,\"part\":%d}\n", LinePart, at))
		}
		if err == nil {
			err = out.write(0, in.line)
		}
		if err == nil {
			err = in.failed(in.next())
		}
		return err
	}
	for _, in := range all {
		if err := write(in); err != nil {
			return done, err
		}
	}
	for {
		if all = slices.DeleteFunc(all, func(in *input) bool { return in.line == nil }); len(all) == 0 {
			break
		}
		in := slices.MinFunc(all, (*input).before)
		if !in.envelope {
			done.Records++
		}
		if err := write(in); err != nil {
			return done, err
		}
	}
	err = out.write(0, fmt.Appendf(nil, "{\"export\":%q,\"digest\":%q}\n", LineMerged, out.sum()))
	return done, cmp.Or(err, buffered.Flush())
}

// input is an export that is read line by line.
type input struct {
	Part
	name string
	part int
	*source
	ended bool
	at    place
}

// place is where a record stands in a merge, beside its part.
type place struct {
	Time     string `json:"time"`
	Sequence int64  `json:"sequence"`
}

func newInput(one Input) *input {
	return &input{name: one.Name, source: newSource(one), at: place{Sequence: -1}}
}

// failed says in which line of which file. What was read last is the line that is wrong.
func (in *input) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s:%d: %w", in.name, in.number, err)
}

// order is that of the parts of a merge, by their first lines.
func (in *input) order(other *input) int {
	return cmp.Or(strings.Compare(in.Origin, other.Origin), cmp.Compare(in.Size, other.Size), bytes.Compare(in.line, other.line))
}

// begin reads the first line.
func (in *input) begin() error {
	err := in.read()
	if in.is(LineMerge) {
		return errors.New("it is a merge already; give the exports that it was made of")
	}
	if err == nil || errors.Is(err, io.EOF) {
		in.Part, err = partOf(in.line)
	}
	return err
}

// next reads the next line, if there is one.
func (in *input) next() error {
	switch err := in.read(); {
	case errors.Is(err, io.EOF) && in.ended:
		return nil
	case errors.Is(err, io.EOF):
		return errors.New("the export ends before its last line")
	case err != nil:
		return err
	case in.ended:
		return errors.New("something follows the export's last line")
	case in.envelope:
		in.ended = in.is(LineEnd)
		return nil
	}
	is := place{Sequence: -1}
	if err := json.Unmarshal(in.line, &is); err != nil {
		return fmt.Errorf("it is no record: %w", err)
	}
	if is.Sequence <= in.at.Sequence || is.Time < in.at.Time {
		return fmt.Errorf("record %d of %q stands behind record %d of %q, and belongs before it", is.Sequence, is.Time, in.at.Sequence, in.at.Time)
	}
	in.at = is
	return nil
}

// before orders lines of several inputs. One that is no record goes with the line before it.
func (in *input) before(other *input) int {
	return cmp.Or(
		strings.Compare(in.at.Time, other.at.Time), strings.Compare(in.Origin, other.Origin),
		cmp.Compare(in.at.Sequence, other.at.Sequence), cmp.Compare(in.part, other.part),
	)
}

var errNoExport = fmt.Errorf("it is no export of a decision log of format %d; give what log export writes", Format)

// source reads the lines of a file.
type source struct {
	in     *bufio.Scanner
	number int64
	line   []byte // with its newline; nil at the end
	// envelope reports whether the line is none of a record.
	envelope bool
}

func newSource(in io.Reader) *source {
	s := &source{in: bufio.NewScanner(in)}
	s.in.Buffer(nil, decisionlog.MaxLine+2)
	s.in.Split(func(data []byte, atEOF bool) (advance int, token []byte, err error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i+1], nil
		}
		if atEOF && len(data) > 0 {
			err = errors.New("the last line is cut off")
		}
		return 0, nil, err
	})
	return s
}

// read goes to the next line, or is io.EOF.
func (s *source) read() error {
	s.number++
	if !s.in.Scan() {
		s.line, s.envelope = nil, false
		return cmp.Or(s.in.Err(), io.EOF)
	}
	s.line = s.in.Bytes()
	s.envelope = bytes.HasPrefix(s.line, []byte(Prefix))
	return nil
}

// is reports whether the line is one of the envelope, with this word.
func (s *source) is(word string) bool {
	return s.envelope && bytes.HasPrefix(s.line[len(Prefix):], []byte(`"`+word+`"`))
}
