// Package report gives an overview of the decision log without showing the records: the
// [Report] that an auditor asks for first, the [Statistics], and a [Sample] of decisions
// that anybody can choose again.
//
// Each reads a [segment.Snapshot] in one pass and holds no more than its counts.
// The package verifies nothing: it says what the records say, and whether they are what
// was signed is for package verify to judge.
package report

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Options say what a report is of: what was recorded from From on and before
// To. Zero is without a bound.
type Options struct {
	From, To time.Time
	// By has decisions counted by [ByPolicy] or [BySubject], too: for the Top names that have the most.
	By  string
	Top int
	// Decision has only decisions with this answer counted By; "" is all.
	Decision string
}

// Check refuses options by which no report can be made.
func (o Options) Check() error {
	if o.By != "" && (o.By != ByPolicy && o.By != BySubject || o.Top < 1 || o.Top > TopMost) {
		return ErrTop
	}
	if o.Decision != "" && o.By == "" {
		return ErrTopOf
	}
	return record.Filter{From: o.From, To: o.To, Decision: o.Decision}.Check()
}

// Report answers the first questions of an auditor. It is read in one pass, and says what the
// records say: that they are what was signed is for verify to judge.
type Report struct {
	Origin string    `json:"origin"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
	// Size and Checkpoint are those of the whole log as it was read.
	Size       int64  `json:"size"`
	Checkpoint string `json:"checkpoint"`
	// Logs are those of a report that is of several. Then Size is of all together, and Origin and Checkpoint are empty.
	Logs []Log `json:"logs,omitzero"`
	// Again is how many records stood in the file more than once, in several logs or in several exports of one. They
	// count once.
	Again int64 `json:"again,omitzero"`
	// LeftOut is how many records a filter left out of the export that the report is of.
	LeftOut int64 `json:"left_out,omitzero"`
	// Tenants are there where the report is of the records of some: then what is of
	// all tenants together is not in it, and Service is nil.
	Tenants []string `json:"tenants,omitzero"`

	Population Population `json:"population"`
	// Withdrawn are the decisions of this time that were never answered, because others had their uses. Unsettled lists allows
	// whose use has no recorded outcome: the use is in doubt, or another decision had it. It is empty where a record may be
	// missing.
	Withdrawn []Use `json:"withdrawn,omitzero"`
	Unsettled []Use `json:"unsettled,omitzero"`
	// Denies are counted by reason: the record's own, or one of the Deny constants.
	Denies  map[string]int64 `json:"denies"`
	Errors  []ErringPolicy   `json:"errors"`
	Bundles []BundleInForce  `json:"bundles"`
	// Obligations are those of the decisions of this time, by type, with every
	// receipt there is, also of later.
	Obligations map[string]Obligations `json:"obligations"`
	// Approvals are the approval requests, by the form in which they were asked for.
	Approvals    map[string]approval.Tally `json:"approvals"`
	Capabilities Capabilities              `json:"capabilities"`
	// ToolDrift is how often a gateway found a tool that differs from the operator's lock, by the change.
	ToolDrift   map[string]int64 `json:"tool_drift"`
	Redactions  []Redaction      `json:"redactions"`
	ClockBehind []ClockBehind    `json:"clock_behind"`
	Days        Days             `json:"days"`
	Top         *Top             `json:"top,omitzero"`
	Service     *Service         `json:"service,omitzero"`
}

// Capabilities counts what became of capabilities.
type Capabilities struct {
	// Steps are counted by their names, such as granted and revoked.
	Steps map[string]int64 `json:"steps"`
	// Calls are the allowed ones that showed a good capability, whether its uses are counted or not.
	Calls int64 `json:"calls"`
	// Refused are the calls that showed one that does not count, by the reason.
	Refused map[string]int64 `json:"refused"`
}

// Population are the records of the time that have content.
type Population struct {
	Records int64            `json:"records"`
	Kinds   map[string]int64 `json:"kinds"`
	Allowed int64            `json:"allowed"`
	Waiting int64            `json:"waiting"` // for an approval, and not among Allowed
	// Possible and Impossible are the answers to questions with unknown places, which are neither allows nor denies.
	Possible   int64 `json:"possible,omitzero"`
	Impossible int64 `json:"impossible,omitzero"`
	Denied     int64 `json:"denied"`
	// Withdrawn are allows that were never answered, and not among Allowed.
	Withdrawn int64     `json:"withdrawn,omitzero"`
	First     time.Time `json:"first,omitzero"`
	Last      time.Time `json:"last,omitzero"`
}

func newPopulation() Population { return Population{Kinds: map[string]int64{}} }

func (p *Population) add(s *record.Recorded) error {
	p.Records++
	p.Kinds[s.Kind]++
	p.First, p.Last = cmp.Or(p.First, s.Time), s.Time
	switch s.Answer() {
	case record.Allow:
		p.Allowed++
	case record.Waiting:
		p.Waiting++
	case record.Deny:
		p.Denied++
	}
	if s.Kind != format.KindPossible {
		return nil
	}
	possible, impossible, err := s.Counts()
	p.Possible, p.Impossible = p.Possible+possible, p.Impossible+impossible
	return err
}

// The names for a deny whose record has no reason: a policy forbade it, no
// policy permitted it, or it was an item of a batch that made no sense.
const (
	DenyForbidden = "forbidden"
	DenyNoPermit  = "no_permit"
	DenyMalformed = "malformed"
)

// ErringPolicy is a policy that could not be evaluated.
type ErringPolicy struct {
	Policy string           `json:"policy"`
	Errors int64            `json:"errors"`
	Kinds  map[string]int64 `json:"kinds"`
}

// BundleInForce is a bundle from when it was loaded until the next one was.
type BundleInForce struct {
	Origin string `json:"origin,omitzero"` // if the report is of several logs
	Digest string `json:"digest"`
	// Loaded and Sequence are of the record that it was loaded, which may be before
	// the time of the report. They are not there where that record is gone, or not
	// for the reader.
	Loaded   time.Time `json:"loaded,omitzero"`
	Sequence uint64    `json:"sequence,omitzero"`
	Files    int64     `json:"files,omitzero"`
	// Decisions it made in the time of the report, and when the first and the last.
	Decisions int64     `json:"decisions"`
	First     time.Time `json:"first,omitzero"`
	Last      time.Time `json:"last,omitzero"`
}

// Redaction is a record of one.
type Redaction struct {
	At Instant `json:"at"`
	// Of is the sequence of the record whose content went, ID its id.
	Of     uint64 `json:"of"`
	ID     string `json:"id"`
	Tenant string `json:"tenant,omitzero"`
	// Caller asked for it; "" is a user of the data directory.
	Caller string `json:"caller,omitzero"`
	Reason string `json:"reason"`
}

// Log is one of the logs of a report that is of several.
type Log struct {
	Origin     string `json:"origin"`
	Size       int64  `json:"size"`
	Checkpoint string `json:"checkpoint"`
}

// Instant is a record and its time.
type Instant struct {
	Origin   string    `json:"origin,omitzero"` // if the report is of several logs
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
}

// ClockBehind are the records made while the clock was behind after one step back:
// they repeat the time of the last one before it. First is the first of them.
type ClockBehind struct {
	First   Instant `json:"first"`
	Records int64   `json:"records"`
}

// Days are the days (UTC) of the report, as far as the log was there.
type Days struct {
	First         string `json:"first,omitzero"`
	Last          string `json:"last,omitzero"`
	WithDecisions int64  `json:"with_decisions"`
	// Quiet are those without decisions that are there today.
	Quiet []QuietDay `json:"quiet"`
	// Unsaid is set if it is not known which checkpoints were signed on a day: an export has the last one alone.
	Unsaid bool `json:"checkpoints_unsaid,omitzero"`
}

// QuietDay is a day without decisions.
type QuietDay struct {
	Day string `json:"day"`
	// Proved says that a checkpoint was signed on that day: the log was there, and
	// held what it held. Without one nothing says that the service was there.
	Proved bool `json:"proved"`
	// Checkpoints is how many; they are of all tenants together.
	Checkpoints int64 `json:"checkpoints,omitzero"`
	// Gone says that there may have been decisions whose content is gone.
	Gone bool `json:"gone,omitzero"`
}

// Service is the part of a report that is of all tenants together.
type Service struct {
	// Gaps are those that are, or may be, of the time of the report.
	Gaps      []DatedGap      `json:"gaps"`
	Runs      []Run           `json:"runs"`
	Refused   []RefusedBundle `json:"refused_bundles"`
	Retention []RetentionRun  `json:"retention"`
	Losses    []Loss          `json:"losses"`
	// UnsignedTails were named when a start found them: anybody may have written them.
	UnsignedTails []UnsignedTail `json:"unsigned_tails"`
	// OutsideStart are decisions while no service ran, by the records. It is not there if there are none, or if the log
	// has no starts at all.
	OutsideStart *OutsideStart `json:"outside_start,omitzero"`
	Keys         []KeyRotation `json:"key_rotations"`
	segment.Unread
}

// Run is a start, a stop, a crash that was found at the next start, or the log's
// beginning: Event says which.
type Run struct {
	At    Instant `json:"at"`
	Event string  `json:"event"`
}

// RefusedBundle is a bundle that did not load.
type RefusedBundle struct {
	At       Instant  `json:"at"`
	InForce  string   `json:"in_force,omitzero"`
	Count    int64    `json:"count"`
	Problems []string `json:"problems"`
	Tenants  []string `json:"tenants,omitzero"` // if only their files were refused
}

// RetentionRun is a run of retention: no record below has content any more.
type RetentionRun struct {
	At     Instant `json:"at"`
	Below  uint64  `json:"below"`
	Reason string  `json:"reason"`
}

// Loss counts records that were never written, or were lost, as far as the log says so itself.
type Loss struct {
	At      Instant   `json:"at"`
	Dropped int64     `json:"dropped"`
	First   time.Time `json:"dropped_first,omitzero"`
	Last    time.Time `json:"dropped_last,omitzero"`
	// Refused were answered with an error, between the two times.
	Refused int64     `json:"refused"`
	Failed  time.Time `json:"failed_at,omitzero"`
	Resumed time.Time `json:"resumed_at,omitzero"`
	Error   string    `json:"error,omitzero"`
	// Damage is of a journal that was damaged when its loss was accepted.
	*Damage
}

// UnsignedTail is where records were named, or named again, that had neither a checkpoint nor a MAC when a start found
// them.
type UnsignedTail struct {
	At Instant `json:"at"`
	record.UnsignedTail
}

// OutsideStart counts decisions that no start of the service stands before, or a stop or a crash does.
type OutsideStart struct {
	Decisions int64   `json:"decisions"`
	First     Instant `json:"first"`
}

// Damage is the loss of a journal: Lost records, or an unknown number.
type Damage struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Lost   *int64 `json:"lost,omitzero"`
	Kept   uint64 `json:"kept"`
}

// KeyRotation is the record of a new key of the log.
type KeyRotation struct {
	At  Instant `json:"at"`
	Old string  `json:"old"`
	New string  `json:"new"`
}

// Make makes the report of a span of time. It reads the whole log once. Its memory grows with days, bundle loads
// and other events and, up to a bound, with obligations that wait for their receipts and with names that are counted; not with decisions.
func Make(ctx context.Context, s *segment.Snapshot, o Options) (Report, error) {
	if err := o.Check(); err != nil {
		return Report{}, err
	}
	last, err := segment.ParseCheckpoint(s.Head.Checkpoint, nil)
	if err != nil {
		return Report{}, err
	}
	p := newReporting(o)
	p.report.Origin, p.report.Size, p.report.Checkpoint = s.Head.Origin, s.Head.Size, string(s.Head.Checkpoint)
	p.report.Tenants, p.service.Unread = s.Tenants, s.Head.Unread
	p.from = newFrom("", newExportGaps(last))
	p.gaps = p.exports[0]
	if err := each(ctx, s, p.look); err != nil {
		return Report{}, err
	}
	p.ended(p.from)
	signed, began, err := heartbeats(ctx, s, last)
	if err != nil {
		return Report{}, err
	}
	p.countDays(signed, began, last.Time)
	return p.end(o), nil
}

// OfExport is [Make] of an export, or of a merge.
func OfExport(r *export.Reader, o Options) (Report, error) {
	if err := o.Check(); err != nil {
		return Report{}, err
	}
	p, logs, ended := newReporting(o), map[string]*from{}, time.Time{}
	var exports []*exportGaps
	for _, part := range r.Parts { // of one log, the longest comes last
		c, err := segment.ParseCheckpoint([]byte(part.Checkpoint), nil)
		if err != nil {
			return Report{}, err
		}
		if c.Time.After(ended) {
			ended = c.Time
		}
		if part.Filter.Tenants != nil {
			p.report.Tenants = slices.Compact(slices.Sorted(slices.Values(slices.Concat(p.report.Tenants, part.Filter.Tenants))))
		}
		if n := len(p.report.Logs); n > 0 && p.report.Logs[n-1].Origin == part.Origin {
			p.report.Logs = p.report.Logs[:n-1]
		}
		p.report.Logs = append(p.report.Logs, Log{part.Origin, part.Size, part.Checkpoint})
		if logs[part.Origin] == nil {
			logs[part.Origin] = newFrom(part.Origin)
		}
		one, log := newExportGaps(c), logs[part.Origin]
		exports, log.exports = append(exports, one), append(log.exports, one)
	}
	for _, one := range p.report.Logs {
		if p.report.Size += one.Size; len(p.report.Logs) == 1 {
			p.report.Origin, p.report.Checkpoint, p.report.Logs, logs[one.Origin].origin = one.Origin, one.Checkpoint, nil, ""
		}
	}
	for l, err := range r.Leaves() {
		if err != nil {
			return Report{}, err
		}
		p.from = logs[r.Parts[l.Part].Origin]
		p.uses.gone = p.uses.gone || l.Line == nil
		if p.gaps = exports[l.Part]; l.Again {
			p.report.Again++
			_, err = p.gaps.read(l.Record) // its time dates the gaps of this export
		} else {
			if l.Gone == format.WhyFiltered {
				p.report.LeftOut++
			}
			err = p.look(l.Record)
		}
		if err != nil {
			return Report{}, err
		}
	}
	for _, origin := range slices.Sorted(maps.Keys(logs)) {
		p.ended(logs[origin])
	}
	p.report.Days.Unsaid = true
	p.countDays(nil, ended, ended)
	return p.end(o), nil
}

// each has every record of a log looked at, in order, up to the first error.
func each(ctx context.Context, s *segment.Snapshot, look func(record.Record) error) error {
	for l, err := range s.Records(ctx, 0, uint64(s.Head.Size)) {
		if err == nil {
			err = look(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
