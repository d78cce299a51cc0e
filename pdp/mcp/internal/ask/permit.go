package ask

import (
	"context"
	"errors"
	"sync"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/rpc"
)

// Permit is the PDP's yes to one request, and what it owes. [Asker.Ask] makes one. The zero Permit is of a message that
// needs no question, and owes nothing.
type Permit struct {
	pdp     *authzenclient.Client
	refuse  refuser
	method  string
	decided authzenclient.Enforcements
	owed    []evaluation.Obligation // to take fields out of the result
	fields  []pointer
	over    sync.Once
}

// promise is the handler of the obligation redact. It reads the fields and notes them; [Permit.Result] takes them out
// of the result.
func (p *Permit) promise(_ context.Context, o evaluation.Obligation) error {
	fields, err := fieldsOf(o)
	if err == nil {
		p.owed, p.fields = append(p.owed, o), append(p.fields, fields...)
	}
	return err
}

// Passes reports whether messages of the upstream before its result may go on to the client. While something is to be taken out of
// the result nothing does: not even a number of its progress, which may be the very one.
func (p *Permit) Passes() bool { return len(p.owed) == 0 }

var errWithheld = errors.New("the result is of a form from which nothing can be taken out")

// Result is the response as it leaves: m without its redacted values, or m itself if there are none. If that cannot be done
// nothing leaves, and it is on record that it was not done.
func (p *Permit) Result(m rpc.Message) (rpc.Message, *Refusal) {
	if len(p.owed) == 0 {
		return m, nil
	}
	redacted, ok := redactResponse(p.method, m, p.fields)
	if ok {
		return redacted, nil
	}
	for _, o := range p.owed {
		p.decided.Break(o, errWithheld)
	}
	return rpc.Message{}, p.refuse.withheld(errWithheld.Error())
}

// Continuation is the value that a repetition of the request brings in [Answered.Continues], if an upstream asks for input
// before it is done. It is not ok where the permit rests on no approval, or on one that has no round left.
func (p *Permit) Continuation() (k authzenclient.Continuation, ok bool) {
	return p.last().Continuation()
}

// LastRound reports whether the permit rests on an approval that has no round left, and names the obligation that this met.
func (p *Permit) LastRound() (obligation string, is bool) { return p.last().LastRound() }

// last is the answer to the last question, which alone people's word is about; the zero value if nothing was asked.
func (p *Permit) last() (e authzenclient.Enforcement) {
	if all := p.decided.All(); len(all) > 0 {
		e = all[len(all)-1]
	}
	return e
}

// Done reports to the PDP how its obligations were discharged. It is called once, when the result has left or was withheld,
// or when there will be none. It waits for the PDP two seconds at the most, also where ctx has ended.
func (p *Permit) Done(ctx context.Context) {
	p.over.Do(func() {
		if p.pdp != nil {
			p.pdp.ReportAll(ctx, &p.decided)
		}
	})
}
