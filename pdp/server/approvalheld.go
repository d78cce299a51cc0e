package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/datakey"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/recorder"
)

// inForce says whether a credential may still approve in a tenant. A program that embeds
// the server and tells callers apart itself says so by a method of its own.
func (a *approvals) inForce(tenant, caller string) bool {
	known, says := a.server.live.Load().callers.(interface {
		InForce(tenant, caller string) bool
	})
	return !says || known.InForce(tenant, caller)
}

// samePerson says whether two names are of one person. Where that cannot be said, they
// are.
func (a *approvals) samePerson(tenant, one, other string) bool {
	v := &approver{server: a.server, reviewers: map[reviewerOf]*pdp.Reviewer{}}
	return v.same(tenant, one, other)
}

// approvalKey keeps a person who has the file of approvals from trying values against it.
var approvalKey = datakey.Key{
	File:  "approvals.key",
	Of:    "approvals",
	Moved: "and nothing counts that was approved before",
}

// approvalsKept is what is read of the approvals before the log is opened: their key, and what the log says of a file of
// format 1.
type approvalsKept struct {
	key      []byte
	evidence *broker.Evidence
}

// openApprovalKey reads the key of approvals, before anything else has to do with them,
// and what the log says of a file of format 1.
func (s *Server) openApprovalKey() (err error) {
	if s.config.Data == "" || s.config.Program.PDP.Recorder != nil {
		return nil
	}
	if err := keyWithFile(s.config.Data); err != nil {
		return err
	}
	if name := filepath.Join(s.config.Data, approval.FileName); !approvalKey.There(s.config.Data) {
		// Nothing in it counts, and without the key nothing can be believed: it is begun anew.
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s belongs to a key that is missing, and cannot be begun anew: %w; move it away", name, err)
		}
	}
	if s.kept.key, err = approvalKey.Open(s.config.Data); err != nil {
		return err
	}
	s.kept.evidence, err = broker.ReadEvidence(s.config.Data)
	return err
}

// keyWithFile refuses a file of approvals whose key is missing, if anybody could go by
// what is in it.
func keyWithFile(data string) error {
	if approvalKey.There(data) {
		return nil
	}
	name := filepath.Join(data, approval.FileName)
	open, err := approval.Unkeyed(data)
	const try = "put the key back from a backup, or move the file away to begin without any approval"
	switch {
	case errors.Is(err, approval.ErrLocked):
		return fmt.Errorf("the key of approvals, %s, is missing, and another process has %s open; %s", approvalKey.File, name, try)
	case err != nil:
		return fmt.Errorf("the key of approvals, %s, is missing, and without it nothing in %s can be believed: %w; %s", approvalKey.File, name, err, try)
	case open > 0:
		return fmt.Errorf("the key of approvals, %s, is missing, and %s has %d approval requests that wait or can be used; %s", approvalKey.File, name, open, try)
	}
	return nil
}

// Approvals is what a server would find in a data directory: how many approval
// requests wait, and what the log knows better of which. It touches nothing. The error
// says why [Server.Start] would refuse them.
func Approvals(ctx context.Context, data string, log *decisionlog.Reader) (pending int, behind map[string]approval.Status, err error) {
	if err := keyWithFile(data); err != nil {
		return 0, nil, err
	}
	key, err := approvalKey.Read(data)
	if err != nil || key == nil {
		return 0, nil, err
	}
	pending, open, err := approval.Look(data, key)
	if errors.Is(err, approval.ErrOld) {
		_, err = broker.ReadEvidence(data)
		return pending, nil, err
	}
	if err != nil || len(open) == 0 || log == nil {
		return pending, nil, err
	}
	if err := approval.Whole(open, log.Size()); err != nil {
		return pending, nil, err
	}
	from, ids := approval.From(open)
	steps, err := broker.StepsOf(ctx, log.Approvals, from, ids)
	if err != nil {
		return pending, nil, err
	}
	behind = map[string]approval.Status{}
	for _, a := range open {
		if knows := a.Behind(steps[a.ID]); knows != "" {
			behind[a.ID] = knows
		}
	}
	return pending, behind, nil
}

// mark puts on record, before anything can be approved, that from now on no file of
// format 1 counts: where one was taken, or a file begun. Where the record is there, or
// may be, [approvals.remark] looks.
func (a *approvals) mark() error {
	if upgraded := a.Store.Upgraded(); upgraded != nil {
		a.server.log.Info("the approval requests were taken over from format 1, as the log has them", "kept", len(upgraded.Kept), "dropped", len(upgraded.Dropped))
		return a.server.decisions.events.Record(context.Background(), recorder.Event{Name: decisionlog.EventApprovalsUpgraded, Details: markDetails{1, approval.FormatVersion, upgraded}})
	}
	if a.Store.Begun() {
		return a.server.decisions.events.Record(context.Background(), recorder.Event{Name: decisionlog.EventApprovalsUpgraded, Details: markDetails{0, approval.FormatVersion, nil}})
	}
	return nil
}

type markDetails struct {
	From   int `json:"from"`
	Format int `json:"format"`
	*approval.Upgraded
}

// remark puts the mark on record again where retention has dropped it, or a crash came
// before it.
func (a *approvals) remark(ctx context.Context) {
	page, err := a.server.decisions.log.Query(ctx, decisionlog.Query{Filter: decisionlog.Filter{Event: decisionlog.EventApprovalsUpgraded}, Newest: true, Cursor: decisionlog.End, Limit: 1})
	if err == nil && len(page.Lines) == 0 {
		err = a.server.decisions.events.Record(ctx, recorder.Event{Name: decisionlog.EventApprovalsUpgraded, Details: markDetails{approval.FormatVersion, approval.FormatVersion, nil}})
	}
	if err != nil && ctx.Err() == nil {
		a.server.log.Error("it cannot be put on record that old files of approvals count no more; it is tried again after the next start", "error", err)
	}
}
