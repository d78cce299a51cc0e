// Package inbox reads the approval requests of a running server over HTTP, as approvers
// and the callers that filed them see them. Start with [New]; [Inbox.Pages], [Inbox.List]
// and [Inbox.Get] read, [Inbox.Decide], [Inbox.Revoke] and [Inbox.Cancel] change something,
// and [Inbox.Watch] yields each new one. Beside a request, [Inbox.Why], [Inbox.Deciders] and
// [Inbox.Previous] read facts for a decision, and [Inbox.Me] is the
// caller as the server knows it.
//
// The package makes nothing harmless for a terminal: the program that shows an approval request must do that.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/httpclient"
)

// Inbox is the approval requests of one server.
type Inbox struct{ server *httpclient.Server }

// New makes the inbox of the server at a base URL. The URL is https, or http on this machine. New sends nothing.
func New(baseURL string, o httpclient.Options) (*Inbox, error) {
	server, err := httpclient.New(baseURL, o)
	if err != nil {
		return nil, err
	}
	return &Inbox{server}, nil
}

// Close closes idle connections.
func (i *Inbox) Close() { i.server.Close() }

const (
	// pageSize is how many requests a page may have, the most that a server allows.
	pageSize = 200
	// longestPoll is the longest that a server waits before it answers.
	longestPoll = 30 * time.Second

	requestBody = 16 << 20
	pageBody    = 1 << 30 // of requests, each with the arguments of a call
	path        = "/v1/approvals"
)

// Filter picks requests. Every given member must match. Without a status, pending requests match; besides the statuses
// there are ended, for all but pending, and all.
type Filter struct {
	Status, Tenant, Template, Subject, Resource, Action string
	// Voted picks the requests that the caller has voted on, or those that it has not; nil picks both.
	Voted *bool
	// Newest has the newest come first. Otherwise it is the oldest.
	Newest bool
}

func (f Filter) query() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{
		"status":   f.Status,
		"tenant":   f.Tenant,
		"template": f.Template,
		"subject":  f.Subject,
		"resource": f.Resource,
		"action":   f.Action,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.Newest {
		query.Set("order", "newest")
	}
	if f.Voted != nil {
		query.Set("voted", strconv.FormatBool(*f.Voted))
	}
	return query
}

// Pages hands requests to yield. It returns the cursor of the last one: with the oldest first, new requests come after it.
func (i *Inbox) Pages(ctx context.Context, f Filter, yield func(Request) error) (cursor string, err error) {
	further := func(id string) bool { return f.Newest != (id > cursor) && id != cursor || cursor == "" }
	for {
		page, err := i.page(ctx, f, cursor, pageSize, 0)
		if err != nil {
			return cursor, err
		}
		for _, r := range page.Items {
			if further(r.ID) {
				cursor = r.ID
			}
			if err := yield(r); err != nil {
				return cursor, err
			}
		}
		if page.Next == "" {
			return cursor, nil
		}
		if !further(page.Next) && (page.Next != cursor || len(page.Items) == 0) {
			return cursor, errors.New("the server's answer is no page of requests: it does not come to an end")
		}
		cursor = page.Next
	}
}

// Page is some requests. Next is the cursor of the page after it, "" if there is none. A page may be
// empty, and not be the last one.
type Page struct {
	Items []Request `json:"items"`
	Next  string    `json:"next"`
	// Tag is another one for a page that differs, "" if the server gave none.
	Tag string `json:"-"`
}

// List reads one page of at most so many requests, from a cursor on. The cursor of the first page is "".
func (i *Inbox) List(ctx context.Context, f Filter, cursor string, limit int) (Page, error) {
	return i.page(ctx, f, cursor, limit, 0)
}

// page reads the requests after a cursor. If there is none, the server waits so long for one.
func (i *Inbox) page(ctx context.Context, f Filter, cursor string, limit int, wait time.Duration) (Page, error) {
	page, tag, err := ask[Page](ctx, i, f.page(cursor, limit, wait), "")
	page.Tag = tag
	return page, err
}

// Count is how many requests are on a page.
type Count struct {
	N    int
	More bool // there is another page
	Tag  string
}

// Count is how many requests the page has.
func (p *Page) Count() Count { return Count{len(p.Items), p.Next != "", p.Tag} }

// Count counts the requests of the first page as soon as its tag is another one. It reports false if it is not within so
// long.
func (i *Inbox) Count(
	ctx context.Context, f Filter, limit int, tag string, wait time.Duration,
) (c Count, changed bool, err error) {
	page, now, err := ask[struct {
		Items []struct{} `json:"items"`
		Next  string     `json:"next"`
	}](ctx, i, f.page("", limit, wait), tag)
	return Count{len(page.Items), page.Next != "", now}, now != tag, err
}

func (f Filter) page(cursor string, limit int, wait time.Duration) url.Values {
	query := f.query()
	query.Set("limit", strconv.Itoa(limit))
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	return query
}

// ask reads a page and its tag. If that is the given one, there is no page.
func ask[T any](ctx context.Context, i *Inbox, query url.Values, tag string) (page T, now string, err error) {
	c := httpclient.Call{Method: http.MethodGet, Path: path, Query: query, Most: pageBody, Tag: tag}
	body, now, err := i.server.Tagged(ctx, c)
	if err != nil || body == nil {
		return page, tag, err
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return page, now, fmt.Errorf("the server's answer is no page of requests: %w", err)
	}
	return page, now, nil
}

// Get reads one request. If the request is pending, Get waits up to wait for its end.
func (i *Inbox) Get(ctx context.Context, id string, wait time.Duration) (Request, error) {
	for end := time.Now().Add(wait); ; {
		poll := min(wait, longestPoll)
		query := url.Values{}
		if poll > 0 {
			query.Set("wait", poll.String())
		}
		began := time.Now()
		r, err := httpclient.GetJSON[Request](ctx, i.server, pathOf(id), query, requestBody, aRequest)
		wait = time.Until(end)
		if err != nil || !r.Pending() || wait <= 0 {
			return r, err
		}
		if err := i.pace(ctx, began, poll); err != nil {
			return r, err
		}
	}
}

// pace pauses if a poll returned early. A server that stops does not wait any more, and must not be asked in a busy
// loop.
func (i *Inbox) pace(ctx context.Context, began time.Time, poll time.Duration) error {
	if time.Since(began) >= min(poll, time.Second) {
		return ctx.Err()
	}
	return i.server.Wait(ctx, time.Second)
}

// Ruling is the decision of a person about a request.
type Ruling = evaluation.Ruling

// Decide approves, denies or delegates, and returns the request as it is after that.
func (i *Inbox) Decide(ctx context.Context, id string, r Ruling) (Request, error) {
	return i.post(ctx, id, "/decision", r)
}

// Revoke takes an approval back.
func (i *Inbox) Revoke(ctx context.Context, id string, r Ruling) (Request, error) {
	return i.post(ctx, id, "/revoke", r)
}

// Cancel withdraws a request, for the program that filed it.
func (i *Inbox) Cancel(ctx context.Context, id string, r Ruling) (Request, error) {
	return i.post(ctx, id, "/cancel", r)
}

func (i *Inbox) post(ctx context.Context, id, what string, r Ruling) (Request, error) {
	return httpclient.PostJSON[Request](ctx, i.server, pathOf(id)+what, r, requestBody, aRequest)
}

func pathOf(id string) string { return path + "/" + url.PathEscape(id) }

// aRequest names an answer in errors.
const aRequest = "approval request"
