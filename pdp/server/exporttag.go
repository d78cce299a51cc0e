package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"policy-service/pdp/decisionlog"
)

// exported is the state of the log that is to be exported, the tag of that export, and
// whether it is the one that was asked for by its tag.
func (s *Server) exported(ctx context.Context, want exportAsked) (snapshot *decisionlog.Snapshot, tag string, again bool, err error) {
	if want.tag != "" {
		snapshot, err = s.exportedBefore(ctx, want)
		if err == nil {
			return snapshot, quoted(want.tag), true, nil
		}
		if want.insist || !errors.Is(err, decisionlog.ErrChanged) {
			return nil, "", false, exportProblem(err)
		}
	}
	s.sign(ctx)
	if snapshot, err = s.decisions.Settled(); err != nil {
		return nil, "", false, checkpointProblem(err)
	}
	snapshot = snapshot.For(want.tenants)
	tag, err = want.tagOf(ctx, snapshot)
	return snapshot, quoted(tag), false, err
}

func quoted(tag string) string { return `"` + tag + `"` }

// exportedBefore is the state of the log that a tag names, or ErrChanged where it cannot
// be had, or the tag is that of another export.
func (s *Server) exportedBefore(ctx context.Context, want exportAsked) (*decisionlog.Snapshot, error) {
	at, ok := momentOf(want.tag)
	if !ok {
		return nil, decisionlog.ErrChanged
	}
	snapshot, err := s.decisions.At(at)
	if errors.Is(err, decisionlog.ErrNotFound) || errors.Is(err, decisionlog.ErrGone) {
		return nil, decisionlog.ErrChanged
	}
	if err != nil {
		return nil, err
	}
	snapshot = snapshot.For(want.tenants)
	if tag, err := want.tagOf(ctx, snapshot); err != nil || tag != want.tag {
		return nil, errors.Join(decisionlog.ErrChanged, err)
	}
	return snapshot, snapshot.Intact(ctx)
}

// tagOf names an export: the checkpoint by what it is stored under, and a hash of all
// else that the bytes depend on. The program is among that: another release may write
// another export, or compress it otherwise.
func (want exportAsked) tagOf(ctx context.Context, snapshot *decisionlog.Snapshot) (string, error) {
	checkpoint, err := snapshot.Checkpoint(ctx)
	if err != nil {
		return "", err
	}
	all, err := marshal(struct {
		Checkpoint string
		Keys       []string
		Filter     decisionlog.Filter
		Format     string
		Proofs     bool
		Gzip       bool
		Program    any
		Go         string
	}{string(checkpoint), snapshot.Keys(), want.options.Filter, want.options.Format, want.options.Proofs, want.gzip, startDetails()["version"], runtime.Version()})
	if err != nil {
		return "", err
	}
	at, sum := snapshot.Moment(), sha256.Sum256(all)
	return fmt.Sprintf("%d-%d-%s", at.Size, at.Time.UnixNano(), base64.RawURLEncoding.EncodeToString(sum[:15])), nil
}

// momentOf is the checkpoint that a tag names.
func momentOf(tag string) (decisionlog.Moment, bool) {
	size, after, _ := strings.Cut(tag, "-")
	nanos, _, found := strings.Cut(after, "-")
	n, err := strconv.ParseUint(size, 10, 63)
	at, err2 := strconv.ParseInt(nanos, 10, 64)
	return decisionlog.Moment{Size: n, Time: time.Unix(0, at)}, found && err == nil && err2 == nil
}
