package door

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
)

// authenticate says which caller asks, and counts credentials that are not good. The body is that of a request whose caller is
// in it, and else nil.
func (d *Door) authenticate(c echo.Context, n Need) (caller auth.Caller, body []byte, err error) {
	refused := (*auth.Refusal)(nil)
	if n.Known != nil {
		if known := n.Known(c.Request()); known != nil {
			v := d.visitOf(c)
			v.known = known.Name
			d.Connections.Knows(v.carrier, known.Name)
			return *known, nil, checkRelayed(c.Request(), *known, n.Relayed)
		}
	}
	ctx := c.Request().Context()
	caller, err = d.Options.Callers(ctx).Authenticate(c.Request())
	if n.Brings != nil && errors.As(err, &refused) && refused.Credential == auth.ByNone && errors.Is(err, auth.ErrUnauthenticated) {
		if body, err = d.readStrange(c); err == nil {
			caller, err = n.Brings(body)
		}
	}
	if err == nil {
		err = checkRelayed(c.Request(), caller, n.Relayed)
	}
	if err == nil {
		v := d.visitOf(c)
		v.known = caller.Name
		d.Connections.Knows(v.carrier, caller.Name)
		return caller, body, nil
	}
	if errors.As(err, &refused) && !errors.Is(err, auth.ErrUnavailable) {
		d.Options.Meters.Credential(cmp.Or(refused.Credential, auth.ByOther))
	}
	return caller, nil, err
}

// readStrange reads the form of a caller that is not known yet. It takes no place of those that are.
func (d *Door) readStrange(c echo.Context) ([]byte, error) {
	if err := wantForm(c.Request().Header); err != nil {
		return nil, err
	}
	return d.readUpTo(c, auth.Caller{Name: "form:" + auth.AddressOf(c.Request()).String()}, d.strange, false, mostForm)
}

// Recognize is for routes that answer everybody, such as health and documents. No credential is no reason to refuse, and
// neither is one that is not good; a request that is forbidden, which here has a foreign Host or came by a proxy, is
// refused. An unknown caller is the zero Caller.
func (d *Door) Recognize(c echo.Context) (auth.Caller, error) {
	ctx := c.Request().Context()
	caller, err := d.Options.Callers(ctx).Authenticate(c.Request())
	refused := (*auth.Refusal)(nil)
	if errors.Is(err, auth.ErrUnavailable) { // a replica without etcd says how it is
		caller, err = auth.Caller{}, nil
	}
	if errors.As(err, &refused) && refused.Credential != auth.ByNone { // a credential can be guessed here, too
		d.Options.Meters.Credential(refused.Credential)
	}
	if errors.Is(err, auth.ErrUnauthenticated) {
		caller, err = auth.Caller{}, nil
	}
	d.visitOf(c).known = caller.Name
	return caller, cmp.Or(err, checkRelayed(c.Request(), caller, ""))
}

// checkRelayed refuses a person's token and client beside a gateway's key on every route that does not take them by the
// gateway's way, and whenever the authenticator did not look at them: no header may seem to count that was passed over.
func checkRelayed(r *http.Request, caller auth.Caller, by evaluation.Via) error {
	_, token := r.Header[auth.ApproverToken]
	_, client := r.Header[auth.ApproverClient]
	if (token || client) && (caller.Way.Gateway == "" || caller.Way.Via != by) {
		return NewProblem(http.StatusForbidden,
			"the headers Approver-Token and Approver-Client are not taken here from this credential; leave them out, "+
				"and send them where this key relays what people say about approvals")
	}
	return nil
}

// askedAgain is how often the credential of a request that takes long is checked again. With the age that a look at the
// API keys may have, a revoked key ends its requests within a second.
const askedAgain = 200 * time.Millisecond

// InForce is the context of a request that takes long, such as one that waits for an approval or reads the whole log.
// It ends when the rights of the credential change, for whatever reason, and Lapsed says why. The configuration
// in force counts here, and not the one that the request began with.
type InForce struct {
	context.Context
	check func() error
}

// WhileInForce checks the credential again and again until done is called.
func (d *Door) WhileInForce(c echo.Context, caller auth.Caller) (f InForce, done func()) {
	r := c.Request()
	check := func() error {
		now, err := d.Options.Callers(context.Background()).Authenticate(r)
		if err == nil && !now.Is(caller) {
			err = &auth.Refusal{
				Kind:       auth.ErrForbidden,
				Detail:     "what the credential allows has changed meanwhile; ask again",
				Credential: auth.ByOther,
			}
		}
		return err
	}
	logged, id := d.Options.LogContext(c.Request()), RequestID(c) // here, because the goroutine must leave the answer to its handler
	ctx, end := context.WithCancelCause(c.Request().Context())
	go func() {
		tick := time.NewTicker(askedAgain)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := check(); err != nil {
					d.Options.Log.InfoContext(logged,
						"a request that takes long ended with its credential", "request_id", id, "caller", caller.Name)
					end(err)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return InForce{ctx, check}, func() { end(nil) }
}

// Lapsed is the refusal of a credential that ended meanwhile; nil if it has not.
func (f InForce) Lapsed() error {
	if refused := (*auth.Refusal)(nil); errors.As(context.Cause(f), &refused) {
		return refused
	}
	return f.check()
}
