package broker

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
)

const (
	// bindingType and stateType are the typ of the two tokens, so that neither passes for the other.
	bindingType = "access-request-binding+jwt"
	stateType   = "access-request-approval+jwt"

	// offeredFor is how long after a denial an approval can be asked for.
	offeredFor = 10 * time.Minute
	// RetryLater is the number of seconds after which it is worth asking again if a person has decided.
	RetryLater = 5

	// RequestsPath and RequestSchemaPath follow the issuer's URL, and the URL of the service.
	RequestsPath      = "/access/v1/requests"
	RequestSchemaPath = "/access/v1/requests/schema"
)

// Find implements [pdp.Approvals].
func (b *Broker) Find(ctx context.Context, w pdp.ApprovalRequest) (pdp.Found, error) {
	known, err := b.presentedBy(ctx, w)
	if err != nil {
		return pdp.Found{}, err
	}
	if w.Binding == nil {
		if known == nil {
			return pdp.Found{Why: evaluation.ApprovalUnverifiable}, nil
		}
		return pdp.Found{Why: evaluation.ApprovalPolicyDenied}, nil
	}
	digest := b.digest(w)
	if doubt := b.stateProblem(w, known); doubt != "" {
		return pdp.Found{Why: doubt}, nil
	}
	if w.Continues.Round > 0 {
		return b.findRound(w, known, digest)
	}
	live, ok, err := b.Store.Live(digest, w.Presented)
	if err != nil {
		return pdp.Found{}, err
	}
	if ok {
		return pdp.Found{ID: live.ID, Until: seconds(live.ExpiresAt), Rounds: live.Terms.Rounds}, nil
	}
	return pdp.Found{Why: reasonNotValid(w, known, digest)}, nil
}

// stateProblem is the fault of the state token that an approval is presented with, "" if nothing is or there is
// no token. The store is asked in every case: it knows whether the approval is for this very request.
func (b *Broker) stateProblem(w pdp.ApprovalRequest, known *approval.Approval) evaluation.Reason {
	reference, _ := w.Call.Request.Context.Get("approval")
	state, given := reference.Object().Get("state")
	if !given {
		return ""
	}
	var claims evaluation.StateClaims
	issuer := b.options.IssuerURL(w.Call.Request.Tenant)
	if known == nil || state.Kind() != evaluation.String || issuer == "" ||
		!b.verify(state.Text(), stateType, &claims) || claims.Issuer != issuer || claims.Audience != issuer ||
		claims.ApprovalID != known.ID || claims.Binding != hex.EncodeToString(known.Digest[:]) {
		return evaluation.ApprovalUnverifiable
	}
	if w.Now.Unix() >= claims.Expires && w.Continues.Round == 0 { // a use may be continued for longer than one can be made
		return evaluation.ApprovalExpired
	}
	return ""
}

// verify reports whether a token of a type is ours, and reads its claims.
func (b *Broker) verify(token, typ string, claims any) bool {
	payload, err := b.options.Keys.Verify(token, typ)
	return err == nil && json.Unmarshal(payload, claims) == nil
}

// reasonNotValid is why an approval that was presented does not count. An approval of another caller has the same
// reason as an unknown one.
func reasonNotValid(w pdp.ApprovalRequest, known *approval.Approval, digest [32]byte) evaluation.Reason {
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
	case known.Status == approval.Revoked:
		return evaluation.ApprovalRevoked
	}
	return evaluation.ApprovalExpired
}

// findRound looks whether a request is the next round of a use of the approval that its caller presented.
func (b *Broker) findRound(w pdp.ApprovalRequest, known *approval.Approval, digest [32]byte) (pdp.Found, error) {
	if known != nil {
		until, ok, err := b.Store.Continuable(known.ID, digest, w.Continues)
		if err != nil {
			return pdp.Found{}, err
		}
		if ok {
			return pdp.Found{ID: known.ID, Until: seconds(until), Rounds: known.Terms.Rounds - w.Continues.Round}, nil
		}
	}
	return pdp.Found{Why: reasonNotContinued(w, known, digest)}, nil
}

// reasonNotContinued is why no round goes on from a use of the approval that was presented.
func reasonNotContinued(w pdp.ApprovalRequest, known *approval.Approval, digest [32]byte) evaluation.Reason {
	switch {
	case known == nil, known.Digest != digest, known.Unrecorded:
		return reasonNotValid(w, known, digest)
	case known.InDoubt(w.Continues.Decision): // the log will have the use, or the round
		return evaluation.ApprovalPending
	case !slices.Contains(known.Used, w.Continues.Decision), // another decision used it, or none did
		w.Continues.Round > known.Terms.Rounds: // more than were approved
		return evaluation.ApprovalOutOfScope
	case known.Status == approval.Approved: // it was that round's turn before, or is not yet, or it is too late
		return evaluation.ApprovalExpired
	}
	return reasonNotValid(w, known, digest)
}

// presentedBy is the approval that the caller presented, nil if there is none or it is another caller's.
func (b *Broker) presentedBy(ctx context.Context, w pdp.ApprovalRequest) (*approval.Approval, error) {
	known, ok, err := b.Store.Get(ctx, w.Presented)
	if errors.Is(err, approval.ErrUnrecorded) {
		err = nil // reasonNotValid returns it
	}
	if err != nil || !ok || known.Caller != w.Call.Asker.Name || known.Tenant != w.Call.Request.Tenant {
		return nil, err
	}
	return &known, nil
}

// Offer implements [pdp.Approvals].
func (b *Broker) Offer(_ context.Context, w pdp.ApprovalRequest, why evaluation.Reason) (*evaluation.Access, error) {
	issuer := b.options.IssuerURL(w.Call.Request.Tenant)
	if issuer == "" {
		return nil, nil // there is no URL to ask at
	}
	access := &evaluation.Access{EvaluationID: w.Decision, EvaluatedAt: seconds(w.Now), Reason: why}
	switch why {
	case "":
	case evaluation.ApprovalExpired, evaluation.ApprovalRevoked, evaluation.ApprovalOutOfScope:
		access.NextAction = evaluation.NextRequest
	case evaluation.ApprovalPending:
		access.NextAction, access.RetryAfter = evaluation.NextRetry, RetryLater
		return access, nil
	default:
		access.NextAction = evaluation.NextNone
		return access, nil
	}
	expires := seconds(w.Now.Add(offeredFor))
	token, err := b.binding(w, issuer, expires)
	access.Request = &evaluation.AccessRequest{
		Endpoint:         issuer + RequestsPath,
		Template:         w.Terms.Template,
		ExpiresAt:        expires,
		BindingToken:     token,
		RequestSchemaURL: b.options.IssuerURL(evaluation.DefaultTenant) + RequestSchemaPath,
	}
	return access, err
}

// binding is a token that names the denial after which an approval can be asked for.
func (b *Broker) binding(w pdp.ApprovalRequest, issuer string, expires time.Time) (string, error) {
	members := w.Members
	for name := range evaluation.Declarations(w.Call.Request.Context).Members {
		members = append(slices.Clip(members), name)
	}
	slices.Sort(members)
	return b.sign(evaluation.BindingClaims{
		Issuer:          issuer,
		Audience:        issuer + RequestsPath,
		IssuedAt:        w.Now.Unix(),
		Expires:         expires.Unix(),
		ID:              uuid.NewString(),
		DenialExpiresAt: expires,
		EvaluationID:    w.Decision,
		Members:         members,
		Binding:         b.offerBinding(w, b.digest(w)),
		October:         w.Call.Request.Draft == evaluation.October,
	}, bindingType)
}

// offerBinding returns what the token of an offer is bound to: the digest of an approval, with what the PEP declares by
// October's draft. The approval itself is bound to the digest alone: a PEP that learns a type of obligation keeps its approvals.
func (b *Broker) offerBinding(w pdp.ApprovalRequest, digest [sha256.Size]byte) string {
	declared := evaluation.Declarations(w.Call.Request.Context)
	if declared.Len() == 0 {
		return hex.EncodeToString(digest[:])
	}
	mac := hmac.New(sha256.New, b.options.Store.Key)
	_, _ = mac.Write(declared.AppendJSON(digest[:])) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// state is a token that names the approved request.
func (b *Broker) state(one approval.Approval, until time.Time) (string, error) {
	issuer := b.options.IssuerURL(one.Tenant)
	return b.sign(evaluation.StateClaims{
		Issuer:       issuer,
		Audience:     issuer,
		IssuedAt:     one.DecidedAt.Unix(),
		Expires:      until.Unix(),
		ApprovalID:   one.ID,
		EvaluationID: one.Decision,
		Members:      one.Members,
		Binding:      hex.EncodeToString(one.Digest[:]),
	}, stateType)
}

func (b *Broker) sign(claims any, typ string) (string, error) {
	payload, err := marshal(claims)
	if err != nil {
		return "", err
	}
	return b.options.Keys.Sign(payload, typ)
}

// seconds is a time as answers have it: rounded down, so that nothing is promised for longer than it counts.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
