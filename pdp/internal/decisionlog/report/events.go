package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// event takes in an administrative record of the span. Those of all tenants
// together do not come up for a reader who may see some only.
func (p *reporting) event(s *record.Recorded) error {
	switch s.Event {
	case format.EventStart, format.EventStop, format.EventCrash, format.EventCreated:
		p.service.Runs = append(p.service.Runs, Run{At: p.moment(s), Event: s.Event})
		return nil
	case format.EventBundleLoaded:
		p.begin()
		loaded, err := p.bundleLoaded(s)
		if err == nil {
			p.addBundle(*loaded)
		}
		return err
	case format.EventBundleRefused:
		return addEvent(&p.service.Refused, s, func(b *RefusedBundle) { b.At = p.moment(s) })
	case format.EventRetired:
		return addEvent(&p.service.Retention, s, func(r *RetentionRun) { r.At = p.moment(s) })
	case format.EventKeyRotated:
		return addEvent(&p.service.Keys, s, func(k *KeyRotation) { k.At = p.moment(s) })
	case format.EventUnsigned, format.EventSegment:
		for _, tail := range s.UnsignedTails() {
			if !slices.ContainsFunc(p.service.UnsignedTails, func(u UnsignedTail) bool { return u.UnsignedTail == tail && u.At.Origin == p.origin }) {
				p.service.UnsignedTails = append(p.service.UnsignedTails, UnsignedTail{p.moment(s), tail})
			}
		}
		return nil
	case format.EventDropped, format.EventResumed, format.EventLoss:
		return addEvent(&p.service.Losses, s, func(l *Loss) { l.At = p.moment(s) })
	case format.EventRedacted:
		return p.redaction(s)
	case format.EventToolDrift:
		var drift evaluation.Drift
		err := json.Unmarshal(s.Details, &drift)
		p.report.ToolDrift[string(drift.Change)]++
		return err
	}
	return nil
}

// addEvent reads the details of a record, whose members have the names that they
// have in a report, and adds to them what stands beside.
func addEvent[T any](to *[]T, s *record.Recorded, beside func(*T)) error {
	var one T
	if len(s.Details) > 0 {
		if err := json.Unmarshal(s.Details, &one); err != nil {
			return err
		}
	}
	beside(&one)
	*to = append(*to, one)
	return nil
}

// NativeForm is the name that approval requests of the native form are counted under.
// Others have the name that their records give.
const NativeForm = "native"

// approval takes in a step of an approval request.
func (p *reporting) approval(s *record.Recorded) error {
	var about struct {
		Asked   string    `json:"asked"`
		FiledAt time.Time `json:"filed_at"`
	}
	if err := json.Unmarshal(s.Details, &about); err != nil {
		return err
	}
	form := cmp.Or(about.Asked, NativeForm)
	if p.approvals[form] == nil {
		p.approvals[form] = &approval.Counter{}
	}
	p.approvals[form].Count(s.Event, s.Time.Sub(about.FiledAt))
	return nil
}

func (p *reporting) redaction(s *record.Recorded) error {
	var about struct {
		Sequence uint64 `json:"sequence"`
		ID       string `json:"id"`
		Reason   string `json:"reason"`
	}
	if err := json.Unmarshal(s.Details, &about); err != nil {
		return err
	}
	p.report.Redactions = append(p.report.Redactions, Redaction{
		At: p.moment(s), Of: about.Sequence, ID: about.ID, Tenant: s.Tenant, Caller: s.Caller, Reason: about.Reason,
	})
	return nil
}

func (p *reporting) bundleLoaded(s *record.Recorded) (*BundleInForce, error) {
	var about struct {
		Bundle string `json:"bundle"`
		Files  int64  `json:"files"`
	}
	err := json.Unmarshal(s.Details, &about)
	return &BundleInForce{Origin: p.origin, Digest: about.Bundle, Loaded: s.Time, Sequence: s.Sequence, Files: about.Files}, err
}

func (p *reporting) moment(s *record.Recorded) Instant {
	return Instant{p.origin, s.Sequence, s.Time}
}
