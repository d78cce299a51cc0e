package upstream

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// TokenExchange are credentials for each principal: the authorization server gives a token for the upstream in exchange for
// the principal's own (RFC 8693). The principal's token goes nowhere else.
type TokenExchange struct {
	TokenEndpoint
	// Audience and Resource are the authorization server's names of the upstream; either may be "".
	Audience, Resource string
	Scopes             []string
}

// ClientCredentials are the gateway's own for an upstream, the same for all principals (RFC 6749, 4.4).
type ClientCredentials struct {
	TokenEndpoint
	// Audience and Resource are the authorization server's names of the upstream; both may be "".
	Audience, Resource string
	Scopes             []string
}

// NewTokenExchange sends nothing before the first request needs a token.
func NewTokenExchange(o TokenExchange) (Credentials, error) {
	if o.Audience == "" && o.Resource == "" {
		return nil, errors.New("a token exchange needs the audience or the resource that the token is for")
	}
	form, err := formOf(grantExchange, o.Audience, o.Resource, o.Scopes)
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(o.TokenEndpoint)
	if err != nil {
		return nil, err
	}
	form.Set("subject_token_type", typeAccess)
	form.Set("requested_token_type", typeAccess)
	return &exchange{form, tokens{from: e}}, nil
}

// NewClientCredentials sends nothing before the first request needs a token.
func NewClientCredentials(o ClientCredentials) (Credentials, error) {
	form, err := formOf(grantClient, o.Audience, o.Resource, o.Scopes)
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(o.TokenEndpoint)
	if err != nil {
		return nil, err
	}
	return &ownToken{form, tokens{from: e}}, nil
}

func formOf(grant, audience, resource string, scopes []string) (url.Values, error) {
	form := url.Values{"grant_type": {grant}}
	for _, scope := range scopes {
		if scope == "" || !isToken(scope) {
			return nil, errors.New("a scope is one word; write a list of them")
		}
	}
	if audience != "" {
		form.Set("audience", audience)
	}
	if resource != "" { // RFC 8707
		form.Set("resource", resource)
	}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	return form, nil
}

type exchange struct {
	form   url.Values
	tokens tokens
}

// Authorize exchanges the token of a principal, or takes the result of an earlier exchange.
func (x *exchange) Authorize(ctx context.Context, h http.Header, principal, subject string, expires time.Time) error {
	switch {
	case subject == "" || principal == "":
		return errors.New("the upstream needs a token in exchange for the client's, and the client has none")
	case !expires.After(x.tokens.from.Now()):
		return errors.New("the client's token has ended, and is not exchanged")
	}
	form := maps.Clone(x.form)
	form.Set("subject_token", subject)
	return x.tokens.authorize(ctx, h, tokenOf{principal, sha256.Sum256([]byte(subject))}, form, expires)
}

type ownToken struct {
	form   url.Values
	tokens tokens
}

// Authorize takes the gateway's token, and gets another before it ends.
func (o *ownToken) Authorize(ctx context.Context, h http.Header, _, _ string, _ time.Time) error {
	return o.tokens.authorize(ctx, h, tokenOf{}, o.form, o.tokens.from.Now().Add(longest))
}

// tokenOf is the owner of a token: a principal with the token that it was exchanged for, or, if zero, the gateway.
type tokenOf struct {
	principal string
	subject   [sha256.Size]byte
}

func (o tokenOf) key() string { return o.principal + "\x00" + string(o.subject[:]) }

// tokens keeps tokens that do not end soon.
type tokens struct {
	from   *endpoint
	asking singleflight.Group

	mu   sync.Mutex
	kept map[tokenOf]token // ends is the end of its use
}

const (
	mostTokens = 10_000
	// early is how long before its end a token is not used any more.
	early = 30 * time.Second
)

// authorize sets the token of an owner, which is kept until a time at most.
func (t *tokens) authorize(ctx context.Context, h http.Header, of tokenOf, form url.Values, until time.Time) error {
	text := t.find(of)
	if text == "" {
		// The first caller may leave while others wait for the same answer: so the question does not end with its context.
		answer := t.asking.DoChan(of.key(), func() (any, error) {
			if text := t.find(of); text != "" { // another question has just been answered
				return text, nil
			}
			got, err := t.from.ask(context.WithoutCancel(ctx), form)
			if err != nil {
				return "", err
			}
			t.keep(of, got, until)
			return got.text, nil
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-answer:
			if r.Err != nil {
				return r.Err
			}
			text = r.Val.(string)
		}
	}
	h.Set("Authorization", "Bearer "+text)
	return nil
}

// find is the text of a usable token, "" if there is none.
func (t *tokens) find(of tokenOf) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.kept[of]
	if !ok || !t.from.Now().Before(k.ends) {
		return ""
	}
	return k.text
}

// keep keeps a token, unless its server does not say when it ends.
func (t *tokens) keep(of tokenOf, got token, until time.Time) {
	if ends := got.ends.Add(-early); ends.Before(until) {
		until = ends
	}
	now := t.from.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil {
		t.kept = map[tokenOf]token{}
	}
	if len(t.kept) >= mostTokens {
		maps.DeleteFunc(t.kept, func(_ tokenOf, k token) bool { return !now.Before(k.ends) })
	}
	room := len(t.kept) < mostTokens
	for other := range t.kept { // any: it is exchanged again
		if room {
			break
		}
		delete(t.kept, other)
		room = len(t.kept) <= mostTokens*15/16
	}
	if now.Before(until) {
		t.kept[of] = token{got.text, until}
	} else {
		delete(t.kept, of)
	}
}
