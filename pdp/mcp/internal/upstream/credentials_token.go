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

// NewTokenExchange makes credentials for each principal: the authorization server gives a token for the upstream in exchange
// for the principal's own (RFC 8693), which goes nowhere else. It sends nothing before the first request needs a token.
func NewTokenExchange(o TokenEndpoint) (Credentials, error) {
	if o.Audience == "" && o.Resource == "" {
		return nil, errors.New("a token exchange needs the audience or the resource that the token is for")
	}
	t, err := newTokens(grantExchange, o)
	if err != nil {
		return nil, err
	}
	t.form.Set("subject_token_type", typeAccess)
	t.form.Set("requested_token_type", typeAccess)
	return &exchange{t}, nil
}

// NewClientCredentials makes credentials of the gateway's own, the same for all principals (RFC 6749, 4.4). It sends nothing
// before the first request needs a token.
func NewClientCredentials(o TokenEndpoint) (Credentials, error) {
	t, err := newTokens(grantClient, o)
	if err != nil {
		return nil, err
	}
	return &ownToken{t}, nil
}

func newTokens(grant string, o TokenEndpoint) (*tokens, error) {
	form := url.Values{"grant_type": {grant}}
	for _, scope := range o.Scopes {
		if scope == "" || !isToken(scope) {
			return nil, errors.New("a scope is one word; write a list of them")
		}
	}
	if o.Audience != "" {
		form.Set("audience", o.Audience)
	}
	if o.Resource != "" { // RFC 8707
		form.Set("resource", o.Resource)
	}
	if len(o.Scopes) > 0 {
		form.Set("scope", strings.Join(o.Scopes, " "))
	}
	e, err := newEndpoint(o)
	if err != nil {
		return nil, err
	}
	return &tokens{from: e, form: form, kept: map[tokenOf]token{}}, nil
}

type exchange struct{ *tokens }

// Authorize exchanges the token of a principal, or takes the result of an earlier exchange.
func (x *exchange) Authorize(ctx context.Context, h http.Header, principal, subject string, expires time.Time) error {
	switch {
	case subject == "" || principal == "":
		return errors.New("the upstream needs a token in exchange for the client's, and the client has none")
	case !expires.After(x.from.Now()):
		return errors.New("the client's token has ended, and is not exchanged")
	}
	form := maps.Clone(x.form)
	form.Set("subject_token", subject)
	return x.authorize(ctx, h, tokenOf{principal, sha256.Sum256([]byte(subject))}, form, expires)
}

type ownToken struct{ *tokens }

// Authorize takes the gateway's token, and gets another before it ends.
func (o *ownToken) Authorize(ctx context.Context, h http.Header, _, _ string, _ time.Time) error {
	return o.authorize(ctx, h, tokenOf{}, o.form, o.from.Now().Add(longest))
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
	form   url.Values // of each question
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
