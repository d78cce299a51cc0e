package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
	"policy-service/pdp/decisionlog/recorder"
	"policy-service/pdp/server/audit"
	"policy-service/pdp/server/door"
	"policy-service/pdp/server/sink"
)

// newAudit makes the routes of the decision log. Its log and the bundles are nil until [Server.openLog] has them.
func (s *Server) newAudit() *audit.Audit {
	return audit.New(audit.Options{
		Door: s.door,
		Data: s.config.Data,
		Mode: s.config.DecisionLog.Mode,
		Mask: func(ctx context.Context) *mask.Masker { return s.pinned(ctx).mask },
		Reported: func(ctx context.Context, obligation string, status evaluation.ReceiptStatus) {
			s.telemetry.Decisions.Reported(ctx, obligation, status)
		},
	})
}

// openLog opens the decision log and records the start. Until it returns nothing can
// be decided, so nothing is decided that is not on record.
func (s *Server) openLog(ctx context.Context) error {
	if s.config.Data == "" {
		s.log.Info("no data directory is given: decisions are not recorded")
		return nil
	}
	if s.config.Program.PDP.Recorder != nil {
		return nil // the embedding program keeps its own record
	}
	key, err := maskKey.Open(s.config.Data)
	if err != nil {
		return err
	}
	if s.live.Load().mask, err = mask.New(key, s.config.DecisionLog.Mask); err != nil {
		return err
	}
	if s.audit.Bundles, err = decisionlog.OpenBundles(s.config.Data); err != nil {
		return fmt.Errorf("cannot make the directory for the files of bundles: %w; see to the permissions of the data directory", err)
	}
	sinks, err := s.newSinks(ctx)
	if err != nil {
		return err
	}
	checkpoints := sink.NewCheckpoints(s.out, s.log)
	s.lifetime.add("checkpoints", checkpoints.Stop) // after the log, which is closed with a last checkpoint
	s.events = recorder.NewEvents(s.now, s.log)
	options := decisionlog.Options{
		Mode:         s.config.DecisionLog.Mode,
		Now:          s.config.Program.PDP.Now,
		OnCheckpoint: checkpoints.Take,
		OnState:      s.logState,
		Index:        true,
		OnFailure:    s.logFailure,
		Kinds:        []string{decisionlog.KindApproval},
	}
	counts := &s.telemetry.Log
	options.OnCommit, options.OnRotate, options.OnReplace = counts.Committed, counts.Rotated, counts.Replaced
	s.newRetention(&options)
	if s.decisions, err = decisionlog.Open(s.config.Data, options); err != nil {
		return fmt.Errorf("cannot open the decision log: %w; another process may serve from this data directory, or the disk be full", err)
	}
	s.lifetime.add("decision log", closing(s.closeLog))
	if err := s.boundCallers(ctx); err != nil {
		return fmt.Errorf("cannot read whose the records of the decision log are: %w; see to the disk of the data directory", err)
	}
	if err := s.config.DecisionLog.Retain.Unsaid(); err != nil {
		s.log.Warn(err.Error())
	}
	s.startSinks(sinks)
	s.lifetime.add("record of the stop", s.recordStop)
	s.audit.Log, s.events.Log = s.decisions, s.decisions
	s.config.Program.PDP.Recorder = &recorder.Recorder{
		Log:   s.decisions,
		Mask:  s.audit.Mask,
		GoOn:  door.GoOn,
		Waits: door.EndShift,
	}
	start := recorder.Event{
		Name:    decisionlog.EventStart,
		Details: map[string]any{"version": version(), "pid": os.Getpid()},
	}
	configured := recorder.Event{
		Name:    decisionlog.EventConfiguration,
		Details: ConfigForm.Values(s.config),
	}
	if err := s.events.Record(ctx, start, configured); err != nil {
		return fmt.Errorf("the start cannot be recorded: %w; see to the disk of the data directory", err)
	}
	return nil
}

// stopWithin is how long the record of the stop may take, also where the patience of
// whoever stops the server has run out.
const stopWithin = 5 * time.Second

// recordStop records the stop as the last thing that happens. A disk that fails keeps
// no server from stopping as it was told to: the next start says that this one ended
// without a word.
func (s *Server) recordStop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := s.events.Record(ctx, recorder.Event{Name: decisionlog.EventStop}); err != nil {
		s.log.Error("the stop cannot be recorded", "error", err)
	}
	return nil
}

func (s *Server) closeLog() error {
	err := s.decisions.Close()
	if errors.Is(err, decisionlog.ErrUnavailable) {
		s.log.Error("the decision log cannot be closed in order", "error", err)
		return nil
	}
	return err
}

// admitBundle puts a bundle on record, and keeps its files, before anything is decided by it.
func (s *Server) admitBundle(b pdp.Incoming) error {
	if s.decisions != nil {
		if _, err := s.audit.Bundles.Put(b.Files); err != nil {
			return fmt.Errorf("its files cannot be kept: %w", err)
		}
		details := map[string]any{"bundle": b.Digest, "files": len(b.Files)}
		if len(b.Later) > 0 { // the digest is not that of the directory
			details["later"] = b.Later
		}
		if err := s.events.Record(context.Background(), recorder.Event{Name: decisionlog.EventBundleLoaded, Details: details}); err != nil {
			return fmt.Errorf("it cannot be recorded: %w", err)
		}
	}
	if ask := s.config.Program.PDP.BeforeSwap; ask != nil {
		return ask(b)
	}
	return nil
}

// logState tells the operator. It is called by the log's writer and must not wait.
func (s *Server) logState(err error) {
	switch {
	case err == nil:
		s.log.Info("the decision log can be written again")
		s.events.Wake()
	case s.config.DecisionLog.Mode == decisionlog.BestEffort:
		s.log.Error("the decision log cannot be written; decisions are answered, and are missing from it until it can; see to the disk of the data directory", "error", err)
	default:
		s.log.Error("the decision log cannot be written; nothing is answered until it can; see to the disk of the data directory", "error", err)
	}
}

// logFailure tells the operator what failed beside the log's writer.
func (s *Server) logFailure(err error) {
	if errors.Is(err, decisionlog.ErrUndigested) {
		s.log.Error("a segment of the decision log was altered before its digest was on record, or cannot be read; nothing is redacted or retired in it; "+
			"run policy-service log verify, keep the file as evidence, put back a copy that verifies, and start again", "error", err)
		return
	}
	s.telemetry.Log.IndexFailed() // nothing is wrong but how long a query takes
	s.log.Warn("an index of the decision log cannot be made; queries are slow until it can, and it is tried again; see to the disk of the data directory", "error", err)
}

// logReadiness is the log's part of /readyz.
type logReadiness struct {
	Mode decisionlog.Mode `json:"mode"`
	OK   bool             `json:"ok"`
	Size uint64           `json:"size"`
	// Full is that records too young to be dropped are all that there may be.
	Full bool `json:"full,omitzero"`
	// Altered counts the sealed segments that were altered before their digest was on record.
	Altered int `json:"altered,omitzero"`
}

func (s *Server) logReadiness() *logReadiness {
	status := s.decisions.Status()
	return &logReadiness{status.Mode, status.OK, status.Size, status.Full, status.Altered}
}
