// Package vouch reads the steps of a store from the records that a log vouches for. It also hands a record of one log to
// those that know the key of that log and have no other way to it: its line, and the proof in the form of C2SP tlog-proof.
package vouch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Steps are the steps of a store as the log has them.
type Steps[S any] struct {
	Log *decisionlog.Log
	// KeyOf has the keys that the log of another origin has had, as `log key` prints them. Nil knows none.
	KeyOf func(origin string) ([]string, error)
	// Of reads the steps of a line, none if it is of something else.
	Of func(line []byte) ([]S, error)
	// Item is the id of what the step is of.
	Item func(S) string
	// Gone is the step of an item for all records whose content is gone, of which the last has this sequence.
	Gone func(item string, last uint64) S
	// None is the error of Verify for a line without a step.
	None string
}

// Attest finds a step by the id of its record, if the log vouches for that record.
func (s Steps[S]) Attest(ctx context.Context, id string) (step S, found bool, err error) {
	record, found, err := s.record(ctx, id)
	if err != nil || !found {
		return step, false, err
	}
	return s.first(record.Line)
}

// record is a record that the log vouches for. It is not found if its content is gone.
func (s Steps[S]) record(ctx context.Context, id string) (r record.Record, found bool, err error) {
	r, err = s.Log.Attest(ctx, id)
	if errors.Is(err, segment.ErrNotFound) || errors.Is(err, segment.ErrGone) {
		return r, false, nil
	}
	return r, err == nil, err
}

// first reads the first step of a line that a log vouches for.
func (s Steps[S]) first(line []byte) (step S, found bool, err error) {
	all, err := s.Of(line)
	if err != nil || len(all) == 0 {
		return step, false, err
	}
	return all[0], true, nil
}

// Since reads the steps that the log has of some items from a sequence on, by the ids of the items.
func (s Steps[S]) Since(ctx context.Context, from uint64, ids map[string]bool) (map[string][]S, error) {
	all, gone := map[string][]S{}, false
	var last uint64 // the last record that is gone: a store that knows of it knows of those before it
	err := s.Log.Naming(ctx, from, ids, func(r record.Record) error {
		if r.Line == nil {
			last, gone = r.Sequence, true
			return nil
		}
		some, err := s.Of(r.Line)
		if err != nil {
			return fmt.Errorf("record %d: %w", r.Sequence, err)
		}
		for _, step := range some {
			all[s.Item(step)] = append(all[s.Item(step)], step)
		}
		return nil
	})
	if gone {
		for id := range ids {
			all[id] = append(all[id], s.Gone(id, last))
		}
	}
	return all, err
}

// Prove is a record of the log with its proof. If no checkpoint covers it yet, one is made. It is not found if its content is
// gone.
func (s Steps[S]) Prove(ctx context.Context, id string) (line, proof []byte, found bool, err error) {
	record, found, err := s.record(ctx, id)
	if err != nil || !found {
		return nil, nil, false, err
	}
	snapshot, err := s.Log.Snapshot()
	if err != nil {
		return nil, nil, false, err
	}
	p, err := export.Log{Snapshot: snapshot}.Proof(record, id)
	return record.Line, p.Text(), err == nil, err
}

// Verify reads the step of a line, if its proof shows that the line is in the log of an origin.
func (s Steps[S]) Verify(line, proof []byte, origin string) (step S, err error) {
	if err = s.verify(line, proof, origin); err != nil {
		return step, err
	}
	step, found, err := s.first(line)
	if err == nil && !found {
		err = errors.New(s.None)
	}
	return step, err
}

// verify says why a proof does not show that a line is in the log of an origin.
func (s Steps[S]) verify(line, proof []byte, origin string) error {
	if s.KeyOf == nil {
		return errors.New("the keys of other logs are not known here")
	}
	keys, err := s.KeyOf(origin)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return fmt.Errorf("no key of the log %s is known", origin)
	}
	for _, text := range keys {
		if key, err := note.NewVerifier(text); err != nil || key.Name() != origin {
			return fmt.Errorf("%q is no key of the log %s", text, origin)
		}
	}
	report := verify.Proof(line, proof, verify.Options{Key: strings.Join(keys, "\n")})
	if report.Problem != nil {
		return report.Problem
	}
	return nil
}
