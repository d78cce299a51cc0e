package decisionlog

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
)

// Mode says whether an answer waits for its record.
type Mode string

// The modes of a log. In best effort, entries of kind decision and search are
// written after Append returned; a call with an entry of any other kind waits, and so
// does one with a decision that spends an approval.
const (
	Strict     Mode = "strict"
	BestEffort Mode = "best_effort"
)

// Options configure a [Log]. The zero value is ready to use.
type Options struct {
	Mode Mode // the default is Strict
	// Origin names a log that is created now; the default is random. A log that
	// exists keeps its own.
	Origin string
	// Kinds are the kinds of record besides decision, search, batch, admin and receipt.
	Kinds []string
	// Now is the clock, NewID names the log's own records.
	Now   func() time.Time
	NewID func() string

	SegmentBytes int64         // a segment is sealed at this size: 64 MiB
	SegmentAge   time.Duration // and at this age: 24 h

	Checkpoints Checkpoints

	// Refuse is asked before entries are put on record that may be refused, such as decisions. Its error is part of the
	// [segment.ErrUnavailable] that Append returns. It may be nil.
	Refuse func(now time.Time) error

	// On has the functions that the log calls.
	On Hooks

	// Index has the log make an index of its records, beside the writer, which makes
	// [Log.Query] fast in a large log.
	Index bool

	Journal     journal.Options
	QueueBytes  int64         // an Append waits while so many bytes wait before it: 64 MiB
	RetryEvery  time.Duration // how often a log that failed tries again: 250 ms
	LockTimeout time.Duration // how long Open waits for another process: 2 s
}

// Checkpoints say when a checkpoint is made.
type Checkpoints struct {
	Records int           // after so many records: 1,000
	Bytes   int64         // and after so many bytes of them: 1 MiB
	Every   time.Duration // and so often, also in silence: 1 min
	Idle    time.Duration // and if records wait for one for so long without another record: 1 s
}

// Hooks are the functions that a log calls when something happened. Each may be nil. Each must be
// quick, because most of them keep the writer waiting, and must not call the log.
type Hooks struct {
	// Checkpoint gets each signed checkpoint once it is durable.
	Checkpoint func(note []byte)
	// Commit gets each commit. Whoever makes one calls it, so calls may overlap.
	Commit func(Commit)
	// Fill gets how long each transaction took that filled the segment with what the journal has.
	Fill func(took time.Duration)
	// Rotate is called after each rotation.
	Rotate func()
	// Aged is called when more records are old enough to be dropped than before, if
	// [Log.Limit] says how old that is.
	Aged func()
	// Failure gets what failed beside the writer: an index, which is tried again.
	Failure func(error)
	// State gets the error when writing fails, and nil when it works again.
	State func(err error)
	// Step gets each of the steps below, by whoever takes it. It is for tests that end the process there.
	// [journal.Options] has one for the steps of the journal.
	Step func(step string)
}

// The steps of the log, besides those of its journal. Between any two of them at most one file changes what counts.
const (
	StepReplay    = "replay"    // before what only the journal has is read
	StepReplayed  = "replayed"  // the segments have it, and no journal counts
	StepFill      = "fill"      // before a transaction with frames of the journal is made durable
	StepFilled    = "filled"    // it is durable
	StepCommit    = "commit"    // before any other transaction is made durable
	StepCommitted = "committed" // it is durable
	StepPrepare   = "prepare"   // before an empty segment gets its name
	StepPrepared  = "prepared"  // it has its name
	StepSeal      = "seal"      // all that was answered is in the segment that is to be sealed
	StepSealed    = "sealed"    // no journal counts for it, and the next one has nothing yet
	StepBegun     = "begun"     // the next one has its first record
	StepClose     = "close"     // nobody may append any more
	StepClosed    = "closed"    // all is written, and no journal counts
)

// Steps are all of these steps.
func Steps() []string {
	return []string{StepReplay, StepReplayed, StepFill, StepFilled, StepCommit, StepCommitted, StepPrepare, StepPrepared,
		StepSeal, StepSealed, StepBegun, StepClose, StepClosed}
}

// Commit is what was made durable together: a frame of the journal, or what a transaction wrote that the journal did not
// have. Took is the time from when the first part came to be written.
type Commit struct {
	Records, Bytes, Calls int
	Took                  time.Duration
}

// The errors of a log.
var (
	ErrClosed   = errors.New("the decision log is closed")
	ErrTooLarge = errors.New("too large for a record")
	// ErrLost: records that were answered for cannot be read, because the journal is damaged, or is not there. The
	// error says which. [Recover] accepts that.
	ErrLost = fmt.Errorf("%w", record.ErrDamaged)
	// ErrNoLoss: the journal is not damaged, so there is no loss to accept.
	ErrNoLoss = errors.New("the journal is not damaged")
)

// withDefaults fills in what is not set.
func (o Options) withDefaults() Options {
	o.Mode = cmp.Or(o.Mode, Strict)
	o.Kinds = append([]string{format.KindDecision, format.KindPossible, format.KindSearch, format.KindBatch, format.KindAdmin, format.KindReceipt}, o.Kinds...)
	orElse(&o.Now, time.Now)
	orElse(&o.NewID, func() string { return uuid.Must(uuid.NewV7()).String() })
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 64<<20)
	o.SegmentAge = cmp.Or(o.SegmentAge, 24*time.Hour)
	o.Checkpoints.Records = cmp.Or(o.Checkpoints.Records, 1000)
	o.Checkpoints.Bytes = cmp.Or(o.Checkpoints.Bytes, 1<<20)
	o.Checkpoints.Every = cmp.Or(o.Checkpoints.Every, time.Minute)
	o.Checkpoints.Idle = cmp.Or(o.Checkpoints.Idle, time.Second)
	o.QueueBytes = cmp.Or(o.QueueBytes, 64<<20)
	o.RetryEvery = cmp.Or(o.RetryEvery, 250*time.Millisecond)
	o.LockTimeout = cmp.Or(o.LockTimeout, 2*time.Second)
	orElse(&o.Refuse, func(time.Time) error { return nil })
	orElse(&o.On.Checkpoint, func([]byte) {})
	orElse(&o.On.Commit, func(Commit) {})
	orElse(&o.On.Fill, func(time.Duration) {})
	orElse(&o.On.Rotate, func() {})
	orElse(&o.On.Aged, func() {})
	orElse(&o.On.Failure, func(error) {})
	orElse(&o.On.State, func(error) {})
	orElse(&o.On.Step, func(string) {})
	return o
}

// orElse sets a function that is nil.
func orElse[F any](f *F, other F) {
	if reflect.ValueOf(*f).IsNil() {
		*f = other
	}
}
