// Package vouch hands a record of one log to those that know the key of that log and have no other way to it: its line, and
// the proof in the form of C2SP tlog-proof.
package vouch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/export"
	"policy-service/pdp/decisionlog/verify"
)

// Prove is a record of a log with its proof. If no checkpoint covers it yet, one is made. It is not found if its content is
// gone.
func Prove(ctx context.Context, l *decisionlog.Log, id string) (line, proof []byte, found bool, err error) {
	record, err := l.Attest(ctx, id)
	if errors.Is(err, decisionlog.ErrNotFound) || errors.Is(err, decisionlog.ErrGone) {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	snapshot, err := l.Snapshot()
	if err != nil {
		return nil, nil, false, err
	}
	p, err := export.Log{Snapshot: snapshot}.Proof(record, id)
	return record.Line, p.Text(), err == nil, err
}

// Verify says why a proof does not show that a line is in the log of an origin. KeyOf has the keys that the log has had, as
// `log key` prints them.
func Verify(line, proof []byte, origin string, keyOf func(origin string) ([]string, error)) error {
	if keyOf == nil {
		return errors.New("the keys of other logs are not known here")
	}
	keys, err := keyOf(origin)
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
