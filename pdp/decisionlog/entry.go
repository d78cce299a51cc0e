package decisionlog

import (
	"strconv"
)

func (b *body) request(q *Request) {
	if q == nil {
		return
	}
	b.name("request")
	start := len(b.out)
	b.value("subject", q.Subject)
	b.value("action", q.Action)
	b.value("resource", q.Resource)
	b.value("context", q.Context)
	if len(b.out) == start {
		b.out = append(b.out, "{}"...)
		return
	}
	b.out[start] = '{' // where the first member's comma stands
	b.out = append(b.out, '}')
}

func (b *body) search(s *Search) {
	if s == nil {
		return
	}
	b.text("query", string(s.Query))
	list(b, "found", s.Found)
	b.name("examined")
	b.out = strconv.AppendInt(b.out, int64(s.Examined), 10)
	b.text("bundle", s.Bundle)
}

func (b *body) decision(d *Decision) {
	if d == nil {
		return
	}
	b.name("decision")
	b.out = strconv.AppendBool(b.out, d.Allow)
	b.text("reason", d.Reason)
	b.text("reason_user", d.ReasonUser)
	list(b, "determining", d.Determining)
	list(b, "errors", d.Errors)
	if string(d.Obligations) != "[]" {
		b.value("obligations", d.Obligations)
	}
	list(b, "required", d.Required)
	list(b, "left_out", d.LeftOut)
	list(b, "discharged", d.Discharged)
	list(b, "mismatch", d.Mismatch)
	b.text("bundle", d.Bundle)
}
