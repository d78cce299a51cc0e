package auth

import (
	"errors"
	"fmt"
)

// The kinds of a [Refusal], for errors.Is.
var (
	// ErrUnauthenticated is 401: the caller is not known.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrExpired is an [ErrUnauthenticated]: the key has expired, and has no other fault.
	ErrExpired = fmt.Errorf("%w: expired", ErrUnauthenticated)
	// ErrForbidden is 403: no caller may ask in this way.
	ErrForbidden = errors.New("forbidden")
	// ErrUnavailable is 503: it is not known whether the credential is good.
	ErrUnavailable = errors.New("not known now")
	// ErrForwarded is an [ErrForbidden]: it came by a proxy, to a server without credentials.
	ErrForwarded = fmt.Errorf("%w: forwarded", ErrForbidden)
)

// Refusal is every error of [Authenticator.Authenticate]. It is made of fixed
// texts: nothing in it was sent.
type Refusal struct {
	// Kind is ErrUnauthenticated, ErrForbidden, ErrForwarded or ErrUnavailable.
	Kind error
	// Detail is the reason and the remedy.
	Detail string
	// Challenge is the value of WWW-Authenticate; "" where Kind is another.
	Challenge string
	// Credential is the kind that was sent and is not good.
	Credential Credential
}

// Credential is a kind of credential, for counting.
type Credential string

// The kinds there are. ByNone is a request that brought none, ByOther a credential of an unknown kind.
const (
	ByNone        Credential = "none"
	ByKey         Credential = "key"
	ByToken       Credential = "jwt"
	ByCertificate Credential = "certificate"
	ByOther       Credential = "other"
)

// as says which kind of credential a caller was looked for by.
func as(kind Credential, caller Caller, err error) (Caller, error) {
	if refused, ok := err.(*Refusal); ok {
		refused.Credential = kind // it was made for this request
	}
	return caller, err
}

// Error is the detail.
func (r *Refusal) Error() string { return r.Detail }

// Unwrap gives the kind to errors.Is.
func (r *Refusal) Unwrap() error { return r.Kind }

// Bearer alone is offered: a browser that reads Basic asks its user for a
// password, and there is none. RFC 6750 wants an error code only where a
// credential was sent.
const (
	challenge        = `Bearer realm="policy-service"`
	challengeInvalid = challenge + `, error="invalid_token"`
	// challengeApprover is for a gateway: the person's token is not good.
	challengeApprover = `Bearer realm="Approver-Token", error="invalid_token"`
)

func missing() *Refusal {
	return &Refusal{ErrUnauthenticated, "this needs a credential; send Authorization: Bearer with an API key or a token, or a client certificate", challenge, ByNone}
}

func invalid(detail string) *Refusal {
	return &Refusal{ErrUnauthenticated, detail, challengeInvalid, ByOther}
}

func forbidden(detail string) *Refusal {
	return &Refusal{Kind: ErrForbidden, Detail: detail, Credential: ByNone}
}
