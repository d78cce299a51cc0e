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

	"policy-service/pdp/decisionlog/export"
)

// A merged is a merge of exports being read. Each part is verified as the file that it was, by a checker of its own, which gets
// the lines of the part alone. The merge itself claims two things: an order, which the records fix, and a digest.
type merged struct {
	*exported
	count int
	parts []*part
	at    int   // the part that the lines are of
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
	place   place
	report  Report
}

// place is where a line belongs in a merge, beside its part. A line that is no record goes with the one before it.
type place struct {
	time     string
	sequence int64
}

// merge verifies a merge, whose first line is read.
func (x *exported) merge(first []byte) error {
	m := merged{exported: x, count: x.begin.Parts, at: -1}
	if x.begin.Format != export.MergeFormat {
		return problem(Unreadable, -1, "the merge is of format %d, and this verifies format %d: a newer version made it; verify it with that version", x.begin.Format, export.MergeFormat)
	}
	if m.count < 1 || m.count > export.MaxParts || string(first) != fmt.Sprintf(`{"export":%q,"format":%d,"parts":%d}`, export.LineMerge, export.MergeFormat, m.count) {
		return problem(Unreadable, -1, "this is no merge of exports")
	}
	x.hash(first)
	for range m.count {
		if err := m.open(); err != nil {
			return err
		}
	}
	for _, p := range m.parts {
		m.start(p)
		defer p.stop()
	}
	for _, p := range m.parts {
		p.lines.number = int64(2*p.number) + 3
		if err := p.hand(p.first); err != nil {
			return err
		}
	}
	for {
		line, err := m.next()
		if err != nil {
			return err
		}
		if isWord(line, export.LineMerged) {
			return m.end(line)
		}
		if isWord(line, export.LinePart) {
			if line, err = m.turn(line); err != nil {
				return err
			}
		}
		if err := m.take(m.parts[m.at], line); err != nil {
			return err
		}
	}
}

func isWord(line []byte, word string) bool {
	return bytes.HasPrefix(line, []byte(export.Prefix+`"`+word+`"`))
}

// next is the next line. All but the last are in the digest.
func (m *merged) next() ([]byte, error) {
	line, err := m.lines.next()
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, errCutLine):
		return nil, problem(Truncated, -1, "the merge ends before its last line")
	case err != nil:
		return nil, problem(Altered, -1, "%v", err)
	}
	if !isWord(line, export.LineMerged) {
		m.hash(line)
	}
	return line, nil
}

// turn takes a line that names another part, and returns the line behind it, which is of that part.
func (m *merged) turn(line []byte) ([]byte, error) {
	e, err := parseEnvelope(line)
	if err != nil {
		return nil, err
	}
	was := m.at
	if m.at = e.Part; m.at < 0 || m.at == was || m.at >= m.count ||
		string(line) != fmt.Sprintf(`{"export":%q,"part":%d}`, export.LinePart, m.at) {
		return nil, problem(Altered, -1, "it names no other part of the merge")
	}
	if line, err = m.next(); err == nil && (isWord(line, export.LinePart) || isWord(line, export.LineMerged)) {
		err = problem(Altered, -1, "a line of part %d is not there", m.at)
	}
	return line, err
}

// open takes the first line of the next part.
func (m *merged) open() error {
	line, err := m.next()
	if err == nil {
		line, err = m.turn(line)
	}
	if err != nil {
		return err
	}
	p := &part{number: len(m.parts), first: bytes.Clone(line), place: place{sequence: -1}}
	if p.begin, err = parseEnvelope(line); err != nil {
		return err
	}
	if m.at != p.number || p.begin.Word != export.LineBegin || p.begin.Form != export.FormLog || p.begin.Size == nil {
		return problem(Altered, -1, "the first line of part %d, an export of a log, is not there", p.number)
	}
	if p.number > 0 && m.parts[p.number-1].compare(p) >= 0 {
		return problem(Altered, -1, "the parts are not in their order, or one is there twice")
	}
	m.parts = append(m.parts, p)
	return nil
}

// compare is the order of parts.
func (p *part) compare(other *part) int {
	return cmp.Or(strings.Compare(p.begin.Origin, other.begin.Origin), cmp.Compare(*p.begin.Size, *other.begin.Size), bytes.Compare(p.first, other.first))
}

// start begins to verify a part. A checkpoint that was given is for the longest export of the log that it is of.
func (m *merged) start(p *part) {
	o := m.log.options
	o.Served = ""
	if out := m.log.outside; out != nil && (out.origin != p.begin.Origin || m.ofSame(p.number+1, p)) {
		o.Checkpoint = ""
	}
	p.proceed, p.stop = iter.Pull(func(wait func(struct{}) bool) {
		p.report = run(o, func(c *checker) error {
			p.log = c
			if m.ofSame(p.number-1, p) {
				c.beside = append(c.beside, keep("the checkpoint of another export of this log", "", m.parts[p.number-1].begin.Checkpoint))
			}
			p.lines.handed = func() ([]byte, error) {
				if !wait(struct{}{}) || p.line == nil {
					return nil, io.EOF
				}
				return p.line, nil
			}
			return c.lines(&p.lines)
		})
	})
	_, _ = p.proceed() // up to its first line
}

// ofSame reports whether a part is of the log of another.
func (m *merged) ofSame(number int, as *part) bool {
	return number >= 0 && number < m.count && m.parts[number].begin.Origin == as.begin.Origin
}

// hand gives a part its next line, and nil is the end. It returns the problem of the part, if it has its report then.
func (p *part) hand(line []byte) error {
	p.line = line
	if _, more := p.proceed(); more || line == nil && p.report.Verified() {
		return nil
	}
	found := p.report.Problem
	if found == nil {
		found = problem(Altered, -1, "something follows the export's last line")
	}
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
		p.place = place{p.log.time, p.log.tree.size - 1}
	}
	if m.last != nil && m.last.before(p) > 0 {
		return problem(Altered, -1, "it stands out of order: it belongs before the line above it, which is of %s", m.last.begin.Origin)
	}
	m.last = p
	return nil
}

// before orders lines of several parts.
func (p *part) before(other *part) int {
	return cmp.Or(
		strings.Compare(p.place.time, other.place.time), strings.Compare(p.begin.Origin, other.begin.Origin),
		cmp.Compare(p.place.sequence, other.place.sequence), cmp.Compare(p.number, other.number),
	)
}

// end takes the last line, and has each part judged.
func (m *merged) end(line []byte) error {
	if string(line) != fmt.Sprintf(`{"export":%q,"digest":%q}`, export.LineMerged, hex.EncodeToString(m.digest.Sum(nil))) {
		return problem(Altered, -1, "the merge is not the file that was written: its digest differs")
	}
	if _, err := m.lines.next(); !errors.Is(err, io.EOF) {
		return problem(Altered, -1, "something follows the last line of the merge")
	}
	r := &m.log.report
	for _, p := range m.parts {
		if err := p.hand(nil); err != nil {
			return err
		}
		r.add(p.report)
	}
	var origins []string
	for _, p := range m.parts {
		origins = append(origins, p.begin.Origin)
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
	r.Size, r.Records, r.Unsigned = r.Size+part.Size, r.Records+part.Records, r.Unsigned+part.Unsigned
	r.Redacted, r.Retired, r.Skipped = r.Redacted+part.Redacted, r.Retired+part.Retired, r.Skipped+part.Skipped
	r.Live = r.Live || part.Live
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
