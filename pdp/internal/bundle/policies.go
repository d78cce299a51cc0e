package bundle

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"

	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/places"
)

// ParsePolicies reads the policies of one file.
func ParsePolicies(file string, use *Usage, text []byte, problems *Problems) []*Policy {
	text = withoutMark(text)
	if use.Exceeded || !checkText(file, text, use, problems) {
		return nil
	}
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		refuseText(file, "policy_syntax", "this is not Cedar", places.InPolicies(string(text), err.Error()), problems)
		return nil
	}
	policies := make([]*Policy, 0, len(list))
	for n, c := range list {
		at := entityPlace{file, c.Position().Line, c.Position().Column}
		p := newPolicy(c, fmt.Sprintf("%s#%d", file, n), use.Owner, at)
		if p.Id == "" {
			problems.Add(file, at.line, at.column, "empty_id", "the policy's @id is empty",
				"give it a name, or leave the annotation out")
		}
		p.refuseCalls(text, problems)
		policies = append(policies, p)
	}
	return policies
}

// refuseCalls notes the calls with a wrong number of arguments. cedar-go reads them, and would refuse them at each evaluation.
func (p *Policy) refuseCalls(text []byte, problems *Problems) {
	for _, n := range p.Facts.miscalled {
		has, takes := argumentsOf(n)
		try := "write " + callForms[n.Name]
		if n.Name == "isInRange" && has > takes {
			try = "write a call for each range, and join the calls, as in a.isInRange(b) || a.isInRange(c)"
		}
		written := p.In(text)
		line, column := written.Position(written.Call(string(n.Name), takes))
		problems.Add(p.File, line, column, "policy_call", fmt.Sprintf("policy %q: the number of arguments of %s is %d, not %d", p.Id, n.Name, takes, has), try)
	}
}

// newPolicy is a policy at a place in a tenant's files. The id is that of its annotation, if it
// has one.
func newPolicy(c *cedar.Policy, id, tenant string, at entityPlace) *Policy {
	p := &Policy{
		Id:       id,
		Cedar:    c,
		Tenant:   tenant,
		File:     at.file,
		Line:     at.line,
		Column:   at.column,
		Position: fmt.Sprintf("%s:%d:%d", at.file, at.line, at.column),
		Facts:    factsOf(c),
		terms:    new(lazyTerms),
	}
	annotations := c.Annotations()
	if id, ok := annotations["id"]; ok {
		p.Id, p.Named = string(id), true
	}
	if names, ok := annotations["obligation"]; ok {
		p.Obligation = (*string)(&names)
	}
	p.CedarID, p.ReasonUser = cedar.PolicyID(p.Id), string(annotations["reason_user"])
	return p
}

// SamePolicies reports whether policies have the same trees, in the same order. Where they stand counts for nothing.
func SamePolicies(some, others []*Policy) bool {
	return slices.EqualFunc(some, others, func(one, other *Policy) bool {
		text, err := one.Cedar.MarshalJSON()
		same, failed := other.Cedar.MarshalJSON()
		return err == nil && failed == nil && bytes.Equal(text, same)
	})
}

// noAction is the text by which cedar-go's validator says that a policy can never apply. Cedar
// itself only warns of that, so we do too.
const noAction = "unable to find an applicable action given the policy scope constraints"

// miscalled is how cedar-go's validator begins to speak of a call that has been refused when it was read.
const miscalled = "wrong number of arguments in extension function application."

// The forms of what cedar-go's validator says.
var (
	notDeclared   = regexp.MustCompile("^attribute `(.*)` (in context for|on entity types?) .* not found$")
	mayBeAbsent   = regexp.MustCompile("^unable to guarantee safety of access to optional attribute `(.*?)`(?: (?:in|on) .*)?$")
	unknownAction = regexp.MustCompile("^unrecognized action `(.*)`$")
	unknownType   = regexp.MustCompile("^unrecognized entity type `(.*)`$")
	noLiteral     = regexp.MustCompile("(?s)^error during extension function argument validation: failed to parse as (?:an? )?(.*?)(?: value)?: `(.*)`$")
	plainNumber   = regexp.MustCompile(`^"-?[0-9]+"$`)
)

// decimalCompared is the form of the texts by which cedar-go's validator refuses to compare decimals with a sign. It refuses
// to add decimals in the same words.
var decimalCompared = regexp.MustCompile("^unexpected type: expected (datetime, or duration, or Long|Long|datetime|duration) but saw decimal$")

// CheckPolicy validates a policy strictly. The text is that of the policy's file. Without a text every problem has the place
// of the policy.
func (s *Schema) CheckPolicy(p *Policy, text []byte, use *Usage, problems *Problems) {
	s.narrow.Lock()
	defer s.narrow.Unlock()
	written := sync.OnceValue(func() *places.Policy { return p.In(text) })
	c := policyCheck{
		schema:   s,
		policy:   p,
		written:  written,
		reads:    sync.OnceValue(func() []places.Part { return written().Reads() }),
		clauses:  sync.OnceValue(func() []places.Part { return written().Clauses() }),
		use:      use,
		found:    s.misfits(p, p),
		problems: problems,
	}
	misnamed := false
	for said := range c.found {
		misnamed = misnamed || unknownAction.MatchString(said) || unknownType.MatchString(said)
	}
	for _, said := range slices.Sorted(maps.Keys(c.found)) {
		if c.enough() {
			break
		}
		if strings.HasPrefix(said, miscalled) && len(p.Facts.miscalled) > 0 {
			continue // is refused already
		}
		if said != noAction {
			c.explain(said)
		} else if !misnamed { // otherwise that is why
			problems.Warn(p.File, p.Line, p.Column, "no_applicable_action",
				fmt.Sprintf("policy %q can never apply: no action of the schema takes these principals and resources", p.Id),
				"compare its scope with the appliesTo of its actions")
		}
	}
	c.addUnguarded()
	for _, uid := range p.Facts.Uids {
		if !c.enough() && !s.Allows(uid) {
			ids := []string{}
			for one := range s.entities[uid.Type].enum {
				ids = append(ids, string(one.ID))
			}
			near := DidYouMean(string(uid.ID), slices.Values(ids))
			c.add(c.named(uid.String()), "enum_id",
				fmt.Sprintf("policy %q names %s, which is no id of that enumerated type%s", p.Id, uid, near),
				"use one of the ids the schema lists", MendID(uid.String(), near))
		}
	}
	for _, path := range s.undeclared(p) {
		if c.enough() {
			break
		}
		try := "declare the attribute, or correct its name"
		if member, ok := strings.CutPrefix(path, "context.pdp."); ok && s.lacksOfPDP(p, member) {
			try = addToPDP
		}
		test := c.tested(path)
		near := c.meant(test)
		c.add(test.At, "has_undeclared",
			fmt.Sprintf("policy %q tests for %s, which the schema does not declare: the test is always false%s",
				p.Id, path, near), try, c.mend(test, near))
	}
}

// policyCheck places what is wrong with one policy.
type policyCheck struct {
	schema   *Schema
	policy   *Policy
	written  func() *places.Policy
	reads    func() []places.Part // of what is written
	clauses  func() []places.Part
	use      *Usage
	looks    int            // how often the policy was validated once more
	found    map[string]int // the errors of the validator, and how often each comes
	problems *Problems
	// unguarded are the parts that read attributes which may be absent.
	unguarded []places.Part
}

// maxLooks bounds how often one policy is validated to find the place of one error.
const maxLooks = 100

// noPlace stands for the place of the policy. No part of a policy begins there.
const noPlace = 0

// enough reports whether there are as many errors as are reported. To place more of them would take the square of their
// number.
func (c *policyCheck) enough() bool { return len(c.problems.Only(SeverityError)) > MostErrors }

// add notes a problem at an offset. One kind of error at one place is one problem.
func (c *policyCheck) add(offset int, code, message, try string, mend ...document.Mend) {
	line, column := c.policy.Line, c.policy.Column
	if offset > noPlace {
		line, column = c.written().Position(offset)
		if slices.ContainsFunc(*c.problems, func(p Problem) bool { return p.Line == line && p.Column == column && p.Code == code }) {
			return
		}
	}
	c.problems.Add(c.policy.File, line, column, code, message, try, mend...)
}

// misfit notes that something in the policy does not fit the schema.
func (c *policyCheck) misfit(offset int, what, try string, mend ...document.Mend) {
	c.add(offset, "schema_policy", fmt.Sprintf("policy %q does not fit the schema: %s", c.policy.Id, ourWords.Replace(what)), try, mend...)
}

// ourWords are for names of the validator that no author writes.
var ourWords = strings.NewReplacer(
	"Set<__cedar::internal::AnyEntity>, or __cedar::internal::AnyEntity", "an entity, or a set of entities",
	"__cedar::internal::AnyEntity, or __cedar::internal::OpenRecord{}", "an entity, or a record",
	"Set<__cedar::internal::AnyEntity>", "a set of entities",
	"Set<__cedar::internal::Any>", "a set",
	"__cedar::internal::AnyEntity", "an entity",
	"__cedar::internal::OpenRecord{}", "a record",
)

// explain notes an error of the validator, at each place that the error is about.
func (c *policyCheck) explain(said string) {
	const correct = "correct the policy or declare what it uses"
	if m := unknownAction.FindStringSubmatch(said); m != nil {
		near := c.actionLike(m[1])
		c.misfit(c.named(m[1]), said+near.String(), correct, MendID(m[1], near))
	} else if m := unknownType.FindStringSubmatch(said); m != nil {
		known := textsOf(slices.Collect(maps.Keys(c.schema.entities)))
		near := DidYouMean(m[1], slices.Values(known))
		c.misfit(c.named(m[1]), said+near.String(), correct, near.For(m[1]))
	} else if m := notDeclared.FindStringSubmatch(said); m != nil {
		try := correct
		if m[2] == "in context for" && c.schema.lacksOfPDP(c.policy, m[1]) {
			try = addToPDP
		}
		for _, part := range c.blamed(said, c.reading(m[1])) {
			near := c.meant(part)
			c.misfit(part.At, said+near.String(), try, c.mend(part, near))
		}
	} else if m := mayBeAbsent.FindStringSubmatch(said); m != nil {
		parts := c.blamed(said, c.reading(m[1]))
		if parts[0].Variable != "" {
			c.unguarded = append(c.unguarded, parts...)
			return
		}
		c.misfit(noPlace, "it reads "+m[1]+" without has, and the schema lets that be absent", "ask with has first, and join the two with &&")
	} else if m := noLiteral.FindStringSubmatch(said); m != nil {
		c.badLiteral(m[1], m[2])
	} else {
		for _, part := range c.blamed(said, c.clauses()) {
			if !decimalCompared.MatchString(said) || !c.comparison(part) {
				c.misfit(part.From, said, correct)
			}
		}
	}
}

// addUnguarded notes the attributes that are read without has. Of a chain of attributes that may all be absent it is the
// longest. Behind another mistake the validator forgets the tests with has, so then attributes with a test anywhere are
// left out.
func (c *policyCheck) addUnguarded() {
	other := func(said string) bool { return !mayBeAbsent.MatchString(said) }
	if slices.ContainsFunc(slices.Collect(maps.Keys(c.found)), other) {
		c.unguarded = slices.DeleteFunc(c.unguarded, func(part places.Part) bool {
			return c.tested(pathOfPart(part).String()).Has
		})
	}
	slices.SortFunc(c.unguarded, func(a, b places.Part) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	var asked []string
	for n, part := range c.unguarded {
		if c.enough() {
			return
		}
		asked = append(asked, pathOfPart(part).Asked())
		if n+1 < len(c.unguarded) && c.unguarded[n+1].From == part.From {
			continue // a longer one follows
		}
		c.misfit(part.At, "it reads "+strings.Join(strings.Fields(c.written().Text[part.From:part.To]), " ")+
			" without has, and the schema lets that be absent",
			"ask first, as in `"+strings.Join(slices.Compact(asked), " && ")+" && …`")
		asked = nil
	}
}

// pathOfPart is the path that a part reads.
func pathOfPart(part places.Part) AttributePath {
	return AttributePath{Root: part.Variable, Names: part.Names}
}

// meant suggests another name for the attribute that a part reads.
func (c *policyCheck) meant(part places.Part) document.Near {
	last := len(part.Names) - 1
	if last < 0 {
		return ""
	}
	return DidYouMean(part.Names[last], slices.Values(c.schema.membersAt(c.policy, part.Variable, part.Names[:last])))
}

// mend writes another name for the attribute that a part reads. A name without quotes cannot be any text.
func (c *policyCheck) mend(part places.Part, near document.Near) (m document.Mend) {
	if last := len(part.Names) - 1; last >= 0 && (c.written().Text[part.At] == '"' || identifier.MatchString(string(near))) {
		m = near.For(part.Names[last])
	}
	return m
}

// MendID writes another id of the same type in the place of an entity.
func MendID(uid string, near document.Near) (m document.Mend) {
	if typ, id, ok := strings.Cut(strings.TrimSuffix(uid, `"`), `::"`); ok {
		m = near.In(typ+`::"`, id, `"`)
	}
	return m
}

// named is the place where the policy names an entity or a type.
func (c *policyCheck) named(name string) int {
	return places.Find(c.written().Tokens, name)
}

// actionLike names the action of the schema that may be meant.
func (c *policyCheck) actionLike(uid string) document.Near {
	ids := func(yield func(string) bool) {
		for known := range c.schema.Actions {
			if strings.HasPrefix(uid, string(known.Type)+"::") && !yield(string(known.ID)) {
				return
			}
		}
	}
	_, quoted, _ := strings.Cut(uid, `::"`)
	return DidYouMean(strings.TrimSuffix(quoted, `"`), ids)
}

// reading are the parts that read a path of the validator's: the text of it ends in their attribute.
func (c *policyCheck) reading(path string) []places.Part {
	return slices.DeleteFunc(slices.Clone(c.reads()), func(part places.Part) bool {
		name := part.Names[len(part.Names)-1]
		return part.Has || path != name && !strings.HasSuffix(path, memberOf(name))
	})
}

// tested is the first test with has for a path; without a place if there is none.
func (c *policyCheck) tested(path string) places.Part {
	for _, part := range c.reads() {
		if part.Has && pathOfPart(part).String() == path {
			return part
		}
	}
	return places.Part{}
}

// blamed are those of some parts that an error is about: the validator finds it less often in the policy with something
// without a type in place of such a part. If there are none, it is a part without a place.
func (c *policyCheck) blamed(said string, candidates []places.Part) []places.Part {
	parts := slices.DeleteFunc(slices.Clone(candidates), func(part places.Part) bool { return !c.lessens(said, part) })
	if len(parts) == 0 {
		return []places.Part{{}}
	}
	return parts
}

// lessens reports if the validator finds an error less often in the policy without a part.
func (c *policyCheck) lessens(said string, part places.Part) bool {
	if c.looks++; c.looks > maxLooks {
		return false
	}
	steps, _ := c.schema.StepsOf(c.policy, c.use.bounds.Checks)
	if c.use.checkCount = plus(c.use.checkCount, steps); c.use.checkCount > c.use.bounds.Checks {
		return false
	}
	text := c.written().Text
	list, err := cedar.NewPolicyListFromBytes("", []byte(text[:part.From]+` pdp_nothing::"" `+text[part.To:]))
	if err != nil || len(list) != 1 {
		return false
	}
	return c.schema.misfits(c.policy, &Policy{Cedar: list[0]})[said] < c.found[said]
}

// literalForms are the forms of texts that are values of other types.
var literalForms = map[string]string{
	"decimal":    `write a point and one to four digits behind it, as in decimal("1.50")`,
	"IP address": `write it as in ip("10.0.0.1") or ip("10.0.0.0/8")`,
	"datetime":   `write it as in datetime("2026-01-31") or datetime("2026-01-31T12:00:00Z")`,
	"duration":   `write it as in duration("1d2h30m")`,
}

// badLiteral notes that a text, in its quotes, is no value of a type.
func (c *policyCheck) badLiteral(typ, quoted string) {
	try := literalForms[typ]
	if typ == "decimal" && plainNumber.MatchString(quoted) {
		try = "write " + strings.TrimSuffix(quoted, `"`) + `.0"`
	}
	c.misfit(c.named(quoted), "the text of this "+typ+" is none", try)
}

// decimalMethods are the methods in place of a sign, for a decimal on its left and on its right.
var decimalMethods = map[string][2]string{
	"<":  {"lessThan", "greaterThan"},
	"<=": {"lessThanOrEqual", "greaterThanOrEqual"},
	">":  {"greaterThan", "lessThan"},
	">=": {"greaterThanOrEqual", "lessThanOrEqual"},
}

// comparison notes that a part compares a decimal with a sign, and reports whether it does no more than that. The decimal is
// on the left, unless a number is there.
func (c *policyCheck) comparison(part places.Part) bool {
	tokens := places.Tokens(c.written().Text[part.From:part.To])
	sign := slices.IndexFunc(tokens, func(t places.Token) bool { return decimalMethods[t.Text][0] != "" })
	calculates := func(t places.Token) bool { return t.Text == "+" || t.Text == "-" || t.Text == "*" }
	if sign < 0 || slices.ContainsFunc(tokens[:sign], calculates) || slices.ContainsFunc(tokens[min(sign+2, len(tokens)):], calculates) {
		return false
	}
	at, side, argument := part.From, 0, "…"
	left, right := tokens[:sign], tokens[sign+1:]
	if len(left) == 1 && left[0].IsNumber() {
		at, side, left, right = part.From+right[0].From, 1, right, left
	}
	if len(right) == 1 && right[0].IsNumber() {
		argument = `decimal("` + right[0].Text + `.0")`
	}
	c.misfit(at, "a decimal is compared with "+tokens[sign].Text, "use ."+decimalMethods[tokens[sign].Text][side]+"("+argument+")")
	return true
}

// In is the policy in the text of its file. A policy that is made from an access declaration is in no text.
func (p *Policy) In(text []byte) *places.Policy {
	text = withoutMark(text)
	at := p.Cedar.Position().Offset
	if p.Access != "" || at >= len(text) {
		text, at = nil, 0
	}
	return places.Read(text[at:], p.Line, p.Column)
}

// Quote quotes a name for a message.
func Quote(s string) string { return strconv.Quote(s) }

// withoutMark is a text without the byte order mark that editors for Windows put before it.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// refuseText notes what keeps a text from being read.
func refuseText(file, code, message string, fault places.Fault, problems *Problems) {
	if fault.What != "" {
		message += ": " + fault.What
	}
	problems.Add(file, fault.Line, fault.Column, code, message, fault.Try, document.Mend{Word: fault.Word, Meant: fault.Meant})
}
