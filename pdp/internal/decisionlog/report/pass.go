package report

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// reporting is a report in the making.
type reporting struct {
	span      span
	report    Report
	service   *Service // never nil, and left out of a report for some tenants
	owed      *ledger
	uses      *uses
	approvals map[string]*approval.Counter // by form
	errors    map[string]*ErringPolicy
	days      map[int64]bool // with decisions
	first     time.Time      // of all records that are there
	topping   *topping       // nil if nothing is counted by name
	*from
}

// from is the log that records are from.
type from struct {
	origin  string         // "" if all are from one
	exports []*exportGaps  // of the log; the longest comes last
	gaps    *exportGaps    // of the one that the record is of
	before  *BundleInForce // in force when the span begins
	latest  map[string]int // by digest, in report.Bundles
	started bool           // there was a start
	running bool           // by the records, or it is not known
	outside *OutsideStart
}

func newReporting(o Options) *reporting {
	p := &reporting{
		span:      span{o.From, o.To},
		owed:      newLedger(owedMost),
		uses:      newUses(usesMost),
		approvals: map[string]*approval.Counter{},
		errors:    map[string]*ErringPolicy{},
		days:      map[int64]bool{},
		service: &Service{
			Gaps:      []DatedGap{},
			Runs:      []Run{},
			Refused:   []RefusedBundle{},
			Retention: []RetentionRun{},
			Losses:    []Loss{},

			UnsignedTails: []UnsignedTail{},
			Keys:          []KeyRotation{},
		},
		report: Report{
			From:       o.From,
			To:         o.To,
			Population: newPopulation(),
			Denies:     map[string]int64{},
			Approvals:  map[string]approval.Tally{},
			ToolDrift:  map[string]int64{},

			Capabilities: Capabilities{Steps: map[string]int64{}, Refused: map[string]int64{}},
		},
	}
	if o.By != "" {
		p.topping = newTopping(o.By, o.Decision, topRoom)
	}
	return p
}

func newFrom(origin string, exports ...*exportGaps) *from {
	return &from{origin: origin, exports: exports, latest: map[string]int{}}
}

// look takes in one leaf.
func (p *reporting) look(l record.Record) error {
	s, err := p.gaps.read(l)
	if s == nil || err != nil {
		p.running, p.uses.gone = true, true
		return err
	}
	p.run(s)
	p.first = cmp.Or(p.first, s.Time)
	if s.Kind == format.KindReceipt { // of any time: it is about a decision of the span
		p.owed.received(s.Receipt())
	}
	switch inside := p.span.has(s.Time); {
	case inside:
		err = p.count(s)
	case s.Event == format.EventBundleLoaded && s.Time.Before(p.span.from):
		p.before, err = p.bundleLoaded(s)
	}
	if err == nil { // of any time, as a receipt
		err = p.withdrawal(s)
	}
	if err != nil {
		return fmt.Errorf("record %d: its details are not those of %s: %w", l.Sequence, s.Event, err)
	}
	return nil
}

// run takes in whether the service runs, by the records.
func (p *reporting) run(s *record.Recorded) {
	switch s.Event {
	case format.EventStart:
		p.started, p.running = true, true
	case format.EventStop, format.EventCrash:
		p.running = false
	}
	if s.Bundle == "" || p.running || !p.span.has(s.Time) {
		return
	}
	if p.outside == nil {
		p.outside = &OutsideStart{First: p.moment(s)}
	}
	p.outside.Decisions++
}

// count takes in a record of the span.
func (p *reporting) count(s *record.Recorded) error {
	if err := p.report.Population.add(s); err != nil {
		return err
	}
	p.clock(s)
	switch s.Kind {
	case format.KindDecision:
		p.decision(s)
	case format.KindPossible:
		return p.possible(s)
	case format.KindAdmin:
		return p.event(s)
	case format.KindApproval:
		return p.approval(s)
	case format.KindCapability:
		p.report.Capabilities.Steps[s.Event]++
	}
	return nil
}

// clock joins the records that repeat one time.
func (p *reporting) clock(s *record.Recorded) {
	if !s.ClockBehind {
		return
	}
	all := p.report.ClockBehind
	if n := len(all); n > 0 && all[n-1].First.Time.Equal(s.Time) && all[n-1].First.Origin == p.origin {
		all[n-1].Records++
		return
	}
	p.report.ClockBehind = append(all, ClockBehind{First: p.moment(s), Records: 1})
}

func (p *reporting) decision(s *record.Recorded) {
	p.days[dayOf(s.Time)] = true
	p.owed.decided(s)
	p.uses.decided(s, p.moment(s))
	if s.Answer() == record.Deny {
		p.report.Denies[whyDenied(s)]++
	}
	switch c := s.Capability; {
	case c == nil:
	case c.Reason != "":
		p.report.Capabilities.Refused[c.Reason]++
	case c.Held && s.Answer() == record.Allow:
		p.report.Capabilities.Calls++
	}
	p.erring(s)
	if p.topping != nil {
		p.topping.decided(s)
	}
}

// possible takes in questions with unknown places.
func (p *reporting) possible(s *record.Recorded) error {
	p.days[dayOf(s.Time)] = true
	p.erring(s)
	questions, err := s.Questions()
	for n := range questions {
		p.erring(&questions[n])
	}
	return err
}

// erring takes in the policies that failed.
func (p *reporting) erring(s *record.Recorded) {
	for _, e := range s.Errors {
		erring := p.errors[e.Policy]
		if erring == nil {
			erring = &ErringPolicy{Policy: e.Policy, Kinds: map[string]int64{}}
			p.errors[e.Policy] = erring
		}
		erring.Errors++
		erring.Kinds[string(e.Kind)]++
	}
	if s.Bundle != "" {
		b := p.bundle(s.Bundle)
		b.Decisions++
		b.First, b.Last = cmp.Or(b.First, s.Time), s.Time
	}
}

// whyDenied is the name under which a deny is counted.
func whyDenied(s *record.Recorded) string {
	switch {
	case s.Reason != "":
		return s.Reason
	case bytes.HasPrefix(s.Details, []byte(`{"malformed"`)):
		return DenyMalformed
	case len(s.Determining) > 0:
		return DenyForbidden
	}
	return DenyNoPermit
}

// bundle is the one that a decision names: as it was loaded last, or, where no
// record is there that says so, by itself.
func (p *reporting) bundle(digest string) *BundleInForce {
	p.begin()
	i, known := p.latest[digest]
	if !known {
		i = p.addBundle(BundleInForce{Digest: digest, Origin: p.origin})
	}
	return &p.report.Bundles[i]
}

func (p *reporting) addBundle(b BundleInForce) int {
	i := len(p.report.Bundles)
	p.report.Bundles = append(p.report.Bundles, b)
	p.latest[b.Digest] = i
	return i
}

// begin puts the bundle that was in force when the span began in front.
func (p *reporting) begin() {
	if p.before != nil {
		p.addBundle(*p.before)
		p.before = nil
	}
}

// ended has all records of a log taken in, up to its last checkpoint.
func (p *reporting) ended(f *from) {
	p.from = f
	p.begin()
	for _, g := range inEach(f.exports) {
		if g.Origin = f.origin; p.span.mayHave(g) {
			p.service.Gaps = append(p.service.Gaps, g)
		}
	}
	switch all := p.service; {
	case !f.started || f.outside == nil:
	case all.OutsideStart == nil:
		all.OutsideStart = f.outside
	default:
		if f.outside.First.Time.Before(all.OutsideStart.First.Time) {
			all.OutsideStart.First = f.outside.First
		}
		all.OutsideStart.Decisions += f.outside.Decisions
	}
}

// end is the report, once all logs have ended.
func (p *reporting) end(o Options) Report {
	for _, policy := range slices.Sorted(maps.Keys(p.errors)) {
		p.report.Errors = append(p.report.Errors, *p.errors[policy])
	}
	for form, counter := range p.approvals {
		p.report.Approvals[form] = counter.Tally()
	}
	p.report.Obligations = p.owed.byType()
	p.report.Unsettled = p.uses.left()
	if p.report.Tenants == nil {
		p.report.Service = p.service
	}
	if p.topping != nil {
		p.report.Top = p.topping.top(o.Top)
	}
	return p.report
}
