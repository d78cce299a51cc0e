package authzenclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Changes are what has become of the client's tasks.
type Changes struct {
	pdp    string
	cursor string
	more   bool
	ids    []string
	told   map[string]told
}

// Watch says what has become of all that this client's credential has people asked about, and
// waits so long at most, and at most half a minute, for something to change. After is the
// [Changes.Cursor] of the answer before. "" begins: the answer comes at once, and has what waits
// for people now; look at what else is waited for once ([Client.Look]).
//
// So one call follows as many tasks as there are, where [Client.Look] is one call for each. Ask
// again after an error of the kinds that Look names, after a pause and with the same cursor. After
// one with the status 410 begin anew: nobody can tell any more what has changed. A PDP that does not offer
// this answers 404 or 405, or names nothing to ask at; look at each task then.
func (c *Client) Watch(ctx context.Context, after string, wait time.Duration) (Changes, error) {
	changes, err := tasks{c}.watch(ctx, after, wait)
	if err != nil {
		err.Op = "watch"
		return Changes{}, err
	}
	return changes, nil
}

func (c tasks) watch(ctx context.Context, after string, wait time.Duration) (changes Changes, err *Error) {
	at := c.endpoint.Load().requests
	if err := c.reachable(at); err != nil {
		return changes, err
	}
	at += "?limit=200" // an endpoint has no query
	if after != "" {
		at += "&after=" + url.QueryEscape(after)
	} else {
		wait = 0
	}
	err = c.until(ctx, min(wait, longestWait), func(wait time.Duration) *Error {
		a := asking{op: "watch", url: within(at, wait), wait: wait, method: http.MethodGet, repeat: unanswered, breaker: &breaker{}}
		_, err := c.ask(ctx, a, func(r reply) (err *Error) {
			if changes, err = readChanges(r); changes.more && changes.cursor == after {
				return odd("there is more to be had at once, it says, and no cursor to have it with")
			}
			return err
		})
		changes.pdp = c.pdp()
		return err
	}, func() (bool, time.Duration) { return len(changes.ids) > 0 || changes.more, 0 })
	return changes, err
}

func readChanges(r reply) (changes Changes, err *Error) {
	var said struct {
		Tasks  []jsontext.Value `json:"tasks"`
		Cursor string           `json:"cursor"`
		More   bool             `json:"more"`
	}
	if json.Unmarshal(r.body, &said) != nil || said.Tasks == nil || said.Cursor == "" {
		return changes, odd("the body is not one JSON object of tasks, with a cursor")
	}
	changes = Changes{cursor: said.Cursor, more: said.More, told: map[string]told{}}
	for _, text := range said.Tasks {
		p, bulk, err := readAnyTask(reply{body: text})
		switch {
		case err != nil:
			return Changes{}, err
		case bulk:
			continue // another program's: this client asks for one at a time
		}
		if _, twice := changes.told[p.task.ID]; !twice {
			changes.ids = append(changes.ids, p.task.ID)
		}
		changes.told[p.task.ID] = p
	}
	return changes, nil
}

// Cursor is what to watch after next.
func (c Changes) Cursor() string { return c.cursor }

// More reports whether there is more to be had at once.
func (c Changes) More() bool { return c.more }

// TaskIDs are the tasks that have begun, or of which something has changed: see [Handle.TaskID].
func (c Changes) TaskIDs() []string { return slices.Clone(c.ids) }

// Of is how far it is with what h has people asked. It is not ok if the changes say nothing of it.
func (c Changes) Of(h Handle) (s Standing, ok bool) {
	p, ok := c.told[h.TaskID()]
	if !ok || h.kept.PDP != c.pdp {
		return s, false
	}
	return h.standing(p), true
}

// Waiting has the approval requests ([Standing.Approvals]) of all tasks that the changes tell of, as
// far as the PDP names them, and whether people are still waited for: also of tasks whose [Handle]
// another program has.
func (c Changes) Waiting() iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, id := range c.ids {
			p := c.told[id]
			for _, approval := range p.named() {
				if !yield(approval, p.status == taskPending) {
					return
				}
			}
		}
	}
}
