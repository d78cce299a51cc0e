package server

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval"
)

const (
	// bindingType and stateType are the typ of the two tokens: one is never the other.
	bindingType = "access-request-binding+jwt"
	stateType   = "access-request-approval+jwt"

	// offeredFor is how long an approval can be asked for after a denial.
	offeredFor = 10 * time.Minute
	// retryLater is after how many seconds it is worth looking again whether a person has
	// decided.
	retryLater = 5

	requestsPath      = "/access/v1/requests"
	requestSchemaPath = "/access/v1/requests/schema"
)

// point is the address by which a tenant's decisions are asked for, "" where nobody knows
// it. Tokens are by it and for it.
func (s *Server) point(tenant string) string {
	base := s.base()
	if base == "" || tenant == evaluation.DefaultTenant {
		return base
	}
	return base + "/tenants/" + tenant
}

// Find implements [pdp.Approvals].
func (a *approvals) Find(ctx context.Context, w pdp.ApprovalRequest) (pdp.Found, error) {
	known, err := a.mine(ctx, w)
	if err != nil {
		return pdp.Found{}, err
	}
	if w.Binding == nil {
		return pdp.Found{Why: whyDenied(known)}, nil
	}
	digest := a.digest(w)
	if doubt := a.doubts(w, known); doubt != "" {
		return pdp.Found{Why: doubt}, nil
	}
	if live, ok := a.store.Live(digest, w.Presented); ok {
		return pdp.Found{ID: live.ID, Until: seconds(live.ExpiresAt)}, nil
	}
	return pdp.Found{Why: why(w, known, digest)}, nil
}

// doubts says what is wrong with the state that an approval is presented with, "" for
// nothing. Without it the store alone is asked, and with it as well: that is where it
// turns out whether what was approved is what is asked for.
func (a *approvals) doubts(w pdp.ApprovalRequest, known *approval.Approval) evaluation.Reason {
	reference, _ := w.Call.Request.Context.Get("approval")
	state, given := reference.Object().Get("state")
	if !given {
		return ""
	}
	var claims evaluation.StateClaims
	point := a.server.point(w.Call.Request.Tenant)
	if known == nil || state.Kind() != evaluation.String || point == "" || !a.read(state.Text(), stateType, &claims) ||
		claims.Issuer != point || claims.Audience != point || claims.ApprovalID != known.ID || claims.Binding != hex.EncodeToString(known.Digest[:]) {
		return evaluation.ApprovalUnverifiable
	}
	if w.Now.Unix() >= claims.Expires {
		return evaluation.ApprovalExpired
	}
	return ""
}

// read reads a token of ours.
func (a *approvals) read(token, typ string, claims any) bool {
	payload, err := a.server.signing.Verify(token, typ)
	return err == nil && json.Unmarshal(payload, claims) == nil
}

// why says why an approval that was presented does not count. Of one that is another's
// it says no more than of one that never was.
func why(w pdp.ApprovalRequest, known *approval.Approval, digest [32]byte) evaluation.Reason {
	switch {
	case w.Presented == "":
		return ""
	case known == nil:
		return evaluation.ApprovalUnverifiable
	case known.Digest != digest:
		return evaluation.ApprovalOutOfScope
	case known.Unrecorded, !known.Status.Final(): // it waits for the disk, or for a person
		return evaluation.ApprovalPending
	case known.Status == approval.Denied:
		return evaluation.ApprovalDenied
	}
	return evaluation.ApprovalExpired
}

// whyDenied is for a deny that no approval changes.
func whyDenied(known *approval.Approval) evaluation.Reason {
	if known == nil {
		return evaluation.ApprovalUnverifiable
	}
	return evaluation.ApprovalPolicyDenied
}

// mine is the approval that was presented, nil where there is none or it is another's.
func (a *approvals) mine(ctx context.Context, w pdp.ApprovalRequest) (*approval.Approval, error) {
	known, ok, err := a.store.Get(ctx, w.Presented)
	if errors.Is(err, approval.ErrUnrecorded) {
		err = nil // why says so, of one's own
	}
	if err != nil || !ok || known.Caller != w.Call.Asker.Name || known.Tenant != w.Call.Request.Tenant {
		return nil, err
	}
	return &known, nil
}

// Offer implements [pdp.Approvals].
func (a *approvals) Offer(_ context.Context, w pdp.ApprovalRequest, why evaluation.Reason) (*evaluation.Access, error) {
	point := a.server.point(w.Call.Request.Tenant)
	if point == "" {
		return nil, nil // nobody could be told where to ask
	}
	access := &evaluation.Access{EvaluationID: w.Decision, EvaluatedAt: seconds(w.Now), Reason: why}
	switch why {
	case "":
	case evaluation.ApprovalExpired, evaluation.ApprovalOutOfScope:
		access.NextAction = evaluation.NextRequest
	case evaluation.ApprovalPending:
		access.NextAction, access.RetryAfter = evaluation.NextRetry, retryLater
		return access, nil
	default:
		access.NextAction = evaluation.NextNone
		return access, nil
	}
	expires := seconds(w.Now.Add(offeredFor))
	token, err := a.binding(w, point, expires)
	access.Request = &evaluation.AccessRequest{
		Endpoint: point + requestsPath, Template: w.Terms.Template, ExpiresAt: expires, BindingToken: token, RequestSchemaURL: a.server.base() + requestSchemaPath,
	}
	return access, err
}

// binding is a token that says which denial an approval can be asked for after.
func (a *approvals) binding(w pdp.ApprovalRequest, point string, expires time.Time) (string, error) {
	digest := a.digest(w)
	return a.sign(evaluation.BindingClaims{
		Issuer: point, Audience: point + requestsPath, IssuedAt: w.Now.Unix(), Expires: expires.Unix(), ID: uuid.NewString(),
		DenialExpiresAt: expires, EvaluationID: w.Decision, Members: w.Members, Binding: hex.EncodeToString(digest[:]),
	}, bindingType)
}

// state is a token that says what was approved.
func (a *approvals) state(one approval.Approval, until time.Time) (string, error) {
	point := a.server.point(one.Tenant)
	return a.sign(evaluation.StateClaims{
		Issuer: point, Audience: point, IssuedAt: one.DecidedAt.Unix(), Expires: until.Unix(), ApprovalID: one.ID, EvaluationID: one.Decision,
		Members: one.Members, Binding: hex.EncodeToString(one.Digest[:]),
	}, stateType)
}

func (a *approvals) sign(claims any, typ string) (string, error) {
	payload, err := marshal(claims)
	if err != nil {
		return "", err
	}
	return a.server.signing.Sign(payload, typ)
}

// seconds is a time as it is told: none that is not there any more.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
