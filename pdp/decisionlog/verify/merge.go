package verify

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"policy-service/pdp/internal/decisionlog/format"
)

// A merged is a merge of exports being read. Each part is verified as the file that it was, by a checker of its own,
// which gets the lines of the part alone. The merge itself claims two things: an order, which the records fix, and a
// digest.
type merged struct {
	*exported
	parts []*part
	at    int   // the part that a line is of
	last  *part // that has the line before
}

// A part is an export in a merge.
type part struct {
	number int
	first  []byte // its first line
	begin  envelope
	log    *checker
	lines  lines
	line   []byte // that is handed to it next; nil at the end
	// proceed has the checker take the line, and go on until it wants the next, or has its report.
	proceed func() (struct{}, bool)
	stop    func()
	report  Report
	// time and sequence are where a line belongs. One that is no record goes with the one before it.
	time     string
	sequence int64
}

// merge verifies a merge, whose first line is read.
func (x *exported) merge(line []byte) error {
	if x.begin.Format != format.MergeVersion || x.begin.Parts > format.MaxParts {
		return problem(Unreadable, -1, "the merge is of format %d and has %d parts, and this verifies format %d with %d parts: a newer version made it; verify it with that version",
			x.begin.Format, x.begin.Parts, format.MergeVersion, format.MaxParts)
	}
	m := merged{exported: x, at: -1}
	if !isLine(line, format.LineMerge, `,"format":%d,"parts":%d}`, x.begin.Format, x.begin.Parts) || x.begin.Parts < 1 {
		return problem(Altered, -1, "it is no line that a merge begins with")
	}
	x.hash(line)
	for len(m.parts) < x.begin.Parts {
		if err := m.open(); err != nil {
			return err
		}
	}
	for _, p := range m.parts {
		m.start(p)
		defer p.stop()
		if err := p.hand(p.first); err != nil {
			return err
		}
	}
	for {
		line, err := m.next(false)
		switch {
		case err != nil:
			return err
		case isWord(line, format.LineMerged):
			return m.end(line)
		}
		if err := m.take(m.parts[m.at], line); err != nil {
			return err
		}
	}
}

func isWord(line []byte, word string) bool {
	return bytes.HasPrefix(line, []byte(format.ExportPrefix+`"`+word+`"`))
}

// isLine reports whether a line of the merge is as the writer writes it.
func isLine(line []byte, word, layout string, values ...any) bool {
	return string(line) == format.ExportPrefix+`"`+word+`"`+fmt.Sprintf(layout, values...)
}

// next is the next line of a part, or the last line. Turned says that the line before says whose it is.
func (m *merged) next(turned bool) ([]byte, error) {
	line, err := m.lines.next()
	last, turn := isWord(line, format.LineMerged), isWord(line, format.LinePart)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, errCutLine):
		return nil, problem(Truncated, -1, "the merge ends before its last line")
	case err != nil:
		return nil, problem(Altered, -1, "%v", err)
	case turned && (last || turn):
		return nil, problem(Altered, -1, "a line of part %d belongs here", m.at)
	case last:
		return line, nil
	}
	if m.hash(line); !turn {
		return line, nil
	}
	e, err := parseEnvelope(line)
	if err != nil {
		return nil, err
	}
	if e.Part < 0 || e.Part == m.at || e.Part >= m.begin.Parts || !isLine(line, format.LinePart, `,"part":%d}`, e.Part) {
		return nil, problem(Altered, -1, "it names no other part of the merge")
	}
	m.at = e.Part
	return m.next(true)
}

// open reads the first line of the next part.
func (m *merged) open() error {
	line, err := m.next(false)
	if err != nil {
		return err
	}
	p := &part{number: len(m.parts), first: bytes.Clone(line), sequence: -1}
	p.lines.number = m.lines.number
	if p.begin, err = parseEnvelope(line); err != nil {
		return err
	}
	if b := &p.begin; m.at != p.number || b.Word != format.LineBegin || b.Form != format.FormLog || b.Size == nil {
		return problem(Altered, -1, "the first line of part %d, an export of a log, belongs here", p.number)
	}
	if m.parts = append(m.parts, p); p.number == 0 {
		return nil
	}
	before := m.parts[p.number-1]
	if cmp.Or(strings.Compare(before.begin.Origin, p.begin.Origin), cmp.Compare(*before.begin.Size, *p.begin.Size), bytes.Compare(before.first, p.first)) >= 0 {
		return problem(Altered, -1, "it belongs before the part above it, or is the same")
	}
	return nil
}

// start begins to verify a part. A checkpoint that was given is for the longest export of the log that it is of, and of
// two exports of one log the longer continues the shorter.
func (m *merged) start(p *part) {
	ofSame := func(number int) bool {
		return number >= 0 && number < len(m.parts) && m.parts[number].begin.Origin == p.begin.Origin
	}
	o := m.log.options
	o.Served = ""
	if out := m.log.outside; out != nil && (out.origin != p.begin.Origin || ofSame(p.number+1)) {
		o.Checkpoint = ""
	}
	p.proceed, p.stop = iter.Pull(func(wait func(struct{}) bool) {
		p.report = run(o, func(c *checker) error {
			p.log = c
			if ofSame(p.number - 1) {
				c.beside = append(c.beside, keep("the checkpoint of another export of this log", "", m.parts[p.number-1].begin.Checkpoint))
			}
			p.lines.handed = func() ([]byte, error) {
				if p.line == nil && (!wait(struct{}{}) || p.line == nil) {
					return nil, io.EOF
				}
				line := p.line
				p.line = nil
				return line, nil
			}
			return c.lines(&p.lines)
		})
	})
}

// hand gives a part its next line, and nil is the end. It returns the problem of the part, if it has its report then.
func (p *part) hand(line []byte) error {
	p.line = line
	if _, more := p.proceed(); more || line == nil && p.report.Verified() {
		return nil
	}
	found := cmp.Or(p.report.Problem, problem(Altered, -1, "something follows the export's last line"))
	found.Origin = p.begin.Origin
	return found
}

// take hands a line to the part that it is of, and holds the order of the lines against the records.
func (m *merged) take(p *part, line []byte) error {
	p.lines.number = m.lines.number
	if err := p.hand(line); err != nil {
		return err
	}
	if !isEnvelope(line) {
		p.time, p.sequence = p.log.time, p.log.tree.size-1
	}
	if b := m.last; b != nil && cmp.Or(strings.Compare(b.time, p.time), strings.Compare(b.begin.Origin, p.begin.Origin),
		cmp.Compare(b.sequence, p.sequence), cmp.Compare(b.number, p.number)) > 0 {
		return problem(Altered, -1, "it belongs before the line above it, which is of %s", b.begin.Origin)
	}
	m.last = p
	return nil
}

// end takes the last line, and has each part judged.
func (m *merged) end(line []byte) error {
	if !isLine(line, format.LineMerged, `,"digest":%q}`, hex.EncodeToString(m.digest.Sum(nil))) {
		return problem(Altered, -1, "the merge is not the file that was written: its digest differs")
	}
	if _, err := m.lines.next(); !errors.Is(err, io.EOF) {
		return problem(Altered, -1, "something follows the last line of the merge")
	}
	var origins []string
	for _, p := range m.parts {
		if err := p.hand(nil); err != nil {
			return err
		}
		origins = append(origins, p.begin.Origin)
		m.log.report.add(p.report)
	}
	if out := m.log.outside; out != nil && !slices.Contains(origins, out.origin) {
		return problem(Usage, -1, "the checkpoint given is of the log %s, of which there is no part", out.origin)
	}
	m.log.absent(origins...)
	return nil
}

// add adds the report of a part.
func (r *Report) add(part Report) {
	r.Parts = append(r.Parts, part)
	r.Size, r.Records, r.Live = r.Size+part.Size, r.Records+part.Records, r.Live || part.Live
	r.Withdrawn += part.Withdrawn
	r.Redacted, r.Retired, r.Skipped = r.Redacted+part.Redacted, r.Retired+part.Retired, r.Skipped+part.Skipped
	for _, line := range part.Proved {
		r.proved("%s: %s", part.Origin, line)
	}
	for _, line := range part.NotExcluded {
		r.doubt("%s: %s", part.Origin, line)
	}
}

// absent names the logs whose keys were given, and of which there is nothing.
func (c *checker) absent(origins ...string) {
	for _, one := range c.keys.given {
		if origin := one.Name(); !slices.Contains(origins, origin) {
			origins = append(origins, origin)
			c.report.doubt("anything about the log %s: its key was given, and nothing here is of it", origin)
		}
	}
}
