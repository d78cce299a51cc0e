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

	"policy-service/pdp/internal/decisionlog/format"
)

// Input is an export that Merge reads, once. Errors give its name.
type Input struct {
	Name string
	io.Reader
}

// Merge writes exports as one, and returns how many records they have. It holds a line of each. It refuses lines that
// are in no order, and verifies nothing: the caller does, and also sees whether two exports of one log are of one
// history.
func Merge(w io.Writer, inputs []Input) (records int64, err error) {
	if len(inputs) == 0 || len(inputs) > format.MaxParts {
		return 0, fmt.Errorf("%d exports make no merge; give up to %d", len(inputs), format.MaxParts)
	}
	var all []*input
	for _, one := range inputs {
		in := &input{name: one.Name, source: newSource(one)}
		if err := in.begin(); err != nil {
			return 0, in.failed(err)
		}
		all = append(all, in)
	}
	slices.SortFunc(all, (*input).order)
	for n, in := range all {
		if in.part = n; n > 0 && in.order(all[n-1]) == 0 {
			return 0, fmt.Errorf("%s and %s are one export, of %s; leave one of them out", all[n-1].name, in.name, in.Origin)
		}
	}
	buffered := bufio.NewWriterSize(w, 1<<16)
	out, at := newLines(buffered, 0), -1
	say := func(format string, values ...any) error {
		return out.write(0, fmt.Appendf(nil, format+"\n", values...))
	}
	write := func(in *input) (err error) { // its line, and goes on to the next
		if at != in.part {
			at = in.part
			err = say(`{"export":%q,"part":%d}`, format.LinePart, at)
		}
		if err = cmp.Or(err, out.write(0, in.line)); err == nil {
			err = in.failed(in.next())
		}
		return err
	}
	err = say(`{"export":%q,"format":%d,"parts":%d}`, format.LineMerge, format.MergeVersion, len(all))
	for n := 0; n < len(all) && err == nil; n++ {
		err = write(all[n])
	}
	for err == nil {
		if all = slices.DeleteFunc(all, func(in *input) bool { return in.line == nil }); len(all) == 0 {
			return records, cmp.Or(say(`{"export":%q,"digest":%q}`, format.LineMerged, out.sum()), buffered.Flush())
		}
		in := slices.MinFunc(all, (*input).before)
		if !in.envelope {
			records++
		}
		err = write(in)
	}
	return records, err
}

// input is an export that is read line by line.
type input struct {
	Part
	*source
	name string
	part int
	// at is where the line belongs. One that is no record goes with the one before it.
	at struct {
		Time     string `json:"time"`
		Sequence int64  `json:"sequence"`
	}
}

// failed says in which line of which file.
func (in *input) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("%s:%d: %w", in.name, in.number, err)
	}
	return err
}

// begin reads the first line.
func (in *input) begin() error {
	err := in.read()
	if err == nil || errors.Is(err, io.EOF) {
		in.Part, err = partOf(in.line)
	}
	in.at.Sequence = -1
	return err
}

// next reads the next line, if there is one.
func (in *input) next() error {
	ended := in.is(format.LineEnd)
	switch err := in.read(); {
	case errors.Is(err, io.EOF) && ended:
		return nil
	case errors.Is(err, io.EOF):
		return errors.New("the export ends before its last line")
	case err != nil:
		return err
	case ended:
		return errors.New("something follows the export's last line")
	case in.envelope:
		return nil
	}
	was := in.at
	in.at.Time, in.at.Sequence = "", -1
	if err := json.Unmarshal(in.line, &in.at); err != nil {
		return fmt.Errorf("it is no record: %w", err)
	}
	if in.at.Sequence <= was.Sequence || in.at.Time < was.Time {
		return fmt.Errorf("record %d of %q stands behind record %d of %q, and belongs before it", in.at.Sequence, in.at.Time, was.Sequence, was.Time)
	}
	return nil
}

// order is that of the parts of a merge, by their first lines.
func (in *input) order(other *input) int {
	return cmp.Or(strings.Compare(in.Origin, other.Origin), cmp.Compare(in.Size, other.Size), bytes.Compare(in.line, other.line))
}

// before orders lines of several inputs.
func (in *input) before(other *input) int {
	return cmp.Or(
		strings.Compare(in.at.Time, other.at.Time), strings.Compare(in.Origin, other.Origin),
		cmp.Compare(in.at.Sequence, other.at.Sequence), cmp.Compare(in.part, other.part),
	)
}

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
	s.in.Buffer(nil, format.MaxLine+2)
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
	s.envelope = bytes.HasPrefix(s.line, []byte(format.ExportPrefix))
	return nil
}

// is reports whether the line is one of the envelope, with this word.
func (s *source) is(word string) bool {
	return s.envelope && bytes.HasPrefix(s.line[len(format.ExportPrefix):], []byte(`"`+word+`"`))
}
