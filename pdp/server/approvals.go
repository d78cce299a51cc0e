package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/decisionlog"
)

// ApprovalsConfig bounds what people are asked.
type ApprovalsConfig struct {
	MaxPendingPerSubject int64 `yaml:"max_pending_per_subject" default:"200" min:"1" max:"1000000" doc:"How many approval requests of one subject may wait at once in one tenant."`
	MaxPendingPerTenant  int64 `yaml:"max_pending_per_tenant" default:"10000" min:"1" max:"1000000" doc:"How many approval requests of one tenant may wait at once."`
	// MaxPendingPerCaller is a quarter of that, unless given: whoever asks, others can.
	MaxPendingPerCaller    int64 `yaml:"max_pending_per_caller" min:"1" max:"1000000" doc:"How many approval requests that one caller caused may wait at once in one tenant. A quarter of max_pending_per_tenant unless given. If one gateway asks for a whole tenant, give it as many as the tenant has."`
	NewPerMinutePerSubject int64 `yaml:"new_per_minute_per_subject" default:"60" min:"1" max:"1000000" doc:"How many new approval requests one subject may cause in one tenant in a minute."`
	// NewPerMinutePerCaller is ten times that, unless given.
	NewPerMinutePerCaller int64 `yaml:"new_per_minute_per_caller" min:"1" max:"10000000" doc:"How many new approval requests one caller may cause in one tenant in a minute. Ten times new_per_minute_per_subject unless given."`
	// Retain is how long what came of them is kept here; the decision log has its own.
	Retain time.Duration `yaml:"retain" default:"720h" min:"1h" doc:"How long the service keeps approval requests that have ended, like 30d. The decision log keeps its records of them."`
	// Callbacks are where programs may want to be told of what they asked for.
	Callbacks []CallbackConfig `yaml:"callbacks" doc:"Where callers that file approval requests may be told of the outcome, by signed POSTs. The service accepts no other callback."`
	// Webhooks are told of each request that is filed, and of each that waits no longer.
	Webhooks []webhook.Config `yaml:"webhooks" doc:"Systems that are told of every approval request, by signed POSTs."`
}

// approvals is where decisions and approvals meet: what the PDP asks of them, and what
// they put on record.
type approvals struct {
	server *Server
	store  *approval.Store
	teller *teller
	// callbacks are by caller and address.
	callbacks map[callbackOf]*webhook.Sender
	key       []byte
}

// openApprovals opens the file of approvals. There are some where decisions are
// recorded: each step of an approval is on record.
func (s *Server) openApprovals() (err error) {
	if s.decisions == nil {
		return nil
	}
	a := &approvals{server: s, key: s.approvalKey}
	c := s.config.Approvals
	a.store, err = approval.Open(s.config.Data, approval.Options{
		Now: s.config.Program.PDP.Now, Key: a.key, Retain: c.Retain, OnError: a.failed, Silent: len(c.Webhooks)+len(c.Callbacks) == 0,
		Record: a.record, Recorded: a.recorded, Attest: a.attest, Steps: a.steps, Size: s.decisions.Size, Old: s.old.of,
		InForce: a.inForce, SamePerson: a.samePerson,
		Limits: approval.Limits{MaxPendingPerSubject: int(c.MaxPendingPerSubject), MaxPendingPerTenant: int(c.MaxPendingPerTenant), MaxPendingPerCaller: int(c.MaxPendingPerCaller), NewPerMinutePerSubject: int(c.NewPerMinutePerSubject), NewPerMinutePerCaller: int(c.NewPerMinutePerCaller)},
	})
	if err != nil {
		return fmt.Errorf("cannot open the approvals: %w; another process may serve from this data directory, or the disk be full", err)
	}
	s.teardown.add("approvals", closing(a.store.Close))
	if err := a.mark(); err != nil {
		return err
	}
	s.approvals, s.config.Program.PDP.Approvals = a, a
	if a.callbacks, err = s.newCallbacks(); err != nil {
		return err
	}
	a.teller, err = s.newTeller()
	return err
}

func (a *approvals) failed(err error) {
	a.server.log.Error("approvals wait for something that failed; it is tried again", "error", err)
}

// digest is what an approval is bound to.
func (a *approvals) digest(w pdp.ApprovalRequest) [sha256.Size]byte {
	mac := hmac.New(sha256.New, a.key)
	_, _ = mac.Write(w.Binding) // never fails
	return [sha256.Size]byte(mac.Sum(nil))
}

// Reserve implements [pdp.Approvals].
func (a *approvals) Reserve(ctx context.Context, w pdp.ApprovalRequest, id string) (pdp.Reservation, error) {
	if is, err := a.asShown(ctx, w, id); !is || err != nil {
		return nil, err
	}
	// The caller may go away: a use is either on record or not taken.
	use, err := a.store.Reserve(context.WithoutCancel(ctx), id, a.digest(w), w.Decision)
	if use == nil {
		return nil, err // and no reservation that only looks like one
	}
	return use, err
}

// File implements [pdp.Approvals].
func (a *approvals) File(ctx context.Context, w pdp.ApprovalRequest) (*evaluation.Approval, error) {
	digest := a.digest(w)
	known, ok, err := a.store.Get(ctx, w.Presented)
	if err != nil {
		return nil, err
	}
	if ok && known.Digest == digest && known.Status.Final() {
		return a.told(known), nil // an agent that shows what was refused does not ask again by that
	}
	q, err := a.question(ctx, w, digest)
	if err != nil {
		return nil, err
	}
	filed, err := a.store.File(context.WithoutCancel(ctx), q)
	var limit *approval.LimitError
	switch {
	case errors.As(err, &limit):
		a.server.door.Refused(limitOf(limit))
		return &evaluation.Approval{Status: "refused", RetryAfter: max(1, int(math.Ceil(limit.RetryAfter.Seconds())))}, nil
	case errors.Is(err, approval.ErrTooLarge): // nobody could be shown it
		return nil, nil
	case err != nil:
		return nil, err
	}
	return a.told(filed), nil
}

// limitOf is the word that a refusal is counted by.
func limitOf(limit *approval.LimitError) string {
	if limit.OfCaller {
		return "approvals_share"
	}
	return "approvals"
}

// told is what whoever asked is told.
func (a *approvals) told(one approval.Approval) *evaluation.Approval {
	return &evaluation.Approval{ID: one.ID, Status: string(one.Status), ExpiresAt: one.ExpiresAt, StatusURL: a.server.base() + "/v1/approvals/" + one.ID}
}

// question is what people are asked, without secrets; digest is what it is bound to.
func (a *approvals) question(ctx context.Context, w pdp.ApprovalRequest, digest [sha256.Size]byte) (q approval.Question, err error) {
	r := w.Call.Request
	masked := a.server.pinned(ctx).mask.Of(r, w.Obligation.Properties)
	q = approval.Question{
		Digest:     digest,
		Tenant:     r.Tenant,
		Caller:     w.Call.Asker.Name,
		Decision:   w.Decision,
		Bundle:     w.Bundle,
		Obligation: w.Obligation.ID,
		Terms:      w.Terms,
		OfTenant:   w.OfTenant,
		Members:    w.Members,
		Subject:    evaluation.Ref{Type: r.Subject.Type, ID: r.Subject.ID},
		Resource:   evaluation.Ref{Type: r.Resource.Type, ID: r.Resource.ID},
		Action:     r.Action.Name,
		Agent:      w.Actors.Agent,
		Chain:      w.Actors.Chain,
	}
	q.Terms.Message = masked.Text(q.Terms.Message)
	// Nothing of how a request is sent is part of what is approved, but it would look so.
	asked := masked.Request()
	why, said := asked.Context.Get("justification")
	asked.Context = asked.Context.Without(evaluation.Protocol)
	if q.Shown, err = asked.MarshalJSON(); err == nil && said && why.Text() != "approved" {
		q.Said, err = evaluation.Object{}.With("justification", why).MarshalJSON()
	}
	return q, err
}

// recorded says whether there is a record of an id. While the log cannot be written
// nobody knows: what failed last may be there or not.
func (a *approvals) recorded(id string) (bool, error) {
	if !a.server.decisions.Status().OK {
		return false, decisionlog.ErrUnavailable
	}
	_, err := a.server.decisions.ByID(id)
	switch {
	case err == nil, errors.Is(err, decisionlog.ErrGone):
		return true, nil
	case errors.Is(err, decisionlog.ErrNotFound):
		return false, nil
	}
	return false, err
}
