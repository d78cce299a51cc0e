package decisionlog

import (
	"strings"
	"unicode/utf8"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
)

// termsOfFilter returns lists of terms: a record that passes has at least one term of each list. Lists that match few
// records come first. Without any list the index is of no help.
func termsOfFilter(f record.Filter) (all [][]string) {
	one := func(letter byte, value string) {
		if value != "" {
			all = append(all, []string{index.Term(letter, value)})
		}
	}
	one(index.TermOf, f.Of)
	one(index.TermApproval, f.Approval)
	one(index.TermCapability, f.Capability)
	for letter, name := range map[byte]string{index.TermSubject: f.Subject, index.TermResource: f.Resource} {
		if name == "" {
			continue
		}
		terms := []string{index.Term(letter, name)} // name is an id, or "type/id": both may have slashes in them
		for rest, more := name, true; more; {
			if _, rest, more = strings.Cut(rest, "/"); more && rest != "" {
				terms = append(terms, index.Term(letter, rest))
			}
		}
		all = append(all, terms)
	}
	one(index.TermPolicy, f.Policy)
	one(index.TermAction, f.Action)
	one(index.TermEvent, f.Event)
	one(index.TermTenant, f.Tenant)
	if f.Tenants != nil {
		tenants := make([]string, len(f.Tenants))
		for i, tenant := range f.Tenants {
			tenants[i] = index.Term(index.TermTenant, tenant)
		}
		all = append(all, tenants)
	}
	one(index.TermDecision, f.Decision)
	one(index.TermKind, f.Kind)
	return all
}

// termsOfLine returns the terms of a line.
func termsOfLine(line []byte) index.Terms {
	r, err := record.Parse(line)
	if err != nil {
		return index.Odd()
	}
	return addTerms(nil, r)
}

// addTermsOfEntry adds the terms of the record that an entry becomes. It adds nothing if only the line tells them: finished
// JSON values are read there, and so are texts that are not UTF-8, which the line mends.
func addTermsOfEntry(into index.Terms, e *record.Entry) index.Terms {
	if e.Questions != nil {
		return into
	}
	r := record.Recorded{Tenant: e.Tenant, Kind: e.Kind, Event: e.Event, Details: e.Details}
	if q := e.Request; q != nil {
		switch {
		case q.Asked == nil:
			if len(q.Subject)+len(q.Action)+len(q.Resource) > 0 {
				return into
			}
		case e.Kind != format.KindBatch: // whose parts have no names
			r.Names.Subject.ID, r.Names.Action.Name, r.Names.Resource.ID = q.Asked.Subject.ID, q.Asked.Action.Name, q.Asked.Resource.ID
		}
	}
	if s := e.Search; s != nil { // the record leaves out the searched one
		switch s.Query {
		case evaluation.SubjectSearch:
			r.Names.Subject.ID = ""
		case evaluation.ActionSearch:
			r.Names.Action.Name = ""
		case evaluation.ResourceSearch:
			r.Names.Resource.ID = ""
		}
	}
	if d := e.Decision; d != nil {
		r.Decision, r.Possible = &d.Allow, d.Possible.Bool()
		r.Determining, r.Overruled, r.Errors, r.Discharged = d.Determining, d.Overruled, d.Errors, d.Discharged
		r.Capability = d.Capability
		for _, o := range d.Obligations {
			r.Obligations = append(r.Obligations, record.RecordedObligation{ID: o.ID, Type: o.Type})
		}
	}
	return addTerms(into, &r)
}

// addTerms adds the terms by which the index finds a record. It adds nothing if a value is not UTF-8, which no line has.
func addTerms(into index.Terms, r *record.Recorded) index.Terms {
	valid, t := utf8.ValidString(r.Tenant), into.Add(index.TermTenant, r.Tenant) // also if it is ""
	add := func(letter byte, value string) {
		if value != "" {
			valid, t = valid && utf8.ValidString(value), t.Add(letter, value)
		}
	}
	add(index.TermKind, r.Kind)
	add(index.TermEvent, r.Event)
	add(index.TermDecision, r.Answer())
	add(index.TermSubject, r.Names.Subject.ID)
	add(index.TermResource, r.Names.Resource.ID)
	add(index.TermAction, r.Names.Action.Name)
	if len(r.Details) > 0 || len(r.Discharged) > 0 || r.Capability != nil { // only such a record names them
		add(index.TermOf, r.Receipt().Decision)
		for _, id := range r.Approvals() {
			add(index.TermApproval, id)
		}
		for _, id := range r.Capabilities() {
			add(index.TermCapability, id)
		}
	}
	for _, policies := range [...][]string{r.Determining, r.Overruled} {
		for _, policy := range policies {
			add(index.TermPolicy, policy)
		}
	}
	for _, e := range r.Errors {
		add(index.TermPolicy, e.Policy)
	}
	if !valid {
		return into
	}
	for q, err := range r.EachQuestion() {
		if err != nil {
			return into
		}
		t = addTerms(t, q)
	}
	return t
}
