package bundle

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"

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
		policies = append(policies, p)
	}
	return policies
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

// The forms of what cedar-go's validator says.
var (
	notDeclared   = regexp.MustCompile("^attribute `(.*)` (in context for|on entity types?) .* not found$")
	mayBeAbsent   = regexp.MustCompile("^unable to guarantee safety of access to optional attribute `(.*?)`(?: (?:in|on) .*)?$")
	unknownAction = regexp.MustCompile("^unrecognized action `(.*)`$")
	unknownType   = regexp.MustCompile("^unrecognized entity type `(.*)`$")
	noLiteral     = regexp.MustCompile("(?s)^error during extension function argument validation: failed to parse as (?:an? )?(.*?)(?: value)?: `(.*)`$")
	plainNumber   = regexp.MustCompile(`^"-?[0-9]+"$`)
)

// decimalCompared is the text by which cedar-go's validator refuses to compare decimals with a sign.
const decimalCompared = "unexpected type: expected datetime, or duration, or Long but saw decimal"

// CheckPolicy validates a policy strictly. The text is that of the policy's file. Without a text every problem has the place
// of the policy.
func (s *Schema) CheckPolicy(p *Policy, text []byte, use *Usage, problems *Problems) {
	s.narrow.Lock()
	defer s.narrow.Unlock()
	c := policyCheck{schema: s, policy: p, file: text, use: use, found: s.misfits(p, p), problems: problems}
	misnamed := false
	for said := range c.found {
		misnamed = misnamed || unknownAction.MatchString(said) || unknownType.MatchString(said)
	}
	for _, said := range slices.Sorted(maps.Keys(c.found)) {
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
		if !s.Allows(uid) {
			ids := []string{}
			for one := range s.entities[uid.Type].enum {
				ids = append(ids, string(one.ID))
			}
			c.add(c.named(uid.String()), "enum_id",
				fmt.Sprintf("policy %q names %s, which is no id of that enumerated type%s", p.Id, uid,
					DidYouMean(string(uid.ID), slices.Values(ids))),
				"use one of the ids the schema lists")
		}
	}
	for _, path := range s.undeclared(p) {
		try := "declare the attribute, or correct its name"
		if member, ok := strings.CutPrefix(path, "context.pdp."); ok && s.lacksOfPDP(p, member) {
			try = addToPDP
		}
		at, hint := c.tested(path)
		c.add(at, "has_undeclared",
			fmt.Sprintf("policy %q tests for %s, which the schema does not declare: the test is always false%s",
				p.Id, path, hint), try)
	}
}

// policyCheck places what is wrong with one policy.
type policyCheck struct {
	schema   *Schema
	policy   *Policy
	file     []byte
	text     string         // of the policy alone
	read     *places.Policy // nil: nobody has asked for it yet
	use      *Usage
	looks    int            // how often the policy was validated once more
	found    map[string]int // what the validator says, and how often
	problems *Problems
	// unguarded are the parts that read what may be absent.
	unguarded []*places.Part
}

// maxLooks bounds how often one policy is validated to find the place of what is wrong with it.
const maxLooks = 100

// noPlace stands for the place of the policy.
const noPlace = -1

// add notes a problem at an offset. What is wrong in one way at one place is one problem.
func (c *policyCheck) add(offset int, code, message, try string) {
	line, column := c.policy.Line, c.policy.Column
	if offset != noPlace {
		inside, on := places.Position(c.text, offset)
		if inside == 1 {
			on += column - 1
		}
		line, column = line+inside-1, on
		for _, other := range *c.problems {
			if other.Line == line && other.Column == column && other.Code == code {
				return
			}
		}
	}
	c.problems.Add(c.policy.File, line, column, code, message, try)
}

// misfit notes that something in the policy does not fit the schema.
func (c *policyCheck) misfit(offset int, what, try string) {
	c.add(offset, "schema_policy", fmt.Sprintf("policy %q does not fit the schema: %s", c.policy.Id, ourWords.Replace(what)), try)
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

// explain notes what the validator says, at each place that it says it of.
func (c *policyCheck) explain(said string) {
	const correct = "correct the policy or declare what it uses"
	if m := unknownAction.FindStringSubmatch(said); m != nil {
		c.misfit(c.named(m[1]), said+c.actionLike(m[1]), correct)
		return
	}
	if m := unknownType.FindStringSubmatch(said); m != nil {
		known := textsOf(slices.Collect(maps.Keys(c.schema.entities)))
		c.misfit(c.named(m[1]), said+DidYouMean(m[1], slices.Values(known)), correct)
		return
	}
	if m := notDeclared.FindStringSubmatch(said); m != nil {
		try := correct
		if m[2] == "in context for" && c.schema.lacksOfPDP(c.policy, m[1]) {
			try = addToPDP
		}
		parts := c.blamed(said, reading(m[1]))
		for _, part := range parts {
			hint := ""
			if variable, names, ok := part.Parts[0].Path(c.text); ok {
				hint = DidYouMean(part.Names[0].Name(), slices.Values(c.schema.membersAt(c.policy, variable, names)))
			}
			c.misfit(part.Names[0].From, said+hint, try)
		}
		if len(parts) == 0 {
			c.misfit(noPlace, said, try)
		}
		return
	}
	if m := mayBeAbsent.FindStringSubmatch(said); m != nil {
		parts := c.blamed(said, reading(m[1]))
		if c.unguarded = append(c.unguarded, parts...); len(parts) == 0 {
			c.misfit(noPlace, "it reads "+m[1]+" without has, and the schema lets that be absent", "ask with has first, and join the two with &&")
		}
		return
	}
	parts := c.blamed(said, nil)
	if len(parts) == 0 {
		c.misfit(noPlace, said, correct)
	}
	if said == decimalCompared {
		parts = c.onceEach(parts)
	}
	for _, part := range parts {
		what, try := said, correct
		if m := noLiteral.FindStringSubmatch(said); m != nil {
			what, try = badLiteral(m[1], c.text[part.From:part.To])
		} else if said == decimalCompared {
			what, try = c.comparison(part)
		}
		c.misfit(part.From, what, try)
	}
}

// addUnguarded notes what is read without has. Of a chain of attributes that may all be absent it is the longest. Behind
// another mistake the validator forgets what was asked with has, so then what is asked anywhere is left out.
func (c *policyCheck) addUnguarded() {
	other := func(said string) bool { return !mayBeAbsent.MatchString(said) }
	if slices.ContainsFunc(slices.Collect(maps.Keys(c.found)), other) {
		c.unguarded = slices.DeleteFunc(c.unguarded, func(part *places.Part) bool {
			variable, names, ok := part.Path(c.text)
			if !ok {
				return false
			}
			at, _ := c.tested(AttributePath{Root: variable, Names: names}.String())
			return at != noPlace
		})
	}
	longest := map[int]*places.Part{}
	for _, part := range c.unguarded {
		if other := longest[part.From]; other == nil || other.To < part.To {
			longest[part.From] = part
		}
	}
	for from, part := range longest {
		var asked []string
		for _, other := range c.unguarded {
			if variable, names, ok := other.Path(c.text); ok && other.From == from {
				asked = append(asked, AttributePath{Root: variable, Names: names}.Asked())
			}
		}
		slices.SortFunc(asked, func(a, b string) int { return len(a) - len(b) })
		try := "ask with has first, and join the two with &&"
		if asked = slices.Compact(asked); len(asked) > 0 {
			try = "ask first, as in `" + strings.Join(asked, " && ") + " && …`"
		}
		c.misfit(part.Names[0].From, "it reads "+strings.Join(strings.Fields(c.text[part.From:part.To]), " ")+
			" without has, and the schema lets that be absent", try)
	}
}

// parts are those of the policy. There are none without a text.
func (c *policyCheck) parts() *places.Policy {
	if c.read == nil {
		c.read = &places.Policy{}
		if at := c.policy.Cedar.Position().Offset; at < len(c.file) {
			c.text = places.First(c.file[at:])
			c.read = places.Read(c.text)
		}
	}
	return c.read
}

// named is the place where the policy names an entity or a type.
func (c *policyCheck) named(name string) int {
	return places.Find(c.parts().Tokens, name)
}

// actionLike names the action of the schema that may be meant.
func (c *policyCheck) actionLike(uid string) string {
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

// reading recognises parts that read what a path of the validator ends in.
func reading(path string) func(*places.Part) bool {
	return func(part *places.Part) bool {
		if part.Op != "." {
			return false
		}
		name := part.Names[0].Name()
		return path == name || strings.HasSuffix(path, memberOf(name))
	}
}

// tested is the place of a test with has, and a name that may be meant.
func (c *policyCheck) tested(path string) (offset int, hint string) {
	offset = noPlace
	for _, condition := range c.parts().Conditions {
		condition.Walk(func(part *places.Part) {
			if part.Op != "has" || offset != noPlace {
				return
			}
			variable, names, ok := part.Parts[0].Path(c.text)
			for _, name := range part.Names {
				last := name.Name()
				if ok && offset == noPlace && (AttributePath{Root: variable, Names: append(slices.Clip(names), last)}).String() == path {
					offset = name.From
					hint = DidYouMean(last, slices.Values(c.schema.membersAt(c.policy, variable, names)))
				}
				names = append(names, last)
			}
		})
	}
	return offset, hint
}

// blamed are the parts that the validator says something of. A part is if the validator says it less often once something
// without a type stands in place of the part, and of none of the parts in it. If a form is given, it looks at parts of that
// form alone.
func (c *policyCheck) blamed(said string, form func(*places.Part) bool) (parts []*places.Part) {
	for _, condition := range c.parts().Conditions {
		if form == nil {
			parts = append(parts, c.blamedIn(said, condition)...)
			continue
		}
		var candidates []*places.Part
		condition.Walk(func(part *places.Part) {
			if form(part) {
				candidates = append(candidates, part)
			}
		})
		for _, part := range candidates {
			if c.lessens(said, part) {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

func (c *policyCheck) blamedIn(said string, part *places.Part) (parts []*places.Part) {
	if !c.lessens(said, part) {
		return nil
	}
	if _, _, path := part.Path(c.text); path {
		return []*places.Part{part}
	}
	for _, inner := range part.Parts {
		parts = append(parts, c.blamedIn(said, inner)...)
	}
	if len(parts) == 0 || len(parts) > c.found[said] { // two that do not go together are one mistake
		return []*places.Part{part}
	}
	return parts
}

// lessens reports if the validator says something less often of the policy without a part.
func (c *policyCheck) lessens(said string, part *places.Part) bool {
	if c.looks++; c.looks > maxLooks {
		return false
	}
	steps, _ := c.schema.StepsOf(c.policy, c.use.bounds.Checks)
	if c.use.checkCount = plus(c.use.checkCount, steps); c.use.checkCount > c.use.bounds.Checks {
		return false
	}
	without := c.text[:part.From] + ` pdp_nothing::"" ` + c.text[part.To:]
	list, err := cedar.NewPolicyListFromBytes("", []byte(without))
	if err != nil || len(list) != 1 {
		return false
	}
	return c.schema.misfits(c.policy, &Policy{Cedar: list[0]})[said] < c.found[said]
}

// badLiteral says that a text is no value of a type.
func badLiteral(typ, written string) (what, try string) {
	what = "the text of this " + typ + " is none"
	switch typ {
	case "decimal":
		try = `write a point and one to four digits behind it, as in decimal("1.50")`
		if plainNumber.MatchString(written) {
			try = "write " + strings.TrimSuffix(written, `"`) + `.0"`
		}
	case "IP address":
		try = `write it as in ip("10.0.0.1") or ip("10.0.0.0/8")`
	case "datetime":
		try = `write it as in datetime("2026-01-31") or datetime("2026-01-31T12:00:00Z")`
	default:
		try = `write it as in duration("1d2h30m")`
	}
	return what, try
}

// onceEach leaves out of the operands of a comparison all but the first.
func (c *policyCheck) onceEach(operands []*places.Part) (first []*places.Part) {
	done := map[*places.Part]bool{}
	for _, part := range operands {
		of := c.around(part)
		if of == nil || !done[of] {
			first = append(first, part)
		}
		done[of] = true
	}
	return first
}

// around is the part that another one is an operand of, or nil.
func (c *policyCheck) around(part *places.Part) (of *places.Part) {
	for _, condition := range c.parts().Conditions {
		condition.Walk(func(outer *places.Part) {
			if slices.Contains(outer.Parts, part) {
				of = outer
			}
		})
	}
	return of
}

// decimalMethods are the methods in place of a sign, for a decimal on its left and on its right.
var decimalMethods = map[string][2]string{
	"<":  {"lessThan", "greaterThan"},
	"<=": {"lessThanOrEqual", "greaterThanOrEqual"},
	">":  {"greaterThan", "lessThan"},
	">=": {"greaterThanOrEqual", "lessThanOrEqual"},
}

// comparison explains how decimals are compared.
func (c *policyCheck) comparison(part *places.Part) (what, try string) {
	outer := c.around(part)
	if outer == nil || decimalMethods[outer.Op][0] == "" {
		return "a decimal is compared with a sign", "use .lessThan(…), .lessThanOrEqual(…), .greaterThan(…) or .greaterThanOrEqual(…)"
	}
	side := slices.Index(outer.Parts, part)
	other := outer.Parts[1-side]
	argument := "…"
	if text := c.text[other.From:other.To]; plainNumber.MatchString(`"` + text + `"`) {
		argument = `decimal("` + text + `.0")`
	}
	return "a decimal is compared with " + outer.Op, "use ." + decimalMethods[outer.Op][side] + "(" + argument + ")"
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
	problems.Add(file, fault.Line, fault.Column, code, message, fault.Try)
}
