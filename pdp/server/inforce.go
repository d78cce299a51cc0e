package server

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/server/auth"
)

// askedAgain is how often the credential of a request that takes long is looked at again.
// With the age that a look at the API keys may have, a revoked one ends within a second.
const askedAgain = 200 * time.Millisecond

// inForce is for a request that takes long, as who waits for an approval or reads the
// whole log: its context ends when its credential does not say any more what it said,
// whatever the reason, and lapsed says why. Here what is in force now counts, and not
// what the request began with.
type inForce struct {
	context.Context
	check func() error
}

// whileInForce looks again until done is called.
func (s *Server) whileInForce(c echo.Context, caller Caller) (f inForce, done func()) {
	r := c.Request()
	check := func() error {
		now, err := s.live.Load().callers.Authenticate(r)
		if err == nil && !reflect.DeepEqual(now, caller) {
			err = &auth.Refusal{Kind: auth.ErrForbidden, Detail: "what the credential allows has changed meanwhile; ask again", Credential: auth.ByOther}
		}
		return err
	}
	told, id := logContext(c), requestID(c) // the answer is its handler's
	ctx, end := context.WithCancelCause(r.Context())
	go func() {
		tick := time.NewTicker(askedAgain)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := check(); err != nil {
					s.log.InfoContext(told, "a request that takes long ended with its credential", "request_id", id, "caller", caller.Name)
					end(err)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return inForce{ctx, check}, func() { end(nil) }
}

// lapsed is the refusal of a credential that ended meanwhile, nil while it has not.
func (f inForce) lapsed() error {
	if refused := (*auth.Refusal)(nil); errors.As(context.Cause(f), &refused) {
		return refused
	}
	return f.check()
}
