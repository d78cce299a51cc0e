package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

const (
	// inboxLimit is how many approval requests a page has unless told, inboxMost the
	// most it may.
	inboxLimit = 50
	inboxMost  = 200
	// inboxLooked and inboxBytes bound the work of one page: it may be short, and then goes
	// on. inboxAtOnce is how many are read at once.
	inboxLooked = 250
	inboxBytes  = 1 << 20
	inboxAtOnce = 25
)

var errNoTurn = errors.New("there was no time to make a page")

// approvalsPage answers GET /v1/approvals: what whoever asks may decide about.
func (s *Server) approvalsPage(c echo.Context) error {
	v, err := s.approver(c, door.Need{Permission: auth.Approve, Parameters: inboxParameters})
	if err != nil {
		return err
	}
	q, err := v.query()
	if err != nil {
		return err
	}
	saw, err := s.longPoll(c, v.Caller, awaited{
		wait: q.wait,
		look: func(ctx context.Context) seen { return v.inbox(ctx, q) },
		of:   func(tenant, _ string) bool { return q.tenants == nil || slices.Contains(q.tenants, tenant) },
	})
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, saw.body)
}

// inbox makes a page when it is the caller's turn. One that ends before all was looked at
// is an answer without requests as well: who asks goes on behind it.
func (v *approver) inbox(ctx context.Context, q inboxQuery) (saw seen) {
	t, err := v.server.waiting.turn(ctx, v.Caller.Name)
	if err != nil {
		return seen{err: fmt.Errorf("%w: %w", errNoTurn, err)}
	}
	defer t.done()
	clear(v.reviewers) // each look is by the policies of its moment
	page, err := v.page(ctx, q, t.GoOn)
	if err != nil {
		return seen{err: err}
	}
	saw.done = len(page.Items) > 0 || page.Next != ""
	saw.body, saw.err = door.Marshal(page)
	return saw
}

type inbox struct {
	Items []broker.View `json:"items"`
	// Next is where the next page begins; "" is that there is none.
	Next string `json:"next"`
}

type inboxQuery struct {
	status                                      approval.Status
	tenants                                     []string // nil: all
	template, subject, resource, action, cursor string
	limit                                       int
	wait                                        time.Duration
}

var inboxParameters = []string{"status", "tenant", "template", "subject", "resource", "action", "cursor", "limit", "wait"}

func (v *approver) query() (q inboxQuery, err error) {
	given := v.Given
	q = inboxQuery{
		status:   approval.Pending,
		template: given["template"],
		subject:  given["subject"],
		resource: given["resource"],
		action:   given["action"],
		cursor:   given["cursor"],
		limit:    inboxLimit,
	}
	if text := given["status"]; text != "" {
		if q.status = approval.Status(text); !slices.Contains(approval.Statuses(), q.status) {
			return q, door.BadParameter("status", "is no status; give pending, approved, denied, expired, cancelled, used_up or revoked")
		}
	}
	if text := given["limit"]; text != "" {
		limit, err := strconv.ParseUint(text, 10, 31)
		if err != nil || limit == 0 {
			return q, door.BadParameter("limit", fmt.Sprintf("is no number of approval requests; give one from 1 to %d", inboxMost))
		}
		q.limit = int(min(limit, inboxMost))
	}
	if !v.Caller.AllTenants {
		q.tenants = append([]string{}, v.Caller.Tenants...)
	}
	if tenant := given["tenant"]; tenant != "" {
		if !v.Caller.Serves(tenant) {
			q.tenants = []string{} // as where there is none of that name
		} else {
			q.tenants = []string{tenant}
		}
	}
	q.wait, err = patience(given)
	return q, err
}

// page collects what somebody may decide about, and what they said something about. Each
// time something was looked at goOn says whether there is time for more: where there is
// none the page ends, unless it would be where it began.
func (v *approver) page(ctx context.Context, q inboxQuery, goOn func(context.Context) error) (page inbox, err error) {
	page = inbox{Items: []broker.View{}, Next: q.cursor}
	bytes := 0
	for looked := 0; looked < inboxLooked; {
		some, next, err := v.server.approvals.Store.List(ctx, q.tenants, q.status, page.Next, min(inboxAtOnce, inboxLooked-looked))
		if err != nil {
			return page, err
		}
		looked += max(inboxAtOnce, len(some)) // where little was found, much was looked at
		for n, a := range some {
			shows, err := v.shows(ctx, q, a)
			if err != nil {
				return page, err
			}
			if err := goOn(ctx); err != nil { // what was said after the end counts for nothing
				if page.Next == q.cursor {
					return page, fmt.Errorf("%w: %w", errNoTurn, err)
				}
				return page, nil
			}
			if shows {
				page.Items = append(page.Items, broker.ViewOf(a))
				bytes += len(a.Shown) + len(a.Said)
			}
			if page.Next = a.ID; n == len(some)-1 {
				page.Next = next
			}
			if len(page.Items) == q.limit || bytes >= inboxBytes {
				return page, nil
			}
		}
		if page.Next = next; next == "" {
			break
		}
	}
	return page, nil
}

// shows reports whether something is on a page.
func (v *approver) shows(ctx context.Context, q inboxQuery, a approval.Approval) (bool, error) {
	if !q.picks(a) {
		return false, nil
	}
	standing, err := v.standing(ctx, a)
	return standing.decides || standing.voted, err
}

func (q *inboxQuery) picks(a approval.Approval) bool {
	entity := func(want string, e evaluation.Ref) bool {
		return want == "" || want == e.ID || want == e.Type+"/"+e.ID
	}
	return (q.template == "" || q.template == a.Terms.Template) && (q.action == "" || q.action == a.Action) && entity(q.subject, a.Subject) && entity(q.resource, a.Resource)
}

// approvalStatus answers GET /v1/approvals/:id.
func (s *Server) approvalStatus(c echo.Context) error {
	v, err := s.approver(c, door.Need{Parameters: []string{"wait"}})
	if err != nil {
		return err
	}
	wait, err := patience(v.Given)
	if err != nil {
		return err
	}
	id := c.Param("id")
	saw, err := s.longPoll(c, v.Caller, awaited{
		wait: wait,
		look: func(ctx context.Context) (saw seen) {
			clear(v.reviewers)
			found, _, err := v.find(ctx, id)
			if err != nil {
				return seen{err: err}
			}
			saw.done = found.Status != approval.Pending
			saw.body, saw.err = door.Marshal(broker.ViewOf(found))
			return saw
		},
		of: func(_, changed string) bool { return changed == id },
	})
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, saw.body)
}

func showApproval(c echo.Context, a approval.Approval) error {
	body, err := door.Marshal(broker.ViewOf(a))
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, body)
}

// find finds an approval request that is there for whoever asks. That one is not on
// record yet is said to nobody else.
func (v *approver) find(ctx context.Context, id string) (approval.Approval, standing, error) {
	a, ok, unrecorded := v.server.approvals.Store.Get(ctx, id)
	if unrecorded != nil && !errors.Is(unrecorded, approval.ErrUnrecorded) {
		return approval.Approval{}, standing{}, unrecorded
	}
	if !ok {
		return approval.Approval{}, standing{}, noSuchApproval()
	}
	s, err := v.standing(ctx, a)
	if err == nil && !s.sees() {
		err = noSuchApproval()
	}
	if err = cmp.Or(err, unrecorded); err != nil {
		return approval.Approval{}, standing{}, err
	}
	return a, s, nil
}

func noSuchApproval() *door.Problem {
	return door.NewProblem(http.StatusNotFound, "no such approval request, or none that you may see; GET /v1/approvals lists those you may decide about")
}

// admitRuling admits a ruling on an approval request, which is its body, and finds the approval request. If no
// permission is needed, every caller that sees the approval request may rule.
func (s *Server) admitRuling(c echo.Context, p auth.Permission) (r ruling, err error) {
	r.approver, err = s.approver(c, door.Need{
		Permission: p,
		Body:       door.OptionalJSON,
		Work:       door.ShortWork,
	})
	if err != nil {
		return r, err
	}
	r.of, r.standing, err = r.find(c.Request().Context(), c.Param("id"))
	return r, approvalProblem(err)
}

// ruling is what an approver, or the program that asked, says about an approval request.
type ruling struct {
	*approver
	standing
	said evaluation.Ruling
	of   approval.Approval
	via  string
}

// ruling admits a ruling in this service's own form.
func (s *Server) ruling(c echo.Context, p auth.Permission, decode func([]byte, evaluation.Limits) (evaluation.Ruling, error)) (ruling, error) {
	r, err := s.admitRuling(c, p)
	if err == nil {
		r.said, err = decode(r.Body, s.config.Program.Limits)
	}
	return r, err
}

// vote is a ruling as the words of a person, without the secrets of the request.
func (r *ruling) vote(ctx context.Context) approval.Vote {
	v := approval.Vote{Caller: r.Caller.Name, Kind: approval.VoteKind(r.said.Decision), ValidUntil: r.said.ValidUntil, Via: r.via}
	v.Reason = r.server.unsecret(ctx, r.said.Reason, r.of)
	if r.approver.decides() {
		v.By = r.Caller.Principal.String()
	}
	return v
}

// unsecret is what somebody says of approval requests, without what is masked in
// anything that was said in them or about them, or on record of what they wait for.
func (s *Server) unsecret(ctx context.Context, text string, of ...approval.Approval) string {
	var said [][]byte
	for _, one := range of {
		said = append(said, one.Shown, one.Said, []byte(one.Terms.Message))
		for _, vote := range one.Votes {
			said = append(said, []byte(vote.Reason))
		}
		if record, err := s.decisions.log.ByID(one.Decision); err == nil { // else it is gone, and what was shown is not
			decided, _ := s.decisions.log.Recorded(record.Line) // a batch that cannot be read counts as gone
			said = append(said, record.Line, decided.Batch.Line)
		}
	}
	return s.live.pinned(ctx).mask.After(text, said...)
}

// decideApproval answers POST /v1/approvals/:id/decision.
func (s *Server) decideApproval(c echo.Context) error {
	r, err := s.ruling(c, auth.Approve, evaluation.DecodeRuling)
	if err != nil {
		return err
	}
	return s.decide(c, &r)
}

// decide is where a ruling counts, in whatever form somebody said it.
func (s *Server) decide(c echo.Context, r *ruling) (err error) {
	if err := r.mayDecide(); err != nil {
		return err
	}
	ctx := context.WithoutCancel(c.Request().Context())
	vote := r.vote(ctx)
	vote.From = r.from
	if vote.Kind == approval.Delegate {
		if vote.To, err = r.delegate(ctx, r.of, r.said.To); err != nil {
			return err
		}
	}
	// An earlier voice counts as long as the policies in force let that person speak.
	counts := func(earlier approval.Vote) bool {
		person, err := auth.ParsePrincipal(earlier.By)
		if err != nil {
			return false
		}
		may, err := r.may(ctx, r.of, person, earlier.Caller)
		return err == nil && may.decides
	}
	same := func(one, other string) bool { return r.same(r.of.Tenant, one, other) }
	decided, err := s.approvals.Store.Decide(ctx, r.of.ID, r.said.Version, vote, counts, same)
	if err != nil {
		return approvalProblem(err)
	}
	return showApproval(c, decided)
}

// mayDecide refuses who sees it and has no say.
func (s standing) mayDecide() error {
	switch {
	case s.own:
		return door.NewProblem(http.StatusForbidden, "this is your own approval request, or one of somebody who acts for you; another person must decide about it")
	case !s.decides:
		return door.NewProblem(http.StatusForbidden, "you may see this approval request, but you have no vote on it")
	}
	return nil
}

// delegate is whom somebody names in their place: not one of those who ask.
func (v *approver) delegate(ctx context.Context, a approval.Approval, to string) (string, error) {
	person, err := auth.ParsePrincipal(to)
	if err != nil {
		return "", evaluation.Malformed("no person", `name one as policies do, such as User::"mia"`, "to")
	}
	review, err := v.review(ctx, a, person, "")
	if err != nil {
		return "", approvalProblem(err)
	}
	if review.Own || v.same(a.Tenant, person.String(), v.Caller.Principal.String()) {
		return "", evaluation.Malformed("this is yourself, or one of those who ask", "name another person", "to")
	}
	return person.String(), nil
}

// revokeApproval answers POST /v1/approvals/:id/revoke.
func (s *Server) revokeApproval(c echo.Context) error {
	r, err := s.ruling(c, auth.Approve, evaluation.DecodeWithdrawal)
	if err != nil {
		return err
	}
	if err := r.mayDecide(); err != nil {
		return err
	}
	ctx := context.WithoutCancel(c.Request().Context())
	revoked, err := s.approvals.Store.Revoke(ctx, r.of.ID, r.said.Version, r.vote(ctx))
	if err != nil {
		return approvalProblem(err)
	}
	return showApproval(c, revoked)
}

// cancelApproval answers POST /v1/approvals/:id/cancel, by the program that asked.
func (s *Server) cancelApproval(c echo.Context) error {
	r, err := s.ruling(c, "", evaluation.DecodeWithdrawal)
	if err != nil {
		return err
	}
	if !r.asked {
		return door.NewProblem(http.StatusForbidden, "only the caller that filed an approval request can cancel it; an approver can deny it")
	}
	ctx := context.WithoutCancel(c.Request().Context())
	vote := r.vote(ctx)
	cancelled, err := s.approvals.Store.Cancel(ctx, r.of.ID, r.said.Version, vote.By, vote.Caller, vote.Reason)
	if err != nil {
		return approvalProblem(err)
	}
	return showApproval(c, cancelled)
}

// approvalProblem says what an error of the store is to the outside.
func approvalProblem(err error) error {
	var state *approval.StateError
	switch {
	case errors.As(err, &state):
		return door.NewProblem(http.StatusConflict, fmt.Sprintf("this approval request is %s, in version %d; look at it again", state.Status, state.Version))
	case errors.Is(err, approval.ErrVoted):
		return door.NewProblem(http.StatusConflict, "you have voted on this approval request already, perhaps by another name of yours; each person counts once")
	case errors.Is(err, approval.ErrNotDelegable):
		return door.NewProblem(http.StatusConflict, "this approval request cannot be delegated; approve or deny it")
	case errors.Is(err, approval.ErrNotFound):
		return noSuchApproval()
	case errors.Is(err, approval.ErrInvalid):
		return door.NewProblem(http.StatusBadRequest, "this can never be done, perhaps because valid_until has passed; leave it out, or look at the approval request again")
	case errors.Is(err, approval.ErrUnavailable), errors.Is(err, approval.ErrClosed):
		return door.NewProblem(http.StatusServiceUnavailable, "this cannot be stored at the moment; look at the approval request again later")
	case errors.Is(err, approval.ErrUnrecorded):
		return door.NewProblem(http.StatusServiceUnavailable, "this could not be recorded, and does not count until it is; look at the approval request again later")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return door.NewProblem(http.StatusServiceUnavailable, "there was no time to answer; ask again later")
	}
	return err
}
