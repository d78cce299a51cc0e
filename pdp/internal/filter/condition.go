package filter

import (
	"crypto/sha256"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// condition is SQL that is TRUE of a row exactly if what it stands for is so, and FALSE or NULL of any other row. It never raises
// an error. So conditions are joined by AND and OR alone: NOT would make TRUE of a NULL only if every part were made for it.
type condition struct {
	kind conditionKind
	// present is set on a leaf that says no more than that a column is not NULL.
	present    bool
	nodes      int          // that it is written with
	depth      int          // of its SQL, as a tree
	parts      []*condition // of and, or
	text       string       // of a leaf, with a ? for each parameter
	parameters []*parameter
	// columns are the names of those that are not NULL where a leaf is TRUE.
	columns [2]string
	member  *membership // of a leaf that says that a column's value is among some
	refused *Refusal    // of a refused one
	written string      // its key, once it was asked for
}

// membership is that the value of a column is among some values.
type membership struct {
	column column
	values []string
}

type conditionKind uint8

const (
	always conditionKind = iota
	never
	leaf
	and
	or
	refused // cannot be translated
)

// parameter is a value that the query is run with. Its type is the one that SQL casts it to.
type parameter struct {
	cast  string
	text  string
	texts []string // of a list
	list  bool
}

var (
	yes = &condition{kind: always}
	no  = &condition{kind: never}
)

// maxNodes bounds the size of a condition, which doubles with each level of some nestings.
const maxNodes = 4000

var tooManyNodes = &condition{kind: refused, refused: &Refusal{
	Reason: TooLarge, Detail: "the condition would have more than " + strconv.Itoa(maxNodes) + " parts, or be nested too deeply",
	Try: "split the policies that nest most, or concern fewer policies with this action",
}}

// when returns a leaf. Its text has a ? for each parameter.
func when(text string, parameters ...*parameter) *condition {
	return &condition{kind: leaf, text: text, parameters: parameters, nodes: 1}
}

// defining notes which columns are not NULL where a leaf is TRUE.
func (c *condition) defining(columns ...string) *condition {
	copy(c.columns[:], columns)
	return c
}

// defines reports whether a column is not NULL where the condition is TRUE.
func (c *condition) defines(of string) bool {
	defines := func(part *condition) bool { return part.defines(of) }
	switch c.kind {
	case leaf:
		return c.columns[0] == of || c.columns[1] == of
	case and:
		return slices.ContainsFunc(c.parts, defines)
	case or:
		return !slices.ContainsFunc(c.parts, func(part *condition) bool { return !part.defines(of) })
	}
	return false
}

// key returns a text that is equal for conditions that are written the same: a digest, as a list can have 10,000 ids.
func (c *condition) key() string {
	if c.kind == leaf && c.parameters == nil {
		return c.text // also of leaves that several translators use
	}
	if c.written == "" {
		var key strings.Builder
		key.WriteString(strconv.Itoa(int(c.kind)) + c.text)
		for _, p := range c.parameters {
			key.WriteString("\x00" + p.key())
		}
		for _, part := range c.parts {
			key.WriteString("\x00" + part.key())
		}
		digest := sha256.Sum256([]byte(key.String()))
		c.written = string(digest[:])
	}
	return c.written
}

// same reports whether two leaves are written the same.
func (c *condition) same(as *condition) bool {
	return c.kind == leaf && as.kind == leaf && c.text == as.text && slices.EqualFunc(c.parameters, as.parameters, func(a, b *parameter) bool {
		return a.cast == b.cast && a.text == b.text && a.list == b.list && slices.Equal(a.texts, b.texts)
	})
}

// distinct drops the conditions that are written as one before them.
func distinct(parts []*condition) []*condition {
	if len(parts) <= 16 { // to write each would cost more than to compare them
		kept := parts[:0]
		for _, part := range parts {
			if !slices.ContainsFunc(kept, part.same) {
				kept = append(kept, part)
			}
		}
		return kept
	}
	seen := make(map[string]struct{}, len(parts))
	return slices.DeleteFunc(parts, func(c *condition) bool {
		key := c.key()
		_, known := seen[key]
		seen[key] = struct{}{}
		return known
	})
}

// all returns the conjunction. A part that is never TRUE decides it, also beside parts that cannot be translated.
func all(parts ...*condition) *condition {
	joined := join(and, parts)
	if joined.kind != and || joined.nodes > 0 {
		return joined
	}
	// A part says nothing new if another one says the same, or if it says that a column is not NULL that another defines.
	joined.parts = distinct(joined.parts)
	joined.parts = slices.DeleteFunc(joined.parts, func(part *condition) bool {
		return part.present && slices.ContainsFunc(joined.parts, func(other *condition) bool {
			return other != nil && !other.present && other.defines(part.columns[0])
		})
	})
	if len(joined.parts) == 1 {
		return joined.parts[0]
	}
	return joined.measure()
}

// some returns the disjunction.
func some(parts ...*condition) *condition {
	joined := join(or, parts)
	if joined.kind != or || joined.nodes > 0 {
		return joined
	}
	// Memberships of one column are one.
	at, values := map[string]int{}, map[string][]string{}
	kept := joined.parts[:0]
	for _, part := range distinct(joined.parts) {
		if part.member != nil {
			name := part.columns[0]
			values[name] = append(values[name], part.member.values...)
			if _, known := at[name]; known {
				continue
			}
			at[name] = len(kept)
		}
		kept = append(kept, part)
	}
	for name, n := range at {
		if m := kept[n].member; len(values[name]) > len(m.values) {
			kept[n] = m.column.isAmong(values[name])
		}
	}
	if joined.parts = kept; len(kept) == 1 {
		return kept[0]
	}
	return joined.measure()
}

// join flattens parts of the same kind, and leaves out those that make no difference. What it returns has been measured if one part
// is all that is left.
func join(kind conditionKind, parts []*condition) *condition {
	neutral, decisive := yes, no
	if kind == or {
		neutral, decisive = no, yes
	}
	var one, untranslated *condition
	size := 0
	for _, part := range parts {
		switch part.kind {
		case decisive.kind:
			return decisive
		case neutral.kind:
			continue
		case refused:
			if untranslated == nil {
				untranslated = part
			}
		case kind:
			size += len(part.parts)
		default:
			size++
		}
		one = part
	}
	switch {
	case untranslated != nil:
		return untranslated
	case one == nil:
		return neutral
	case size == 1, one.kind == kind && size == len(one.parts):
		return one
	}
	joined := &condition{kind: kind, parts: make([]*condition, 0, size)}
	for _, part := range parts {
		if part.kind == kind {
			joined.parts = append(joined.parts, part.parts...)
		} else if part.kind != neutral.kind {
			joined.parts = append(joined.parts, part)
		}
	}
	return joined
}

func (c *condition) measure() *condition {
	c.nodes = 1
	for _, part := range c.parts {
		c.nodes += part.nodes
		c.depth = max(c.depth, part.depth)
	}
	if c.depth += min(len(c.parts), widest+bits.Len(uint(len(c.parts)))); c.nodes > maxNodes || c.depth > maxDepth {
		return tooManyNodes
	}
	return c
}

// maxDepth is less than the depth of an expression that SQLite takes, 1,000, by what a leaf and the application's query have.
const maxDepth = 800

// isNotTrue returns the condition that another is FALSE or NULL.
func isNotTrue(c *condition) *condition {
	switch c.kind {
	case always:
		return no
	case never:
		return yes
	case refused:
		return c
	}
	// In SQLite, IS NOT TRUE would compare with a column named true.
	made := when("CASE WHEN "+c.sql(always)+" THEN 1 ELSE 0 END <> 1", c.all(nil)...)
	made.nodes, made.depth = made.nodes+c.nodes, c.depth+1
	return made
}

// sql returns the text of the condition, with a ? for each parameter. within is the kind of what is around it.
func (c *condition) sql(within conditionKind) string {
	switch c.kind {
	case always:
		return "TRUE"
	case never:
		return "FALSE"
	case leaf:
		return c.text
	}
	texts := make([]string, len(c.parts))
	for n, part := range c.parts {
		texts[n] = part.sql(c.kind)
	}
	sign := " AND "
	if c.kind == or {
		sign = " OR "
	}
	for len(texts) > widest { // a long row is a deep tree for SQLite
		halved := texts[:0]
		for pair := range slices.Chunk(texts, 2) {
			if text := pair[0]; len(pair) == 2 {
				halved = append(halved, "("+text+sign+pair[1]+")")
			} else {
				halved = append(halved, text)
			}
		}
		texts = halved
	}
	text := strings.Join(texts, sign)
	if within == always {
		return text
	}
	return "(" + text + ")"
}

// widest is how many parts stand beside each other at the most.
const widest = 100

// all returns the parameters of the condition, in the order of its text.
func (c *condition) all(to []*parameter) []*parameter {
	to = append(to, c.parameters...)
	for _, part := range c.parts {
		to = part.all(to)
	}
	return to
}

// key returns a text that is equal for equal parameters. No text of a parameter has U+0000.
func (p *parameter) key() string {
	if p.list {
		return p.cast + "[]\x00" + strings.Join(p.texts, "\x00")
	}
	return p.cast + "\x00" + p.text
}

// The bounds of what is written.
const (
	maxParameters = 256 << 10
	maxSQL        = 64 << 10
)

// write writes a condition for a query. Equal parameters are one.
func (f *Filter) write(c *condition, o Options) *Refusal {
	if c.kind == refused {
		return c.refused
	}
	text := c.sql(always)
	switch {
	case c.kind == always:
		f.Rows = All
	case c.kind == never:
		f.Rows = None
	default:
		f.Rows, text = Some, "("+text+")"
	}
	if f.Rows != Some && o.Dialect == SQLite { // in which TRUE may be a column
		text = map[Rows]string{All: "1 = 1", None: "1 = 0"}[f.Rows]
	}
	parameters := c.all(nil)
	var written strings.Builder
	written.Grow(len(text) + 12*len(parameters))
	size, known := 0, map[string]int{}
	part := 0 // where in the text the part begins that is written next
	for _, p := range parameters {
		key := p.key()
		at, seen := known[key]
		if !seen {
			at = len(f.Parameters)
			known[key] = at
			if size += len(key); p.list {
				f.Parameters = append(f.Parameters, p.texts)
			} else {
				f.Parameters = append(f.Parameters, p.text)
			}
		}
		before, next, _ := strings.Cut(text, "?")
		opens, closes := o.Dialect.cast(p)
		written.WriteString(before + opens)
		f.Parts = append(f.Parts, written.String()[part:], at)
		written.WriteString(o.Dialect.placeholder(max(o.First, 1) + at))
		part, text = written.Len(), next
		written.WriteString(closes)
	}
	written.WriteString(text)
	f.Parts = append(f.Parts, written.String()[part:])
	switch f.SQL = written.String(); {
	case size > maxParameters:
		return &Refusal{Reason: TooLarge, Detail: "the parameters would have more than " + strconv.Itoa(maxParameters) + " bytes",
			Try: "name groups in policies, or have fewer entities in the groups that they name"}
	case len(f.SQL) > maxSQL:
		return &Refusal{Reason: TooLarge, Detail: "the condition would have more than " + strconv.Itoa(maxSQL) + " bytes",
			Try: "concern fewer policies with this action"}
	}
	return nil
}
