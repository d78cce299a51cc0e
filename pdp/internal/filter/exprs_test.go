package filter_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// expr is an expression of a policy.
type expr struct {
	op    string // that is negated in [expr.with]; "" where that would make another policy invalid
	form  string // what it is about, more closely
	parts []any  // strings and *expr
	// swaps is set on an if that has values, of which two parts change places when it is negated.
	swaps [2]int
}

func ex(op, form string, parts ...any) *expr { return &expr{op: op, form: form, parts: parts} }

// choice makes an if that has values.
func choice(form string, test *expr, then, otherwise any) *expr {
	return &expr{op: "if of values", form: form, parts: []any{"(if ", test, " then ", then, " else ", otherwise, ")"}, swaps: [2]int{3, 5}}
}

func (e *expr) write(b *strings.Builder) {
	for _, p := range e.parts {
		if inner, is := p.(*expr); is {
			inner.write(b)
		} else {
			b.WriteString(p.(string))
		}
	}
}

// walk visits an expression and all within.
func (e *expr) walk(visit func(*expr)) {
	visit(e)
	for _, p := range e.parts {
		if inner, is := p.(*expr); is {
			inner.walk(visit)
		}
	}
}

// rule is a policy.
type rule struct {
	effect   string
	obliges  bool
	ofTenant bool
	scope    []*expr // of the principal, the action and the resource
	clauses  []clause
}

type clause struct {
	unless bool
	expr   *expr
}

// String returns the text of the policy.
func (r *rule) String() string {
	var b strings.Builder
	if r.obliges {
		b.WriteString("@obligation(\"second_look\")\n")
	}
	b.WriteString(r.effect + "(")
	for n, variable := range []string{"principal", ", action", ", resource"} {
		if e := r.scope[n]; e == nil {
			b.WriteString(variable)
		} else {
			b.WriteString(variable[:len(variable)-len(e.form)])
			e.write(&b)
		}
	}
	b.WriteString(")")
	for _, c := range r.clauses {
		if c.unless {
			b.WriteString("\nunless { ")
		} else {
			b.WriteString("\nwhen { ")
		}
		c.expr.write(&b)
		b.WriteString(" }")
	}
	b.WriteString(";\n")
	return b.String()
}

// with returns the policy with an operator negated, in the scope as a condition. The policy may not have it.
func (r *rule) with(negated *expr) *rule {
	made := *r
	made.scope, made.clauses = slices.Clone(r.scope), slices.Clone(r.clauses)
	for n, e := range r.scope {
		if e == negated && e != nil {
			made.scope[n] = nil
			made.clauses = slices.Insert(made.clauses, 0, clause{expr: e.with(negated)})
		}
	}
	for n, c := range r.clauses {
		made.clauses[len(made.clauses)-len(r.clauses)+n] = clause{c.unless, c.expr.with(negated)}
	}
	return &made
}

// with returns the expression with an operator in it negated.
func (e *expr) with(negated *expr) *expr {
	made := *e
	made.parts = slices.Clone(e.parts)
	for n, p := range e.parts {
		if inner, is := p.(*expr); is {
			made.parts[n] = inner.with(negated)
		}
	}
	switch {
	case e != negated:
		return &made
	case e.swaps[1] > 0:
		made.parts[e.swaps[0]], made.parts[e.swaps[1]] = made.parts[e.swaps[1]], made.parts[e.swaps[0]]
		return &made
	}
	return ex("!", "", "(!(", &made, "))")
}

// operators returns what can be negated in the policies.
func (w *world) operators() (all []*expr) {
	add := func(e *expr) {
		if e.op != "" {
			all = append(all, e)
		}
	}
	for _, r := range w.policies {
		for _, e := range r.scope {
			if e != nil {
				e.walk(add)
			}
		}
		for _, c := range r.clauses {
			c.expr.walk(add)
		}
	}
	return all
}

// write makes the policies.
func (g *generator) write() {
	d := g.choices
	rule := func(effect string, depth int) *rule {
		r := &rule{effect: effect, scope: []*expr{g.principalScope(), g.actionScope(), g.resourceScope()}}
		for range oneOf(d, 1, 1, 1, 2) {
			r.clauses = append(r.clauses, clause{d.chance(25), g.boolean(depth)})
		}
		if r.ofTenant = g.tenant == "acme" && d.chance(40); r.ofTenant {
			r.obliges = false
		}
		g.policies = append(g.policies, r)
		return r
	}
	for range oneOf(d, 1, 2, 2, 3, 3) {
		rule("permit", oneOf(d, 0, 1, 1, 2, 2, 3))
	}
	for range oneOf(d, 0, 0, 1, 1, 2) {
		rule("forbid", oneOf(d, 0, 1, 2))
	}
	if d.chance(40) {
		for range oneOf(d, 1, 1, 2) {
			r := rule("permit", oneOf(d, 0, 1, 2))
			r.obliges, r.ofTenant = true, false
		}
	}
}

func (g *generator) principalScope() *expr {
	d := g.choices
	switch roll := d.IntN(100); {
	case roll < 4:
		return ex("scope ==", "principal", "principal == "+g.literal(ofUser))
	case roll < 8:
		return ex("scope in", "principal", "principal in "+g.literal(ofTeam))
	case roll < 14:
		return ex("scope is", "principal", "principal is "+g.prefix+"user")
	case roll < 18:
		return ex("scope is in", "principal", "principal is "+g.prefix+"user in "+g.literal(ofTeam))
	}
	return nil
}

func (g *generator) actionScope() *expr {
	d := g.choices
	switch roll := d.IntN(100); {
	case roll < 6:
		return ex("scope ==", "action", `action == `+g.prefix+`Action::"read"`)
	case roll < 14:
		return ex("scope in", "action", `action in [`+g.prefix+`Action::"read", `+g.prefix+`Action::"edit"]`)
	case roll < 18:
		return ex("scope in", "action", `action in `+g.prefix+`Action::"any"`)
	}
	return nil
}

func (g *generator) resourceScope() *expr {
	d := g.choices
	switch roll := d.IntN(100); {
	case roll < 4:
		return ex("scope ==", "resource", "resource == "+g.literal(ofDocument))
	case roll < 12:
		return ex("scope in", "resource", "resource in "+g.literal(g.parentKind()))
	case roll < 20:
		return ex("scope is", "resource", "resource is "+g.prefix+"document")
	case roll < 26:
		return ex("scope is in", "resource", "resource is "+g.prefix+"document in "+g.literal(g.parentKind()))
	}
	return nil
}

// parentKind takes a type that a row may be below.
func (g *generator) parentKind() kind {
	may := []kind{ofDocument}
	if !g.enumerated {
		may = append(may, ofFolder)
	}
	for _, r := range g.parents {
		if r.of == ofDocument {
			may = append(may, r.parent, r.parent, r.parent)
		}
	}
	return oneOf(g.exprs, may...)
}

// literal writes a value of a type.
func (g *generator) literal(k kind) string {
	return g.cedar(k, g.known(g.exprs, k))
}

// boolean makes an expression that is true or false, of at most that depth.
func (g *generator) boolean(depth int) *expr {
	d := g.exprs
	if depth == 0 || d.chance(15) {
		return g.leaf()
	}
	switch roll := d.IntN(100); {
	case roll < 38:
		return ex("&&", "", "(", g.boolean(depth-1), " && ", g.boolean(depth-1), ")")
	case roll < 76:
		return ex("||", "", "(", g.boolean(depth-1), " || ", g.boolean(depth-1), ")")
	case roll < 88:
		return ex("!", "", "(!", g.boolean(depth-1), ")")
	}
	return ex("if", "of booleans", "(if ", g.boolean(depth-1), " then ", g.boolean(depth-1), " else ", g.boolean(depth-1), ")")
}

// operand is an expression with the tests that must stand before it.
type operand struct {
	*expr
	guards []*expr
	set    bool // it is a set of the row
}

// guarded puts the tests before an expression.
func (g *generator) guarded(e *expr, operands ...operand) *expr {
	var guards []*expr
	for _, o := range operands {
		guards = append(guards, o.guards...)
	}
	for _, guard := range slices.Backward(guards) {
		if g.exprs.chance(12) {
			otherwise := oneOf(g.exprs, "true", "false")
			e = ex("if", "with has", "(if ", guard, " then ", e, " else "+otherwise+")")
		} else {
			e = ex("&&", "with has", "(", guard, " && ", e, ")")
		}
	}
	return e
}

// access writes an attribute.
func access(of, name string) string {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return of + "[" + strconv.Quote(name) + "]"
		}
	}
	return of + "." + name
}

func hasName(name string) string {
	if access("", name)[0] == '[' {
		return strconv.Quote(name)
	}
	return name
}

// read reads members of something, one from the other.
func (g *generator) read(of string, path []*member) (o operand) {
	o.expr = ex("", "", of)
	text := of
	for _, m := range path {
		if m.optional {
			o.guards = append(o.guards, ex("", "", text+" has "+hasName(m.name)))
		}
		text = access(text, m.name)
	}
	if len(o.guards) > 1 && g.exprs.chance(30) && !strings.Contains(text, "[") {
		o.guards = []*expr{ex("", "", of+" has "+strings.TrimPrefix(text, of+"."))}
	}
	o.expr.parts = []any{text}
	return o
}

// row reads a column of a type, if there is one.
func (g *generator) row(k kind, set bool) (operand, bool) {
	var may []*member
	for _, m := range g.leaves {
		if m.kind == k && m.set == set {
			may = append(may, m)
		}
	}
	if len(may) == 0 {
		return operand{}, false
	}
	o := g.read("resource", oneOf(g.exprs, may...).path)
	o.set = set
	return o, true
}

// rowSet makes a set that hangs on the row, if there is one of the type.
func (g *generator) rowSet(k kind) (operand, bool) {
	o, ok := g.row(k, true)
	if !ok || !g.exprs.chance(8) {
		return o, ok
	}
	other := g.given(k, true)
	return operand{choice("of sets", g.leaf(), o.expr, other.expr), append(o.guards, other.guards...), true}, true
}

// given makes an operand that the question and the bundle know.
func (g *generator) given(k kind, set bool) operand {
	d := g.exprs
	roll := d.IntN(100)
	from := func(of string, members []*member) (operand, bool) {
		var may [][]*member
		for _, m := range members {
			if m.kind == k && m.set == set && m.members == nil {
				may = append(may, []*member{m})
			}
			for _, inner := range m.members {
				if inner.kind == k && inner.set == set {
					may = append(may, []*member{m, inner})
				}
			}
		}
		if len(may) == 0 {
			return operand{}, false
		}
		return g.read(of, oneOf(d, may...)), true
	}
	switch {
	case k == ofUser && !set && roll < 50:
		return operand{expr: ex("", "", "principal")}
	case roll < 30:
		if o, ok := from("principal", g.user); ok {
			return o
		}
	case roll < 40:
		if o, ok := from("context", g.context); ok {
			return o
		}
	case roll < 46 && k == ofLong && !set:
		n, m := g.given(k, false), g.literal(k)
		if strings.HasPrefix(m, "-") {
			m = "(" + m + ")"
		}
		return operand{ex("", "", "(", n.expr, oneOf(d, " + ", " - ", " * "), m, ")"), n.guards, false}
	case roll < 50 && k == ofTime && !set:
		return operand{expr: ex("", "", "context.pdp.now")}
	case roll < 56 && k == ofTime && !set:
		return operand{expr: ex("", "", g.literal(k)+`.offset(duration("`+oneOf(d, "1ms", "-1ms", "1d", "-400d")+`"))`)}
	case roll < 60 && k == ofText && !set:
		return operand{expr: ex("", "", oneOf(d, "context.pdp.tenant", "context.pdp.subject.id", "context.pdp.resource.type"))}
	case roll < 64 && !set:
		l := g.literal(k)
		return operand{expr: ex("", "", "{x: "+l+", y: true}.x")}
	case roll < 70 && !set:
		test := g.knownTest()
		a, b := g.literal(k), g.literal(k)
		return operand{choice("known", test.expr, a, b), test.guards, false}
	}
	if !set {
		return operand{expr: ex("", "", g.literal(k))}
	}
	var texts []string
	for range oneOf(d, 1, 1, 2, 2, 3, 4) {
		texts = append(texts, g.literal(k))
	}
	return operand{expr: ex("", "", "["+strings.Join(texts, ", ")+"]")}
}

// knownTest makes a known truth value.
func (g *generator) knownTest() operand {
	o := g.given(ofLong, false)
	return operand{ex("<", "known", "(", o.expr, " < "+g.literal(ofLong)+")"), o.guards, false}
}

// leaf makes a truth value of one operator, mostly of something that only a row has.
func (g *generator) leaf() *expr {
	for {
		if e := oneOf(g.exprs, leaves()...)(g); e != nil {
			return e
		}
	}
}

// leaves returns what makes truth values, the frequent ones more than once.
func leaves() []func(*generator) *expr {
	return []func(*generator) *expr{
		(*generator).equality, (*generator).equality, (*generator).equality, (*generator).equality, (*generator).order, (*generator).order, (*generator).order, (*generator).order, (*generator).order,
		(*generator).like, (*generator).like, (*generator).below, (*generator).below, (*generator).rowBelow, (*generator).aboveKnown, (*generator).aboveKnown, (*generator).is, (*generator).is,
		(*generator).has, (*generator).has, (*generator).contains, (*generator).contains, (*generator).containsColumn, (*generator).containsColumn, (*generator).containsMore, (*generator).containsMore, (*generator).containsMore,
		(*generator).isEmpty, (*generator).isEmpty, (*generator).sameSet, (*generator).flag, (*generator).fact, (*generator).id, (*generator).id, (*generator).ofStored, (*generator).ofStored,
	}
}

// either makes an operand that hangs on the row, if there is one of the type.
func (g *generator) either(k kind) (operand, bool) {
	d := g.exprs
	o, ok := g.row(k, false)
	if k == ofDocument && (!ok || d.chance(60)) {
		o, ok = operand{expr: ex("", "", "resource")}, true
	}
	if k == ofText && (!ok || d.chance(10)) {
		o, ok = operand{expr: ex("", "", "context.pdp.resource.id")}, true
	}
	if !ok || !d.chance(10) {
		return o, ok
	}
	test, other := g.leaf(), g.given(k, false)
	return operand{choice("of a row", test, o.expr, other.expr), append(o.guards, other.guards...), false}, true
}

var scalars = []kind{ofBool, ofLong, ofText, ofText, ofTime, ofUser, ofUser, ofTeam, ofFolder, ofKind, ofDocument}

func (g *generator) equality() *expr {
	d := g.exprs
	k := oneOf(d, scalars...)
	a, ok := g.either(k)
	if !ok {
		return nil
	}
	b, about := g.given(k, false), "and a known one"
	if d.chance(25) {
		if other, ok := g.either(k); ok {
			b, about = other, "of one row"
		}
	}
	return g.compared(oneOf(d, "==", "==", "!="), string(k)+" "+about, a, b)
}

func (g *generator) compared(sign, form string, a, b operand) *expr {
	if g.exprs.chance(40) {
		a, b = b, a
	}
	return g.guarded(ex(sign, form, "(", a.expr, " "+sign+" ", b.expr, ")"), a, b)
}

func (g *generator) order() *expr {
	d := g.exprs
	k := oneOf(d, ofLong, ofTime)
	a, ok := g.either(k)
	if !ok {
		return nil
	}
	b, about := g.given(k, false), "and a known one"
	if d.chance(30) {
		if other, ok := g.either(k); ok {
			b, about = other, "of one row"
		}
	}
	return g.compared(oneOf(d, "<", "<=", ">", ">="), string(k)+" "+about, a, b)
}

// pattern writes a pattern that some text of the pool may match.
func (g *generator) pattern() string {
	d := g.exprs
	var b strings.Builder
	text := []rune(g.known(d, ofText).(string))
	from := d.IntN(len(text) + 1)
	if len(text) > 40 {
		from = 20
	}
	switch d.IntN(6) {
	case 0:
		text = append(append([]rune{}, text[:from]...), '\uffff')
	case 1:
		text = append([]rune{'\uffff'}, text[from:]...)
	case 2:
		text = append(append([]rune{'\uffff'}, text[from:]...), '\uffff')
	case 3:
		for n := range text {
			if d.chance(30) {
				text[n] = '\uffff'
			}
		}
	case 4:
		text = []rune("\uffff" + string(text[:from]) + "\uffff\uffff" + string(text[from:]) + "\uffff")
	}
	stars := 0
	for _, r := range text {
		switch {
		case r == '\uffff':
			if stars++; stars <= 8 {
				b.WriteByte('*')
			}
		case r == '*':
			b.WriteString(`\*`)
		case r == '"', r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ':
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

func (g *generator) like() *expr {
	a, ok := g.either(ofText)
	if !ok || g.exprs.chance(5) {
		a = g.given(ofText, false)
	}
	return g.guarded(ex("like", "", "(", a.expr, " like "+g.pattern()+")"), a)
}

// groups makes what something may be below: an entity of a type, or several, that are known.
func (g *generator) groups(kinds ...kind) operand {
	d := g.exprs
	k := oneOf(d, kinds...)
	switch roll := d.IntN(100); {
	case roll < 20:
		return g.given(k, true)
	case roll < 35:
		return g.given(k, false)
	case roll < 55:
		var texts []string
		for range oneOf(d, 1, 2, 3) {
			texts = append(texts, g.literal(k))
		}
		return operand{expr: ex("", "", "["+strings.Join(texts, ", ")+"]")}
	}
	return operand{expr: ex("", "", g.literal(k))}
}

// below asks whether an entity that the row names is below a known one.
func (g *generator) below() *expr {
	k := oneOf(g.exprs, ofUser, ofUser, ofUser, ofTeam, ofFolder, ofKind)
	a, ok := g.either(k)
	if !ok {
		return nil
	}
	groups := []kind{k}
	if k == ofUser {
		groups = []kind{ofTeam, ofTeam, ofTeam, ofUser}
	}
	in := g.groups(groups...)
	if k != ofKind && g.exprs.chance(25) {
		return g.guarded(ex("is in", string(k), "(", a.expr, " is "+g.prefix+string(k)+" in ", in.expr, ")"), a, in)
	}
	return g.guarded(ex("in", string(k), "(", a.expr, " in ", in.expr, ")"), a, in)
}

// rowBelow asks whether the resource is below a known entity.
func (g *generator) rowBelow() *expr {
	in := g.groups(g.parentKind())
	if g.exprs.chance(40) {
		return g.guarded(ex("is in", "resource", "(resource is "+g.prefix+"document in ", in.expr, ")"), in)
	}
	return g.guarded(ex("in", "resource", "(resource in ", in.expr, ")"), in)
}

// aboveKnown asks whether a known entity is below one that the row names.
func (g *generator) aboveKnown() *expr {
	d := g.exprs
	k := oneOf(d, ofUser, ofTeam, ofTeam)
	low := operand{expr: ex("", "", "principal")}
	switch {
	case k == ofUser && d.chance(30):
		low = operand{expr: ex("", "", g.literal(ofUser))}
	case k == ofTeam && d.chance(40):
		low = g.given(ofTeam, false)
	}
	high, ok := g.row(k, d.chance(50))
	if !ok {
		return nil
	}
	about := "set"
	if !high.set {
		about = "column"
		if d.chance(50) {
			other := operand{expr: ex("", "", g.literal(k))}
			if o, ok := g.row(k, false); ok && d.chance(60) {
				other = o
			}
			high = operand{ex("", "", "[", high.expr, ", ", other.expr, "]"), append(high.guards, other.guards...), false}
			about = "list"
		}
	}
	return g.guarded(ex("in", "known in "+about, "(", low.expr, " in ", high.expr, ")"), low, high)
}

func (g *generator) is() *expr {
	d := g.exprs
	if d.chance(40) {
		return ex("is", "resource", "(resource is "+g.prefix+"document)")
	}
	k := oneOf(d, ofUser, ofUser, ofTeam, ofFolder, ofKind, ofDocument)
	a, ok := g.either(k)
	if !ok {
		return nil
	}
	return g.guarded(ex("is", string(k), "(", a.expr, " is "+g.prefix+string(k)+")"), a)
}

func (g *generator) has() *expr {
	d := g.exprs
	if g.enumerated {
		return nil
	}
	m := oneOf(d, g.leaves...)
	at := d.IntN(len(m.path))
	of := g.read("resource", m.path[:at])
	return g.guarded(ex("has", "resource", "(", of.expr, " has "+hasName(m.path[at].name)+")"), of)
}

// contains asks whether a set of the row has a known element, or one of the row.
func (g *generator) contains() *expr {
	d := g.exprs
	k := oneOf(d, ofText, ofText, ofUser, ofTeam, ofLong, ofKind, ofFolder)
	set, ok := g.rowSet(k)
	if !ok {
		return nil
	}
	one, about := g.given(k, false), "known"
	if d.chance(30) {
		if o, ok := g.either(k); ok {
			one, about = o, "of the row"
		}
	}
	return g.guarded(ex("contains", "row, "+about, set.expr, ".contains(", one.expr, ")"), set, one)
}

// containsColumn asks whether a known set, or one that the policy writes out, has an element of the row.
func (g *generator) containsColumn() *expr {
	d := g.exprs
	k := oneOf(d, scalars...)
	one, ok := g.either(k)
	if !ok {
		return nil
	}
	set, about := g.given(k, true), "known"
	if d.chance(30) {
		if o, ok := g.either(k); ok {
			set, about = operand{ex("", "", "[", o.expr, ", "+g.literal(k)+"]"), o.guards, false}, "list"
			if d.chance(50) {
				one = g.given(k, false)
			}
		}
	}
	return g.guarded(ex("contains", about, set.expr, ".contains(", one.expr, ")"), set, one)
}

func (g *generator) containsMore() *expr {
	d := g.exprs
	k := oneOf(d, ofText, ofText, ofUser, ofTeam, ofLong, ofKind, ofFolder)
	set, ok := g.rowSet(k)
	if !ok {
		return nil
	}
	op := oneOf(d, "containsAll", "containsAny")
	other, about := g.given(k, true), "row, known"
	switch roll := d.IntN(100); {
	case roll < 35:
		set, other, about = other, set, "known, row"
	case roll < 50:
		if o, ok := g.either(k); ok {
			other, about = operand{ex("", "", "[", o.expr, ", "+g.literal(k)+"]"), o.guards, false}, "row, list"
		}
	case roll < 60:
		if o, ok := g.either(k); ok {
			set, about = operand{ex("", "", "[", o.expr, ", "+g.literal(k)+"]"), o.guards, false}, "list, known"
		}
	}
	return g.guarded(ex(op, about, set.expr, "."+op+"(", other.expr, ")"), set, other)
}

func (g *generator) isEmpty() *expr {
	set, ok := g.rowSet(oneOf(g.exprs, ofText, ofUser, ofTeam, ofLong, ofKind, ofFolder))
	if !ok {
		return nil
	}
	return g.guarded(ex("isEmpty", "", set.expr, ".isEmpty()"), set)
}

func (g *generator) sameSet() *expr {
	k := oneOf(g.exprs, ofText, ofUser, ofTeam, ofLong, ofKind, ofFolder)
	set, ok := g.rowSet(k)
	if !ok {
		return nil
	}
	return g.compared(oneOf(g.exprs, "==", "!="), "sets of "+string(k), set, g.given(k, true))
}

func (g *generator) flag() *expr {
	flag, ok := g.row(ofBool, false)
	if !ok {
		return nil
	}
	return g.guarded(ex("flag", "", flag.expr), flag)
}

// fact makes a truth value that hangs on no row.
func (g *generator) fact() *expr {
	d := g.exprs
	switch d.IntN(6) {
	case 0:
		o := g.given(ofBool, false)
		return g.guarded(ex("", "", o.expr), o)
	case 1:
		o := g.groups(ofTeam, ofUser)
		return g.guarded(ex("in", "known", "(principal in ", o.expr, ")"), o)
	case 2:
		m := oneOf(d, g.user...)
		return ex("has", "known", "(principal has "+m.name+")")
	case 3:
		k := oneOf(d, ofLong, ofTime)
		a, b := g.given(k, false), g.given(k, false)
		return g.compared(oneOf(d, "<", "<=", ">", ">="), "known", a, b)
	case 4:
		k := oneOf(d, scalars...)
		a, b := g.given(k, false), g.given(k, false)
		return g.compared(oneOf(d, "==", "!="), "known", a, b)
	}
	return ex("in", "action", `(action in [`+g.prefix+`Action::"read", `+g.prefix+`Action::"`+oneOf(d, "edit", "any")+`"])`)
}

// id asks for the id of the resource.
func (g *generator) id() *expr {
	d := g.exprs
	id := operand{expr: ex("", "", "context.pdp.resource.id")}
	text := g.cedar(ofText, g.known(d, ofDocument))
	switch d.IntN(5) {
	case 0:
		return ex("==", "id in the context", "(context.pdp.resource.id == "+text+")")
	case 1:
		return ex("like", "id in the context", "(context.pdp.resource.id like "+g.pattern()+")")
	case 2:
		return ex("contains", "id in the context", "["+text+", "+g.literal(ofText)+"].contains(context.pdp.resource.id)")
	case 3:
		if o, ok := g.row(ofText, false); ok {
			return g.compared("==", "id in the context", id, o)
		}
		return nil
	}
	return ex(oneOf(d, "==", "!="), "resource", "(resource == "+g.literal(ofDocument)+")")
}

// ofStored reads an attribute of a stored entity that the row names.
func (g *generator) ofStored() *expr {
	d := g.exprs
	var may []*member
	for _, m := range g.leaves {
		if m.kind == ofUser && !m.set {
			may = append(may, m)
		}
	}
	if len(may) == 0 {
		return nil
	}
	path := oneOf(d, may...).path
	m := oneOf(d, g.user...)
	if d.chance(15) {
		of := g.read("resource", path)
		return g.guarded(ex("has", "stored", "(", of.expr, " has "+m.name+")"), of)
	}
	path = append(slices.Clone(path), m)
	if m.members != nil {
		path = append(path, oneOf(d, m.members...))
		m = path[len(path)-1]
	}
	a := g.read("resource", path)
	b := g.given(m.kind, m.set)
	if !m.optional && slices.Contains(g.user, m) && d.chance(20) {
		owner := g.read("resource", path[:len(path)-1])
		a = operand{ex("", "", choice("of entities", g.leaf(), owner.expr, "principal"), access("", m.name)), owner.guards, false}
	}
	switch {
	case m.kind == ofBool:
		return g.guarded(ex("flag", "stored", a.expr), a)
	case m.set && d.chance(50):
		one, ok := g.either(m.kind)
		if !ok {
			return nil
		}
		return g.guarded(ex("contains", "stored", a.expr, ".contains(", one.expr, ")"), a, one)
	case m.kind == ofTeam && !m.set && d.chance(50):
		in := g.groups(ofTeam)
		return g.guarded(ex("in", "stored", "(", a.expr, " in ", in.expr, ")"), a, in)
	case !m.set && d.chance(40):
		if one, ok := g.either(m.kind); ok {
			b = one
		}
	}
	if m.kind == ofLong && !m.set && d.chance(50) {
		return g.compared(oneOf(d, "<", "<=", ">", ">="), "stored", a, b)
	}
	return g.compared(oneOf(d, "==", "!="), "stored", a, b)
}
