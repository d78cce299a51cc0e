// Package witness has witnesses cosign the checkpoints of the decision log, by C2SP tlog-witness. Start with [New];
// [Witnesses.Run] works beside everything else, at its own pace.
//
// A round puts one checkpoint that is durable already to all witnesses at once: it makes no checkpoint, and no
// transaction of the log. Once the quorum of the policy has cosigned it, the log keeps it with their lines. No witness
// is trusted: ask.go bounds and checks each answer, and suspect.go has the rules for one that knows another log.
//
// The package refuses to decide whether an answer may be given: [Witnesses.Refuse] says whether the quorum is missing
// for too long, and the log asks it where the operator wants that.
package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
)

// Options are the arguments of [New]. All but Monitoring must be set.
type Options struct {
	Log *decisionlog.Log
	// Data is the directory of the log.
	Data string
	// Policy has the witnesses with their URLs, and the quorum.
	Policy *c2sp.Policy
	// Monitoring has, by the label of a witness, the URL below which it shows the checkpoint that it cosigned last.
	Monitoring map[string]string
	// Every is how often a round begins, and how long one lasts at most.
	Every time.Duration
	// Patience is how long the quorum may be missing. Required is set if nothing is answered after that.
	Patience time.Duration
	Required bool
	Now      func() time.Time
	// Count is called with each outcome.
	Count  func(label string, outcome Outcome)
	Logger *slog.Logger
}

// Outcome is how the last request to a witness ended.
type Outcome string

// The outcomes.
const (
	Cosigned    Outcome = "cosigned"
	UnknownKey  Outcome = "unknown_key"   // 403
	UnknownLog  Outcome = "unknown_log"   // 404
	OtherSize   Outcome = "other_size"    // 409 again and again, with sizes that the log has
	Suspected   Outcome = "suspect"       // 409 with a size that the log has not, or 422
	BadLine     Outcome = "bad_signature" // 200 without a cosignature that counts
	Refused     Outcome = "refused"       // any other answer
	Unreachable Outcome = "unreachable"   // no answer in time
	Unproved    Outcome = "unproved"      // the log could not prove its consistency
)

// Outcomes are all of them.
func Outcomes() []Outcome {
	return []Outcome{Cosigned, UnknownKey, UnknownLog, OtherSize, Suspected, BadLine, Refused, Unreachable, Unproved}
}

// State is how it stands with one witness.
type State struct {
	Witness string    `json:"witness"`
	Outcome Outcome   `json:"outcome,omitzero"` // absent before the first answer
	Detail  string    `json:"detail,omitzero"`
	Since   time.Time `json:"since,omitzero"`
}

// Status is how it stands with all of them.
type Status struct {
	// Quorum is when a quorum cosigned last in this process, or else when this one began.
	Quorum time.Time `json:"quorum"`
	// Size is how many records the newest checkpoint has that a quorum cosigned.
	Size uint64 `json:"size"`
	// Missing is set if the quorum is missing for longer than the patience.
	Missing bool `json:"missing,omitzero"`
	// Conflict is set if a witness has a checkpoint that bears the log's signature and is not of the log.
	Conflict  bool    `json:"conflict,omitzero"`
	Witnesses []State `json:"witnesses"`
}

// Suspects is how many witnesses are left out because they know another log.
func (s Status) Suspects() (n int) {
	for _, one := range s.Witnesses {
		if one.Outcome == Suspected {
			n++
		}
	}
	return n
}

// Witnesses are the witnesses of a log.
type Witnesses struct {
	Options
	peers  []*peer
	quorum atomic.Pointer[time.Time] // see Status

	mu       sync.Mutex         // guards the fields below, and the states of peers
	kept     segment.Checkpoint // the newest that a quorum cosigned
	part     []byte             // the last one that was submitted, with the lines that it has
	missing  bool               // as it was logged
	conflict bool
}

// peer is one witness.
type peer struct {
	c2sp.Witness
	server  *httpclient.Server
	monitor *httpclient.Server // nil without an address

	// Guarded by mu:
	state   State
	suspect *Suspect // nil if it is none

	// Of the one round that goes on:
	old   uint64    // the size that it cosigned last, as far as is known
	tried time.Time // when it was asked last
}

// New makes the witnesses of a log, and asks none.
func New(o Options) (*Witnesses, error) {
	w := &Witnesses{Options: o}
	began := o.Now()
	w.quorum.Store(&began)
	var err error
	if w.conflict, err = Conflict(o.Log.Reader, o.Data); err != nil {
		o.Logger.Warn(err.Error())
	}
	kept, err := o.Log.Witnessed()
	if err == nil {
		err = Enough(o.Policy, kept.Note)
	}
	switch {
	case w.conflict:
		w.logConflict("an earlier run kept it")
	case errors.Is(err, segment.ErrForked):
		w.setConflict(kept.Note, "witnesses cosigned it, and it stands beside the log")
	case err != nil && !errors.Is(err, segment.ErrNotFound):
		o.Logger.Warn("the checkpoint that witnesses cosigned last does not count, and another takes its place", "error", err)
	}
	if err == nil {
		w.kept = kept
	}
	for _, one := range o.Policy.Witnesses {
		p := &peer{Witness: one, state: State{Witness: one.Label}}
		if p.server, err = connect(one.URL); err != nil {
			return nil, fmt.Errorf("the witness %s: %w", one.Label, err)
		}
		if url, ok := o.Monitoring[one.Label]; ok {
			if p.monitor, err = connect(url); err != nil {
				return nil, fmt.Errorf("the monitoring address of the witness %s: %w", one.Label, err)
			}
		}
		if _, err := lineOf(kept.Note, one); err == nil && w.kept.Size > 0 { // else its first answer says the size
			p.old = kept.Size
		}
		w.peers = append(w.peers, p)
	}
	w.readSuspects()
	return w, nil
}

// Close closes the connections to the witnesses. No round may go on.
func (w *Witnesses) Close() error {
	for _, p := range w.peers {
		p.server.Close()
		if p.monitor != nil {
			p.monitor.Close()
		}
	}
	return nil
}

// connect makes the client of an address: https, or http on this machine.
func connect(url string) (*httpclient.Server, error) {
	if _, ok := httpclient.Socket(url); ok || url == "" {
		return nil, errors.New("its address is no URL; write it like https://witness.example.com")
	}
	return httpclient.New(url, httpclient.Options{})
}

// Check says why nothing could be sent to an address.
func Check(url string) error {
	_, err := connect(url)
	return err
}

// Run has a round begin at once, and then each time that Every is over, until ctx ends.
func (w *Witnesses) Run(ctx context.Context) {
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		w.Round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Round puts the newest checkpoint to all witnesses, but to suspects only now and then. It returns when all have
// answered, at most Every later.
func (w *Witnesses) Round(ctx context.Context) {
	defer w.look()
	c, err := w.Log.Signed()
	if err != nil || w.Status().Conflict {
		return // without a checkpoint there is nothing that could be cosigned
	}
	within, cancel := context.WithTimeout(ctx, w.Every)
	defer cancel()
	answers, asked := make(chan answer, len(w.peers)), 0
	for _, p := range w.peers {
		now := w.Now()
		w.mu.Lock()
		rests := p.suspect != nil && now.Sub(p.tried) < suspectAgain
		w.mu.Unlock()
		if rests {
			continue
		}
		p.tried = now
		asked++
		go func() { answers <- w.answer(within, p, c) }()
	}
	cosigned, signed, kept, forked := map[string]bool{}, bytes.Clone(c.Note), 0, false
	for range asked {
		a := <-answers
		if ctx.Err() != nil {
			continue // it says nothing about the witness
		}
		forked = forked || a.conflict != nil
		if w.take(a); a.outcome != Cosigned || forked {
			continue
		}
		signed, cosigned[a.of.Label] = append(signed, a.line...), true
		if kept == 0 && w.Policy.Quorum(func(label string) bool { return cosigned[label] }) && w.keep(signed, c) {
			kept = len(signed)
		}
	}
	if kept > 0 && kept < len(signed) && !forked {
		w.keep(signed, c) // with the lines that came after the quorum
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.part = signed
}

// keep has the log keep a checkpoint that a quorum cosigned.
func (w *Witnesses) keep(signed []byte, c segment.Checkpoint) bool {
	signed = bytes.Clone(signed)
	if err := w.Log.KeepWitnessed(signed); err != nil {
		w.Logger.Error("a checkpoint that was cosigned cannot be kept; see to the disk of the data directory", "error", err)
		return false
	}
	now := w.Now()
	w.quorum.Store(&now)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept, w.kept.Note = c, signed
	return true
}

// take takes the answer of a witness. It logs changes alone.
func (w *Witnesses) take(a answer) {
	w.Count(a.of.Label, a.outcome)
	now := w.Now().UTC()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.setSuspect(a, now); a.of.suspect != nil {
		a.outcome = Suspected
	}
	s := State{a.of.Label, a.outcome, a.detail, now}
	changed := a.of.state.Outcome != a.outcome
	if !changed {
		s.Since = a.of.state.Since
	}
	a.of.state = s
	switch {
	case a.conflict != nil:
		w.setConflict(a.conflict, "the witness "+s.Witness+" has it")
	case !changed:
	case a.outcome == Cosigned:
		w.Logger.Info("the witness cosigns", "witness", s.Witness)
	case a.outcome == Suspected:
		a.of.logSuspect(w.Logger)
	default:
		w.Logger.Warn("the witness does not cosign; it is asked again", "witness", s.Witness, "outcome", a.outcome, "detail", a.detail)
	}
}

// look logs that the quorum is missing for too long, or there again.
func (w *Witnesses) look() {
	missing := w.Refuse(w.Now()) != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	switch was := w.missing; {
	case missing && !was:
		w.Logger.Error("no quorum of witnesses cosigns the checkpoints of the decision log; see /readyz, and to the witnesses", "since", w.quorum.Load().UTC())
	case !missing && was:
		w.Logger.Info("a quorum of witnesses cosigns again")
	}
	w.missing = missing
}

// Refuse is an error if the quorum is missing for longer than the patience. It costs one atomic load.
func (w *Witnesses) Refuse(now time.Time) error {
	if now.Sub(*w.quorum.Load()) <= w.Patience {
		return nil
	}
	return errMissing
}

var errMissing = errors.New("no quorum of witnesses has cosigned the log for longer than decision_log.witnesses.patience")

// Checkpoint is the one to be shown: the newest that a quorum cosigned. If the quorum is missing for too long, and is not
// required, it is the newest one, with the lines that it has.
func (w *Witnesses) Checkpoint() (segment.Checkpoint, error) {
	missing := w.Refuse(w.Now()) != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if missing && !w.Required {
		newest, err := w.Log.Signed()
		if err == nil && bytes.HasPrefix(w.part, newest.Note) {
			newest.Note = w.part
		}
		return newest, err
	}
	if w.kept.Size == 0 {
		return w.kept, fmt.Errorf("%w: no quorum of witnesses has cosigned a checkpoint yet", segment.ErrNotFound)
	}
	return w.kept, nil
}

// Status says how it stands.
func (w *Witnesses) Status() Status {
	s := Status{Quorum: w.quorum.Load().UTC(), Missing: w.Refuse(w.Now()) != nil}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Size, s.Conflict = w.kept.Size, w.conflict
	for _, p := range w.peers {
		s.Witnesses = append(s.Witnesses, p.state)
	}
	return s
}
