package approvals

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/internal/link"
)

// Ask files an approval request for a deny, and does not wait for people. The deny is of [authzenclient.Client.Enforce], or
// of Decide and Discharge, and offers an approval request; Ask fails for any other.
//
// A second Ask for the same deny finds the same task.
func Ask(ctx context.Context, c *authzenclient.Client, denied authzenclient.Enforcement, options ...Option) (Standing, error) {
	w, err := newWaiter(c, nil, options)
	if err != nil {
		return Standing{}, of("request", err)
	}
	o, ok, err := offerOf(denied)
	if err != nil {
		return Standing{}, of("request", err)
	}
	if !ok || !o.requested {
		return Standing{}, of("request", notAsked("this is no deny that an approval can be asked for: "+denied.String()))
	}
	f, err := w.filing(denied, o)
	if err != nil {
		return Standing{}, of("request", err)
	}
	s, err := w.submit(ctx, f)
	if err == nil {
		err = w.keep(ctx, s.task)
	}
	if err != nil {
		return Standing{}, of("request", err)
	}
	return s, nil
}

// of sets the operation of an error.
func of(op string, err error) error {
	failureOf(err).Op = op
	return err
}

// filing is an approval request, ready to be filed. Sent again, it is the same one.
type filing struct {
	url     string
	body    []byte
	key     string // the Idempotency-Key; "" if the PDP is to find equal requests
	expires time.Time
}

func (w *waiter) filing(e authzenclient.Enforcement, o offer) (f filing, err error) {
	q := e.Question()
	if err := w.asks(q); err != nil {
		return f, err
	}
	if w.justification != "" {
		why, err := evaluation.Text(w.justification)
		if err != nil {
			return f, notAsked("the justification is not valid UTF-8")
		}
		q.Context = q.Context.With(justified, why)
	}
	f = filing{url: cmp.Or(o.endpoint, w.link.Requests), expires: o.expires}
	// The schema of this service requires nothing. No other one is read, so a submission could be incomplete.
	above, _ := strings.CutSuffix(f.url, strings.TrimPrefix(w.link.PDP, w.link.Base)+"/access/v1/requests")
	if o.schema != "" && o.schema != above+"/access/v1/requests/schema" {
		return f, notAsked("the PDP may require more than the denied request, by access_request.request_schema_url, which this client does not read; " +
			"file the request with what that schema requires")
	}
	if f.body, err = json.Marshal(submission{q.Subject, q.Action, q.Resource, q.Context, o.denial}); err != nil {
		return f, notAsked("the request cannot be encoded")
	}
	if !w.joins {
		hash := sha256.Sum256(f.body)
		f.key = hex.EncodeToString(hash[:])
	}
	return f, nil
}

func (w *waiter) submit(ctx context.Context, f filing) (s Standing, err error) {
	r := link.Request{Op: "request", URL: f.url, Body: f.body, Statuses: []int{http.StatusCreated, http.StatusAccepted}}
	if f.key != "" {
		r.Header = http.Header{"Idempotency-Key": {f.key}}
	}
	err = w.link.Send(ctx, r, func(a link.Answer) error {
		now, err := readTask(a)
		if err == nil {
			now.kept.Version, now.kept.PDP = taskVersion, w.link.PDP
			if s = (Task{now.kept}).standing(now); !now.kept.whole() {
				err = odd("the task has no status_endpoint")
			}
		}
		return err
	})
	return s, err
}

// Look reads the status of a task, once. If people are still to decide, look again after a pause, of some seconds and of
// [Standing.RetryAfter] at least.
//
// An error says nothing of people's decision. After an error of kind Unreachable, TimedOut or Unavailable look again, and
// not before its RetryAfter.
func Look(ctx context.Context, c *authzenclient.Client, t Task) (Standing, error) {
	s, err := look(ctx, c.Link(), link.Request{Op: "await", URL: t.kept.StatusEndpoint, Method: http.MethodGet}, t)
	if err != nil {
		return Standing{}, of("await", err)
	}
	return s, nil
}

// look sends a request about a task, which is answered with its status.
func look(ctx context.Context, l link.Link, r link.Request, t Task) (s Standing, err error) {
	if err := t.of(l); err != nil {
		return s, err
	}
	err = l.Send(ctx, r, func(a link.Answer) error {
		now, err := readTask(a)
		if err == nil && now.kept.ID != t.kept.ID {
			err = odd("it is about another task")
		}
		if err == nil {
			s = t.standing(now)
		}
		return err
	})
	return s, err
}

// Cancel withdraws an approval request. It fails if the task has ended, and if the PDP does not offer it. Approvers revoke
// an approval, at the PDP.
func Cancel(ctx context.Context, c *authzenclient.Client, t Task) error {
	r := link.Request{Op: "cancel", URL: t.kept.Cancel, Body: []byte("{}"), Once: true}
	s, err := look(ctx, c.Link(), r, t)
	if err == nil && s.state.status != taskCancelled {
		err = odd("the task was not cancelled")
	}
	if err != nil {
		return of("cancel", err)
	}
	return nil
}

// Use asks the PDP about a request with the approval of s, and declares as [authzenclient.Client.Decide] does. The answer
// is the PDP's: an approval is no permit, and the PDP compares the request with the one that people approved. The request
// is sent again only if no connection was made: an answer that is lost may have used the approval.
//
// It is a deny of kind NotApproved if s has no approval, or one that has ended. [Next] is what may follow on a deny.
func Use(
	ctx context.Context, c *authzenclient.Client, s Standing, request evaluation.Request, types []string, options ...authzenclient.AskOption,
) authzenclient.Undischarged {
	err := s.task.of(c.Link())
	if err == nil && !s.Approved() {
		err = notApproved("there is no approval")
	}
	if err != nil {
		return authzenclient.Undischarged{}.Deny(failureOf(of("evaluate", err)))
	}
	return c.Present(ctx, request, types, s.given.text, options...)
}
