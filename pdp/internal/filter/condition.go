package filter

import (
	"slices"
	"strconv"
	"strings"
)

// condition is SQL that is TRUE of a row exactly if what it stands for is so, and FALSE or NULL of any other row. It never raises
// an error. So conditions are joined by AND and OR alone: NOT would make TRUE of a NULL only if every part were made for it.
type condition struct {
	kind    conditionKind
	parts   []*condition // of and, or
	text    []any        // of a leaf: texts and parameters
	nodes   int          // that it is written with
	refused *Refusal     // of a refused one
	// defines are the columns that are not NULL where the condition is TRUE. present is the column of a leaf that says no more
	// than that.
	defines []string
	present string
	// member is set on a leaf that says that a column's value is among some values.
	member *membership
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

// membership is that the value of a column is among some values.
type membership struct {
	column column
	values []string
}

var (
	yes = &condition{kind: always}
	no  = &condition{kind: never}
)

// maxNodes bounds the size of a condition, which doubles with each level of some nestings.
const maxNodes = 4000

var tooManyNodes = &condition{kind: refused, refused: &Refusal{
	Reason: TooLarge, Detail: "the condition would have more than " + strconv.Itoa(maxNodes) + " parts",
	Try: "split the policies that nest most, or concern fewer policies with this action",
}}

// when returns a leaf made of texts and parameters.
func when(text ...any) *condition { return &condition{kind: leaf, text: text, nodes: 1} }

// defining notes which columns are not NULL where a leaf is TRUE.
func (c *condition) defining(columns ...string) *condition {
	c.defines = columns
	return c
}

// all returns the conjunction. A part that is never TRUE decides it, also beside parts that cannot be translated.
func all(parts ...*condition) *condition {
	joined := join(and, parts)
	if joined.kind != and {
		return joined
	}
	// A part says nothing new if it says that a column is not NULL, and another part defines the column.
	said := joined.parts
	joined.parts = nil
	for n, part := range said {
		implied := part.present != "" && slices.ContainsFunc(said, func(other *condition) bool {
			return other.present == "" && slices.Contains(other.defines, part.present)
		}) || part.present != "" && slices.ContainsFunc(said[:n], func(other *condition) bool { return other.present == part.present })
		if !implied {
			joined.parts = append(joined.parts, part)
			joined.defines = append(joined.defines, part.defines...)
		}
	}
	if len(joined.parts) == 1 {
		return joined.parts[0]
	}
	return joined.measure()
}

// any returns the disjunction.
func some(parts ...*condition) *condition {
	joined := join(or, parts)
	if joined.kind != or {
		return joined
	}
	// Memberships of one column are one.
	var kept []*condition
	for _, part := range joined.parts {
		at := slices.IndexFunc(kept, func(other *condition) bool {
			return part.member != nil && other.member != nil && other.member.column.name == part.member.column.name
		})
		if at < 0 {
			kept = append(kept, part)
			continue
		}
		m := kept[at].member
		kept[at] = m.column.isAmong(append(slices.Clone(m.values), part.member.values...))
	}
	joined.parts = kept
	if len(kept) == 1 {
		return kept[0]
	}
	joined.defines = slices.Clone(kept[0].defines)
	for _, part := range kept[1:] {
		joined.defines = slices.DeleteFunc(joined.defines, func(name string) bool { return !slices.Contains(part.defines, name) })
	}
	return joined.measure()
}

// join flattens parts of the same kind, and leaves out those that make no difference.
func join(kind conditionKind, parts []*condition) *condition {
	neutral, decisive := yes, no
	if kind == or {
		neutral, decisive = no, yes
	}
	joined := &condition{kind: kind}
	var untranslated *condition
	for _, part := range parts {
		switch part.kind {
		case decisive.kind:
			return decisive
		case neutral.kind:
		case refused:
			if untranslated == nil {
				untranslated = part
			}
		case kind:
			joined.parts = append(joined.parts, part.parts...)
		default:
			joined.parts = append(joined.parts, part)
		}
	}
	switch {
	case untranslated != nil:
		return untranslated
	case len(joined.parts) == 0:
		return neutral
	case len(joined.parts) == 1:
		return joined.parts[0]
	}
	return joined
}

func (c *condition) measure() *condition {
	c.nodes = 1
	for _, part := range c.parts {
		c.nodes += part.nodes
	}
	if c.nodes > maxNodes {
		return tooManyNodes
	}
	return c
}

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
	return (&condition{kind: leaf, text: slices.Concat([]any{"("}, c.flat(nil, always), []any{") IS NOT TRUE"}), nodes: c.nodes + 1})
}

// flat appends the texts and parameters of a condition. within is the kind of what is around it.
func (c *condition) flat(to []any, within conditionKind) []any {
	switch c.kind {
	case always:
		return append(to, "TRUE")
	case never:
		return append(to, "FALSE")
	case leaf:
		return append(to, c.text...)
	}
	sign := " AND "
	if c.kind == or {
		sign = " OR "
	}
	if within == leaf || within != always && within != c.kind {
		to = append(to, "(")
	}
	for n, part := range c.parts {
		if n > 0 {
			to = append(to, sign)
		}
		to = part.flat(to, c.kind)
	}
	if within == leaf || within != always && within != c.kind {
		to = append(to, ")")
	}
	return to
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
	f.Rows = Some
	switch c.kind {
	case always:
		f.Rows = All
	case never:
		f.Rows = None
	}
	var sql, text strings.Builder
	size := 0
	known := map[string]int{}
	flat := c.flat(nil, always)
	if f.Rows == Some {
		flat = slices.Concat([]any{"("}, flat, []any{")"})
	}
	for _, one := range flat {
		p, ok := one.(parameter)
		if !ok {
			text.WriteString(one.(string))
			sql.WriteString(one.(string))
			continue
		}
		key := p.cast + "\x00" + strconv.FormatBool(p.list) + p.text + strings.Join(p.texts, "\x00")
		n, seen := known[key]
		if !seen {
			n = len(f.Parameters)
			known[key] = n
			var value any = p.text
			if size += len(p.text); p.list {
				value = p.texts
				for _, element := range p.texts {
					size += len(element) + 3
				}
			}
			f.Parameters = append(f.Parameters, value)
		}
		before, after := o.Dialect.cast(p)
		f.Parts = append(f.Parts, text.String()+before, n)
		text.Reset()
		text.WriteString(after)
		sql.WriteString(before + o.Dialect.placeholder(max(o.First, 1)+n) + after)
		if size > maxParameters {
			return &Refusal{Reason: TooLarge, Detail: "the parameters would have more than " + strconv.Itoa(maxParameters) + " bytes",
				Try: "name groups in policies, or have fewer entities in the groups that they name"}
		}
	}
	if f.Parts = append(f.Parts, text.String()); sql.Len() > maxSQL {
		return &Refusal{Reason: TooLarge, Detail: "the condition would have more than " + strconv.Itoa(maxSQL) + " bytes",
			Try: "concern fewer policies with this action"}
	}
	f.SQL = sql.String()
	return nil
}
