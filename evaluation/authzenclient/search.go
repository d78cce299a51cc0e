package authzenclient

import (
	"context"
	"crypto/sha256"
	"iter"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// Result is something a search found: a subject or resource by Type and ID, or
// an action by Name. Whatever is yielded without an error is permitted.
type Result struct {
	Type, ID string
	Name     string
}

// SearchSubjects yields the subjects of the type of request.Subject that may do
// the action on the resource. Its ID and properties are not sent.
//
// As the other searches it reads page after page as long as the loop asks, and
// starts anew when ranged over again. It yields an error at most once, as the
// last thing, with a zero Result: a result that carries obligations is one, but
// not for [Client.EnforceSubjects] and the like.
func (c *Client) SearchSubjects(ctx context.Context, request evaluation.Request) iter.Seq2[Result, error] {
	return c.search(ctx, sought{what: subject}, request)
}

// SearchResources yields the resources of the type of request.Resource that the
// subject may do the action on. Its ID and properties are not sent.
func (c *Client) SearchResources(ctx context.Context, request evaluation.Request) iter.Seq2[Result, error] {
	return c.search(ctx, sought{what: resource}, request)
}

// SearchActions yields the actions that the subject may do on the resource.
// request.Action is not sent.
func (c *Client) SearchActions(ctx context.Context, request evaluation.Request) iter.Seq2[Result, error] {
	return c.search(ctx, sought{what: action}, request)
}

// pageLimits keep a search from going on for ever.
type pageLimits struct{ size, most, idle int }

// sought is the goal of a search: subjects or resources of a type, or actions.
type sought struct {
	what gap
	typ  string
	// keep says whether a result is permitted, once what it obliges to was
	// done. Without it one that obliges to anything is an error.
	keep func(_ context.Context, _ Decision, done map[string]obligations.Outcome) bool
	// october is set if the search adopts October's drafts of obligations.
	october bool
}

// of takes the sought entity or action out of the request, but for its type.
func (s sought) of(q evaluation.Request) (sought, evaluation.Request) {
	switch s.what {
	case subject:
		s.typ, q.Subject = q.Subject.Type, evaluation.Entity{Type: q.Subject.Type}
	case resource:
		s.typ, q.Resource = q.Resource.Type, evaluation.Entity{Type: q.Resource.Type}
	case action:
		q.Action = evaluation.Action{}
	}
	return s, q
}

type gap uint8

const (
	subject gap = iota
	resource
	action
)

func (e *endpoints) search(what gap) string {
	return [...]string{e.subject, e.resource, e.action}[what]
}

func (c *Client) search(ctx context.Context, s sought, q evaluation.Request) iter.Seq2[Result, error] {
	s, q = s.of(q)
	s.october = evaluation.Adopts(q.Context)
	return func(yield func(Result, error) bool) {
		fail := func(err *Error) {
			err.Op = "search"
			yield(Result{}, err)
		}
		question, err := c.encodeSearch(q, s.what)
		if err != nil {
			fail(err)
			return
		}
		url, progress := c.endpoint.Load().search(s.what), progress{limits: c.pages, seen: map[[32]byte]bool{}}
		for token := ""; ; {
			found, next, err := c.page(ctx, url, question, token, s)
			if err != nil {
				fail(err)
				return
			}
			done := map[string]obligations.Outcome{} // on this page, by id
			for _, i := range found {
				if s.keep != nil && !s.keep(ctx, i.decision, done) {
					if ctx.Err() != nil { // this result may be missing for that alone
						fail(broken(ctx, ctx.Err(), nil, false))
						return
					}
					continue
				}
				if !yield(i.Result, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if err := progress.made(len(found), next); err != nil {
				fail(err)
				return
			}
			token = next
		}
	}
}

// progress tells a long search from one that turns in circles.
type progress struct {
	limits      pageLimits
	pages, idle int
	seen        map[[32]byte]bool // tokens, by hash: they can be long, and there can be many
}

func (p *progress) made(found int, next string) *Error {
	token := sha256.Sum256([]byte(next))
	p.pages, p.idle = p.pages+1, p.idle+1
	if found > 0 {
		p.idle = 0
	}
	switch {
	case p.seen[token]:
		return odd("a page's token came twice")
	case p.pages >= p.limits.most:
		return odd("there are more pages than any search has")
	case p.idle >= p.limits.idle:
		return odd("too many pages in a row were empty")
	}
	p.seen[token] = true
	return nil
}
