package recorder

import (
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
)

// asksPossible reports whether a record is of a question with unknown places.
func asksPossible(record *pdp.Record) bool { return record.Decision.Possible != evaluation.Decided }

// possibleEntry is the entry of the questions of a batch with unknown places, before any is in it. There are so many.
func possibleEntry(records []pdp.Record, possible int, shared *evaluation.Request, masked *mask.Masking) record.Entry {
	first := slices.IndexFunc(records, func(r pdp.Record) bool { return asksPossible(&r) })
	if first < 0 {
		return record.Entry{}
	}
	one := &records[first]
	e := newEntry(one, record.PossibleID(one.Item.Batch, possible == len(records)), format.KindPossible)
	e.Request = sharedRequest(shared, masked)
	all := &record.Questions{Bundle: one.Bundle}
	all.Same.Subject, all.Same.Action, all.Same.Resource = true, true, true
	for n := range records {
		if of, q := &one.Call.Request, &records[n].Call.Request; asksPossible(&records[n]) {
			all.Same.Subject = all.Same.Subject && q.Subject.Type == of.Subject.Type && q.Subject.ID == of.Subject.ID
			all.Same.Action = all.Same.Action && q.Action.Name == of.Action.Name
			all.Same.Resource = all.Same.Resource && q.Resource.Type == of.Resource.Type && q.Resource.ID == of.Resource.ID
		}
	}
	asked := *e.Request.Asked
	if all.Same.Subject {
		asked.Subject.Type, asked.Subject.ID = one.Call.Request.Subject.Type, one.Call.Request.Subject.ID
	}
	if all.Same.Action {
		asked.Action.Name = one.Call.Request.Action.Name
	}
	if all.Same.Resource {
		asked.Resource.Type, asked.Resource.ID = one.Call.Request.Resource.Type, one.Call.Request.Resource.ID
	}
	e.Request.Asked, e.Questions = &asked, all
	return e
}

// questionOf is one of the questions, with its own parts masked.
func questionOf(n int, rec *pdp.Record, own *mask.Masking) record.Question {
	q := record.Question{N: n, Request: requestOf(own), Inherits: rec.Item.Inherits.Members(), Decision: decisionOf(&rec.Decision, own)}
	q.Decision.Bundle = "" // that of all
	return q
}

// foldUnknown moves the places that were unknown to the entry, if all questions have the same.
func foldUnknown(e *record.Entry) {
	all := e.Questions.All
	first := all[0].Request.Unknown
	for n := range all {
		if !slices.Equal(all[n].Request.Unknown, first) {
			return
		}
	}
	for n := range all {
		all[n].Request.Unknown = nil
	}
	e.Request.Unknown = first
}

// withoutRoom is the entry of a question that is longer than a record of kind possible may be: as of a batch of one.
func withoutRoom(e record.Entry) record.Entry {
	q := record.Question{Request: e.Request, Decision: e.Decision}
	all := &record.Questions{Bundle: e.Decision.Bundle, All: []record.Question{q}}
	all.Same.Subject, all.Same.Action, all.Same.Resource = true, true, true
	asked := *e.Request.Asked
	asked.Subject.Properties, asked.Action.Properties, asked.Resource.Properties = evaluation.Object{}, evaluation.Object{}, evaluation.Object{}
	asked.Context = evaluation.Object{}
	q.Decision.Bundle = ""
	e.Request, e.Decision, e.Questions = &record.Request{Asked: &asked}, nil, all
	foldUnknown(&e)
	return e
}
