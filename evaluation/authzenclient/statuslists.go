package authzenclient

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"policy-service/evaluation/capability"
)

// How status lists are followed.
const (
	listWait  = 30 * time.Second // for a change, where the service lets this client wait
	listPause = 5 * time.Second  // after a failure
	listAgain = 100 * time.Millisecond
	listIdle  = 10 * time.Minute // after the last look at a list
	mostLists = 1024
)

// StatusLists are the lists by which the service says which capabilities count that gateways verify by themselves. They are
// a [capability.Status].
type StatusLists struct {
	client *Client
	ctx    context.Context

	mu sync.Mutex // guards the following, and the values of lists
	of map[string]*followed
}

// followed is a list that was asked for.
type followed struct {
	uri    string
	list   *capability.StatusList // nil before the first
	tag    string
	looked time.Time
	failed error
	first  chan struct{} // closed after the first attempt
}

// StatusLists follows the lists that are asked for until a context ends: with a credential, each change is heard at once,
// and else a list is fetched again when its time to live is over. When a list has ended, and no newer one came, it says
// nothing, and verifiers refuse. A list counts if the service signed it for the address that was asked for, and
// if it is not older than the last one.
func (c *Client) StatusLists(ctx context.Context) *StatusLists {
	return &StatusLists{client: c, ctx: ctx, of: map[string]*followed{}}
}

// Of implements [capability.Status]. Only lists of the service itself are fetched.
func (s *StatusLists) Of(ctx context.Context, at capability.Listed) (capability.State, error) {
	one, failure := s.find(at.URI)
	if failure != nil {
		return capability.StateUnknown, failure
	}
	select {
	case <-one.first:
	case <-ctx.Done():
		e := broken(ctx, ctx.Err(), nil, false)
		e.Op = opStatus
		return capability.StateUnknown, e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.list != nil {
		if state := one.list.State(at.Index, s.client.clock.now()); state != capability.StateUnknown {
			return state, nil
		}
	}
	return capability.StateUnknown, one.failed
}

const opStatus = "status"

// find is a list that is followed from now on.
func (s *StatusLists) find(uri string) (*followed, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[uri]
	if one == nil {
		base, failure := s.client.endpoint.Load().status, notAsked("the status list is none of this service")
		failure.Op = opStatus
		name, ours := strings.CutPrefix(uri, base)
		if base == "" || !ours || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return nil, failure
		}
		if len(s.of) >= mostLists {
			failure.Detail = "too many status lists are followed"
			return nil, failure
		}
		one = &followed{uri: uri, first: make(chan struct{})}
		s.of[uri] = one
		go s.follow(one)
	}
	one.looked = s.client.clock.now()
	return one, nil
}

// follow fetches a list again and again, until no caller has looked at it for a while.
func (s *StatusLists) follow(one *followed) {
	for n := 0; ; n++ {
		pause := s.fetch(one)
		if n == 0 {
			close(one.first)
		}
		s.mu.Lock()
		ended := s.ctx.Err() != nil || s.client.clock.now().Sub(one.looked) > listIdle
		if ended {
			delete(s.of, one.uri)
		}
		s.mu.Unlock()
		if ended || pause > 0 && s.client.clock.wait(s.ctx, pause) != nil {
			return
		}
	}
}

// fetch fetches a list, and says how long to wait before the next time.
func (s *StatusLists) fetch(one *followed) time.Duration {
	c := s.client
	a := asking{
		op: opStatus, url: one.uri, method: http.MethodGet, repeat: unanswered, breaker: &breaker{},
		statuses: []int{http.StatusOK}, accept: "application/" + capability.TypeList,
		header: http.Header{"Cache-Control": {"no-cache"}}, // a cache on the way would have it be twice as old
	}
	waits := c.token != nil && one.list != nil
	if waits {
		a.wait = min(listWait, one.list.TTL) // then there is a newer one, also without a change
		if c.http.Timeout > 0 {
			a.wait = max(0, min(a.wait, c.http.Timeout-c.timeout))
		}
		a.url = within(one.uri, a.wait)
		a.header["If-None-Match"] = []string{one.tag}
		a.statuses = append(a.statuses, http.StatusNotModified)
	}
	a.public = !waits
	var list *capability.StatusList
	tag := ""
	_, err := c.ask(s.ctx, a, func(r reply) *Error {
		read, failure := capability.ReadStatusList(s.ctx, c.keys, string(r.body))
		switch {
		case failure != nil:
			return &Error{Kind: Odd, Detail: "the status list: " + failure.Error(), Cause: failure}
		case read.URI != one.uri:
			return odd("it is another status list")
		}
		list, tag = read, r.tag
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && list != nil && one.list != nil && list.IssuedAt.Before(one.list.IssuedAt):
		err = odd("the status list is older than the last one")
	case err == nil && list != nil:
		one.list, one.tag = list, tag
	}
	if one.failed = nil; err != nil {
		err.Op = opStatus
		one.failed = err
		return max(listPause, err.RetryAfter)
	}
	switch {
	case c.token == nil:
		return one.list.TTL
	case waits && list == nil: // it said nothing new, and may not have waited
		return time.Second
	}
	return listAgain
}
