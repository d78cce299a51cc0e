package approval

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
)

// proof finds out which votes of an approval count. A vote counts if the log vouches for the
// record of it, if that was written with the key of approvals, and if the credential that
// said it is in force.
type proof struct {
	key     []byte // of steps on record
	options *Options
	stored  func(approval, record, origin string) (Proof, error) // those of other origins
}

// seal is made of all that a step brings about, and of the digest that the approval is bound to. It has
// the instant of a time, because a record may write the same time in another way.
func (p proof) seal(step *Step, digest [32]byte) string {
	instant := func(t time.Time) (ns int64) {
		if !t.IsZero() {
			ns = t.UnixNano()
		}
		return ns
	}
	sealed := []any{
		step.ID, step.Approval.ID, digest, step.Name, step.By, step.Caller, step.To, step.From, step.Decision,
		instant(step.ValidUntil), step.Approval.Version, step.Approval.Status, instant(step.Approval.ExpiresAt),
	}
	switch { // a vote has a way, and goes on from no use
	case step.Via != "" || step.Gateway != "":
		sealed = append(sealed, step.Via, step.Gateway)
		if step.Client != (evaluation.Ref{}) {
			sealed = append(sealed, step.Client)
		}
	case step.Continues.Round > 0:
		sealed = append(sealed, step.Continues.Decision, step.Continues.Round)
	}
	text, err := json.Marshal(sealed)
	if err != nil { // of a text that is no UTF-8: no record says it in these words
		return ""
	}
	mac := hmac.New(sha256.New, p.key)
	_, _ = mac.Write(text) // never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// sealed reports whether a step from the log was written with the key.
func (p proof) sealed(step *Step, digest [32]byte) bool {
	want := p.seal(step, digest)
	return want != "" && hmac.Equal([]byte(want), []byte(step.Seal))
}

// attest reads the record of a step or of a decision, if the log of its origin vouches for it. That of another origin needs its
// proof: there is no answer without one.
func (p proof) attest(ctx context.Context, a *Approval, record string) (step Step, found bool, err error) {
	switch origin := a.Origins[record]; {
	case origin == p.options.Origin:
		return p.options.Attest(ctx, record)
	case origin == "": // it was written before there were others
		if step, found, err = p.options.Attest(ctx, record); err == nil && !found {
			err = fmt.Errorf("%w: it is not in this log, and the approval does not say in which it is", ErrUnavailable)
		}
		return step, found, err
	default:
		stored, err := p.stored(a.ID, record, origin)
		if err != nil {
			return step, false, err
		}
		if step, err = p.options.Verify(stored); err != nil {
			err = fmt.Errorf("%w: the proof of %s: %w", ErrUnavailable, origin, err)
		}
		return step, err == nil, err
	}
}

// vouched reports whether the log vouches for the record of a step of an approval, and the step says what it is to say. If the
// log is that of another origin, and does not, it is an error: that log may vouch for it all the same.
func (p proof) vouched(ctx context.Context, a *Approval, record string, says func(*Step) bool) (is bool, err error) {
	if record == "" {
		return false, nil
	}
	step, found, err := p.attest(ctx, a, record)
	is = found && step.ID == record && step.Approval.ID == a.ID && says(&step)
	if origin := a.Origins[record]; err == nil && !is && origin != p.options.Origin {
		err = fmt.Errorf("%w: its proof is of another record of %s", ErrUnavailable, origin)
	}
	if err != nil {
		return false, fmt.Errorf("whether the log has %s of approval %s: %w", record, a.ID, err)
	}
	return is, nil
}

// used reports whether the log vouches for a decision that used an approval.
func (p proof) used(ctx context.Context, a *Approval, decision string) (bool, error) {
	return p.vouched(ctx, a, decision, func(s *Step) bool {
		return s.Name == "" && s.Decision == decision && s.Continues.Round == 0
	})
}

// inForce reports whether the credential of a vote still may approve. If a person may speak
// because another one named them, the credential of the other one must be in force, too.
func (p proof) inForce(a *Approval) func(Vote) bool {
	return func(v Vote) bool {
		if !p.options.InForce(a.Tenant, v.Caller, v.Gateway) {
			return false
		}
		return v.From == "" || slices.ContainsFunc(a.Votes, func(d Vote) bool {
			return d.names(v) && p.options.InForce(a.Tenant, d.Caller, d.Gateway)
		})
	}
}

// stands reports whether a vote counts while people still decide: its credential is in force, and it has not passed.
func (p proof) stands(a *Approval, now time.Time) func(Vote) bool {
	inForce := p.inForce(a)
	return func(v Vote) bool { return inForce(v) && !v.Passed(now) }
}

// standing are the votes of an approval that stand.
func (p proof) standing(a *Approval, now time.Time) []Vote {
	stands := p.stands(a, now)
	return slices.DeleteFunc(slices.Clone(a.Votes), func(v Vote) bool { return !stands(v) })
}

// holding are the votes of an approval that still count: those that the log vouches for, by
// credentials in force. Enough says whether they are as many as the approval needs.
func (p proof) holding(ctx context.Context, a *Approval) (votes []Vote, enough bool, err error) {
	is, err := p.vouched(ctx, a, a.Agreed, func(s *Step) bool {
		until := !a.open() || s.Approval.ExpiresAt.Equal(a.ExpiresAt)
		return until && s.Name == StepApproved && p.sealed(s, a.Digest)
	})
	if err != nil || !is {
		return nil, false, err // and every person may vote again
	}
	inForce := p.inForce(a)
	for _, v := range a.Votes {
		if !inForce(v) {
			continue
		}
		is, err := p.vouched(ctx, a, v.Step, func(s *Step) bool {
			return s.Name == string(v.Kind) && s.saysOf(v) && p.sealed(s, a.Digest)
		})
		if err != nil {
			return nil, false, err
		}
		if is {
			votes = append(votes, v)
		}
	}
	votes = slices.DeleteFunc(votes, func(v Vote) bool {
		return v.From != "" && !slices.ContainsFunc(votes, func(d Vote) bool { return d.names(v) })
	})
	same := func(one, other string) bool { return p.options.SamePerson(a.Tenant, one, other) }
	var people []Vote
	for _, v := range votes {
		if v.Kind == Approve && !v.isOfOne(people, same) {
			people = append(people, v)
		}
	}
	return votes, len(people) >= a.Terms.Quorum, nil
}

// saysOf reports whether a step on record agrees with a vote.
func (s *Step) saysOf(v Vote) bool {
	return s.By == v.By && s.Caller == v.Caller && s.To == v.To && s.ValidUntil.Equal(v.ValidUntil) && s.Way() == v.Way()
}

// askAgain makes an approval that has lost votes pending again, until its timeout.
func (s *Store) askAgain(ctx context.Context, a Approval, votes []Vote) (Approval, error) {
	m := s.move(a)
	m.lapse(func(v Vote) bool { return v.by(votes) })
	m.to.reopen()
	m.step(Step{Name: StepReopened})
	if m.to.at(m.now).Status == Expired {
		m.to = m.to.at(m.now)
		m.step(Step{Name: StepExpired})
	}
	return s.commit(ctx, m)
}

// reopen makes an approval pending again. No decision goes on from its uses.
func (a *Approval) reopen() {
	a.Status, a.DecidedAt, a.ExpiresAt, a.Agreed = Pending, time.Time{}, a.FiledAt.Add(a.Terms.Timeout), ""
	a.close(every)
}

// lapse takes away the votes that do not count any more. Each of them is a step.
func (m *move) lapse(counts func(Vote) bool) {
	var left, gone []Vote
	for _, v := range m.to.Votes {
		if counts(v) {
			left = append(left, v)
		} else {
			gone = append(gone, v)
		}
	}
	m.to.Votes = left
	for _, v := range gone {
		said := Statement{By: v.By, Reason: "what " + v.Caller + " said does not count any more"}
		m.step(Step{Name: StepLapsed, Statement: said})
	}
}
