package recorder

import (
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
)

// asksPossible reports whether a request had unknown places.
func asksPossible(rec *pdp.Record) bool { return rec.Decision.Possible != evaluation.Decided }

// possibleEntry returns an entry for the questions of a batch that have unknown places, without the questions: its
// request has what these share. possible counts the questions, and must not be 0.
func possibleEntry(records []pdp.Record, possible int, shared *evaluation.Request, masked *mask.Masking) record.Entry {
	first := &records[slices.IndexFunc(records, func(r pdp.Record) bool { return asksPossible(&r) })]
	named := &first.Call.Request
	same := record.Same{Subject: true, Action: true, Resource: true}
	for n := range records {
		if !asksPossible(&records[n]) {
			continue
		}
		q := &records[n].Call.Request
		same.Subject = same.Subject && q.Subject.Ref() == named.Subject.Ref()
		same.Action = same.Action && q.Action.Name == named.Action.Name
		same.Resource = same.Resource && q.Resource.Ref() == named.Resource.Ref()
	}
	asked := masked.Request
	if same.Subject {
		asked.Subject.Type, asked.Subject.ID = named.Subject.Type, named.Subject.ID
	}
	if same.Action {
		asked.Action.Name = named.Action.Name
	}
	if same.Resource {
		asked.Resource.Type, asked.Resource.ID = named.Resource.Type, named.Resource.ID
	}
	e := newEntry(first, record.PossibleID(first.Item.Batch, possible == len(records)), format.KindPossible)
	e.Request = sharedRequest(shared, masked)
	e.Request.Asked = &asked
	e.Questions = &record.Questions{Bundle: first.Bundle, Same: same}
	return e
}

// foldUnknown moves the unknown places to the entry if all questions have the same places.
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

// withoutRoom returns the entry of a question that exceeds [format.MaxPossible] as that of a batch with one question:
// only the names have room then. The rest of Asked is masked, and not written: nothing is Shared.
func withoutRoom(e record.Entry) record.Entry {
	e.Questions = &record.Questions{
		Bundle: e.Decision.Bundle,
		Same:   record.Same{Subject: true, Action: true, Resource: true},
		All:    []record.Question{{Request: e.Request, Decision: e.Decision}},
	}
	e.Decision.Bundle = "" // stands in Questions
	e.Request, e.Decision = &record.Request{Asked: e.Request.Asked}, nil
	foldUnknown(&e)
	return e
}
