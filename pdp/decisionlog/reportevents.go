package decisionlog

import "github.com/go-json-experiment/json"

// event takes in an administrative record of the span. Those of all tenants
// together do not come up for a reader who may see some only.
func (p *reporting) event(s *seen) error {
	switch s.Event {
	case eventStart, eventStop, EventCrash, EventCreated:
		p.service.Runs = append(p.service.Runs, Run{At: s.moment(), Event: s.Event})
		return nil
	case eventBundleLoaded:
		p.begin()
		loaded, err := s.bundleLoaded()
		if err == nil {
			p.addBundle(*loaded)
		}
		return err
	case eventBundleRefused:
		return addEvent(&p.service.Refused, s, func(b *RefusedBundle) { b.At = s.moment() })
	case EventRetired:
		return addEvent(&p.service.Retention, s, func(r *RetentionRun) { r.At = s.moment() })
	case EventKeyRotated:
		return addEvent(&p.service.Keys, s, func(k *KeyRotation) { k.At = s.moment() })
	case EventDropped, EventResumed:
		return addEvent(&p.service.Losses, s, func(l *Loss) { l.At = s.moment() })
	case EventRedacted:
		return p.redaction(s)
	}
	return nil
}

// addEvent reads the details of a record, whose members have the names that they
// have in a report, and adds to them what stands beside.
func addEvent[T any](to *[]T, s *seen, beside func(*T)) error {
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

func (p *reporting) redaction(s *seen) error {
	var about struct {
		Sequence int64  `json:"sequence"`
		ID       string `json:"id"`
		Reason   string `json:"reason"`
	}
	if err := json.Unmarshal(s.Details, &about); err != nil {
		return err
	}
	p.report.Redactions = append(p.report.Redactions, Redaction{
		At: s.moment(), Of: about.Sequence, ID: about.ID, Tenant: s.Tenant, Caller: s.Caller, Reason: about.Reason,
	})
	return nil
}

func (s *seen) bundleLoaded() (*BundleInForce, error) {
	var about struct {
		Bundle string `json:"bundle"`
		Files  int64  `json:"files"`
	}
	err := json.Unmarshal(s.Details, &about)
	return &BundleInForce{Digest: about.Bundle, Loaded: s.Time, Sequence: s.Sequence, Files: about.Files}, err
}

// lost is what a record says was never recorded.
func (s *seen) lost() (l Loss, err error) {
	err = json.Unmarshal(s.Details, &l)
	return l, err
}

func (s *seen) moment() Instant { return Instant{s.Sequence, s.Time} }
