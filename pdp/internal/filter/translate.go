package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// truth are the conditions that an expression is true, and that it is false. Of a row of which neither is so, the expression errs.
type truth struct {
	is, not *condition
	total   bool // the expression errs of no row that fits
}

func (t truth) opposite() truth { return truth{t.not, t.is, t.total} }

func (t truth) and(next truth) truth {
	after := next.not
	if !t.total {
		after = all(t.is, after)
	}
	return truth{all(t.is, next.is), some(t.not, after), t.total && next.total}
}

func (t truth) or(next truth) truth { return t.opposite().and(next.opposite()).opposite() }

func constant(is bool) truth {
	if is {
		return truth{yes, no, true}
	}
	return truth{no, yes, true}
}

var (
	// erring is of an expression that errs.
	erring = truth{is: no, not: no}
	// doubtful is of an expression whose operands are not known: see [translator.unasked].
	doubtful = truth{is: when("NULL"), not: when("NULL")}
)

// translator makes the condition of one question.
type translator struct {
	bundle  *bundle.Bundle
	mapping *bundle.Mapping
	open    *engine.Open
	known   reader
	dialect Dialect
	alias   string            // the table in the application's query, quoted
	columns map[string]string // the names of columns, qualified
	id      column
	policy  *bundle.Policy                    // that is translated
	terms   int                               // that were translated, and stored entities that were looked at for them
	members map[string][]string               // that were found below entities
	values  map[types.EntityUID][]storedValue // of attributes of stored entities, by type and name
	action  bundle.Lineage
	// unasked is set if there is no question: what a question knows may be anything.
	unasked bool
}

// maxTerms bounds the work, as far as it leaves no parts in the condition.
const maxTerms = 100_000

var tooManyTerms = &condition{kind: refused, refused: &Refusal{
	Reason: TooLarge, Detail: "the policies about this action have more than " + strconv.Itoa(maxTerms) + " parts, or values of stored entities",
	Try: "concern fewer policies with this action, or read no attributes of stored entities that the resource names",
}}

// reader reads entities for the terms that are known. Of a mapped entity nothing is known.
type reader struct {
	entities *engine.Overlay
	mapped   types.EntityType
	climbs   bool // some entity has a parent of the mapped type
	met      bool // a mapped entity was read, or is above one that was
}

// Get implements [types.EntityGetter].
func (r *reader) Get(uid types.EntityUID) (types.Entity, bool) {
	r.met = r.met || uid.Type == r.mapped || r.reaches(bundle.LineageOf(uid, r.parents()))
	return r.entities.Get(uid)
}

// parents returns what knows the parents of entities, or nothing if no mapped entity is a parent.
func (r *reader) parents() bundle.ParentsGetter {
	if r.climbs {
		return r.entities
	}
	return noParents{}
}

type noParents struct{}

func (noParents) Parents(types.EntityUID) (none types.EntityUIDSet) { return none }

// reaches reports whether a mapped entity is above another.
func (r *reader) reaches(l bundle.Lineage) bool {
	return slices.ContainsFunc(l.Up, func(uid types.EntityUID) bool { return uid.Type == r.mapped })
}

func (t *translator) column(c bundle.Column) column {
	name, known := t.columns[c.Name]
	if !known {
		name = t.alias + "." + quote(c.Name)
		t.columns[c.Name] = name
	}
	return column{name, c.Type, t.dialect, t.mapping.Strict}
}

// quote quotes a name, which has none but letters, digits and underscores.
func quote(name string) string { return `"` + name + `"` }

func table(names []string) string {
	quoted := make([]string, len(names))
	for n, name := range names {
		quoted[n] = quote(name)
	}
	return strings.Join(quoted, ".")
}

// refuse returns the condition of a term that cannot be translated.
func (t *translator) refuse(of *bundle.Term, detail, try string) *condition {
	r := &Refusal{Reason: Unsupported, Detail: detail, Try: try, Expression: of.Text(), reads: firstRead(of)}
	if t.policy != nil {
		r.Policy, r.Position = t.policy.Id, t.policy.Position
	}
	return &condition{kind: refused, refused: r}
}

// firstRead returns the first attribute in an expression that only a row has.
func firstRead(of *bundle.Term) (none bundle.AttributePath) {
	if of.OfResource && (of.Op == bundle.OpPath || of.Op == bundle.OpHas) {
		return of.Path
	}
	for _, arg := range of.Args {
		if path := firstRead(arg); path.Root != "" {
			return path
		}
	}
	return none
}

func refusing(c *condition) truth { return truth{is: c, not: c} }

// policyTruth returns when a policy is satisfied, and when it is not, without an error.
func (t *translator) policyTruth(p *bundle.Policy) truth {
	t.policy = p
	is := constant(true)
	for _, test := range p.Facts.Scope {
		is = is.and(t.test(test.Term(nil), test))
	}
	for _, term := range p.KeptTerms() {
		if is.is.kind == never {
			break
		}
		is = is.and(t.truth(term))
	}
	return is
}

// truth translates a term that is to be true or false.
func (t *translator) truth(of *bundle.Term) truth {
	if t.terms++; t.terms > maxTerms {
		return refusing(tooManyTerms)
	}
	switch {
	case of.Op == bundle.OpTest:
		return t.test(of, of.Test)
	case of.Op == bundle.OpNot:
		return t.truth(of.Args[0]).opposite()
	case !of.OfResource:
		return t.truthOf(of, t.evaluate(of))
	}
	switch of.Op {
	case bundle.OpAnd, bundle.OpOr:
		first, last := t.truth(of.Args[0]), of.Op == bundle.OpAnd
		if decided := first.is; last && decided.kind == never || !last && first.not.kind == never {
			return first
		}
		if last {
			return first.and(t.truth(of.Args[1]))
		}
		return first.or(t.truth(of.Args[1]))
	case bundle.OpIf:
		return t.either(of)
	case bundle.OpHas:
		last := len(of.Path.Names) - 1
		return t.has(of, t.path(of, of.Path.Names[:last]), of.Path.Names[last])
	case bundle.OpRead:
		if of.Path.Has {
			return t.has(of, t.operands(of.Args[0]), of.Path.Names[0])
		}
	case bundle.OpEqual:
		return t.pairs(of, t.equal)
	case bundle.OpOrder:
		return t.pairs(of, t.order)
	case bundle.OpIn:
		return t.in(of)
	case bundle.OpContains:
		return t.pairs(of, t.contains)
	case bundle.OpIs:
		return t.each(of, t.operands(of.Args[0]), func(o operand) truth {
			typ, ok := t.entityType(o)
			if o.kind == unasked || !ok {
				return ifUnasked(o, erring)
			}
			return constant(typ == of.Test.Is)
		})
	case bundle.OpIsEmpty:
		return t.each(of, t.operands(of.Args[0]), func(o operand) truth {
			known, isSet := o.known.(types.Set)
			switch {
			case o.kind == ofSet:
				return o.set.isEmpty().sure()
			case o.kind == list:
				return constant(len(o.elements) == 0)
			case isSet:
				return constant(known.Len() == 0)
			}
			return ifUnasked(o, erring)
		})
	case bundle.OpLike:
		return t.like(of)
	}
	return t.truthOf(of, t.operands(of))
}

// sure returns the truth of an expression whose operands are there, and that then cannot err.
func (t truth) sure() truth {
	t.total = true
	return t
}

func ifUnasked(o operand, otherwise truth) truth {
	if o.kind == unasked {
		return doubtful
	}
	return otherwise
}

// either translates an if by its branches.
func (t *translator) either(of *bundle.Term) truth {
	test := t.truth(of.Args[0])
	made := truth{is: no, not: no, total: test.total}
	for n, taken := range []*condition{test.is, test.not} {
		if taken.kind == never {
			continue
		}
		b := t.truth(of.Args[n+1])
		made = truth{some(made.is, all(taken, b.is)), some(made.not, all(taken, b.not)), made.total && b.total}
	}
	return made
}

// test translates a test like that of a scope.
func (t *translator) test(of *bundle.Term, test bundle.ScopeTest) truth {
	switch {
	case test.Of == bundle.ActionVar:
		return constant(t.action.Holds(&test))
	case test.Of != bundle.ResourceVar && t.unasked:
		return doubtful
	case test.Of != bundle.ResourceVar:
		return constant(t.open.Up[test.Of].Holds(&test))
	case test.Prefix != "":
		return t.matches(of, t.id, []string{test.Prefix, ""})
	case test.Is != "" && test.Is != t.mapping.Type:
		return constant(false)
	case test.Uids == nil:
		return constant(true)
	case test.Eq:
		return t.equal(of, operand{kind: itself}, operand{kind: value, known: test.Uids[0]})
	}
	return t.rowIn(of, test.Uids)
}

// truthOf translates operands that are to be true or false.
func (t *translator) truthOf(of *bundle.Term, alternatives []alternative) truth {
	return t.each(of, alternatives, func(o operand) truth {
		is, known := o.known.(types.Boolean)
		switch {
		case known:
			return constant(bool(is))
		case o.kind == ofColumn && o.shape.Form == bundle.ShapeBool:
			return o.column.isTrue().sure()
		}
		return ifUnasked(o, erring)
	})
}

// each translates an expression of one operand, by what the operand may be.
func (t *translator) each(of *bundle.Term, alternatives []alternative, translate func(operand) truth) truth {
	if t.terms += len(alternatives); t.terms > maxTerms {
		return refusing(tooManyTerms)
	}
	is, not, total := make([]*condition, len(alternatives)), make([]*condition, len(alternatives)), total(alternatives)
	for n, a := range alternatives {
		one := refusing(a.when)
		if a.when.kind != refused {
			one = translate(a.operand)
		}
		is[n], not[n], total = all(a.when, one.is), all(a.when, one.not), total && one.total
	}
	return truth{some(is...), some(not...), total}
}

// pairs translates an expression of two operands, by what each may be.
func (t *translator) pairs(of *bundle.Term, translate func(of *bundle.Term, left, right operand) truth) truth {
	right := t.operands(of.Args[1])
	return t.each(of, t.operands(of.Args[0]), func(l operand) truth {
		return t.each(of, right, func(r operand) truth { return translate(of, l, r) })
	})
}

// total reports whether one of the alternatives is there in each row that fits.
func total(alternatives []alternative) bool {
	return slices.ContainsFunc(alternatives, func(a alternative) bool { return a.sure || a.when.kind == always })
}

func (t *translator) like(of *bundle.Term) truth {
	texts, err := bundle.PatternTexts(of.Pattern)
	switch {
	case err != nil:
		return refusing(t.refuse(of, "the pattern cannot be read", "write another pattern"))
	case len(texts) > 9:
		return refusing(t.refuse(of, "the pattern has more than 8 stars", "write a pattern with fewer"))
	case len(strings.Join(texts, "")) > maxPattern:
		return refusing(t.refuse(of, fmt.Sprintf("the pattern has more than %d bytes", maxPattern), "write a shorter one"))
	}
	return t.each(of, t.operands(of.Args[0]), func(o operand) truth {
		known, isText := o.known.(types.String)
		switch {
		case o.kind == ofColumn && o.shape.Form == bundle.ShapeString:
			return t.matches(of, o.column, texts)
		case isText:
			return constant(of.Pattern.Match(known))
		}
		return ifUnasked(o, erring)
	})
}

// matches translates that the text of a column matches a pattern. The texts stand between its stars.
func (t *translator) matches(of *bundle.Term, c column, texts []string) truth {
	if t.dialect == SQLite && strings.ContainsAny(strings.Join(texts, ""), "\uFFFD\uFFFE\uFFFF") {
		return refusing(t.refuse(of, "SQLite may take U+FFFD, U+FFFE and U+FFFF for one in a pattern", "compare the text by ==, or write a pattern without them"))
	}
	return c.matches(texts).sure()
}

// maxPattern is less than what SQLite takes as a pattern, in bytes, when each is escaped.
const maxPattern = 10_000
