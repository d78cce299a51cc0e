package approvals

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/internal/link"
)

// longestWait is the longest time that this service holds an answer back.
const longestWait = 30 * time.Second

// Changes are tasks of a client, as they are now.
type Changes struct {
	pdp    string
	cursor string
	more   bool
	ids    []string
	states map[string]state
}

// Watch reads what changed among all tasks that the client's credential filed, and has the PDP hold its answer back for
// the wait, half a minute at most, until something changes. after is the [Changes.Cursor] of the answer before. "" begins:
// that answer comes at once and has the tasks that wait for people now. Look at other tasks once ([Look]).
//
// After an error of a kind that Look names, ask again with the same cursor, after a pause. After status 410 begin anew.
// This is an API of this service alone: another PDP answers 404 or 405, or names no endpoint. Poll each task with Look
// then, every few seconds.
func Watch(ctx context.Context, c *authzenclient.Client, after string, wait time.Duration) (changes Changes, err error) {
	l := c.Link()
	r := link.Request{Op: "watch", URL: l.Requests, Method: http.MethodGet}
	if r.URL != "" { // an endpoint has no query
		if r.URL += "?limit=200"; after != "" {
			r.URL += "&after=" + url.QueryEscape(after)
			r.Wait = min(wait, longestWait)
		}
	}
	err = l.Send(ctx, r, func(a link.Answer) (err error) {
		if changes, err = readChanges(a); changes.more && changes.cursor == after {
			err = odd("there is more to be had at once, it says, and no cursor to have it with")
		}
		return err
	})
	if err != nil {
		return Changes{}, of("watch", err)
	}
	changes.pdp = l.PDP
	return changes, nil
}

func readChanges(a link.Answer) (changes Changes, err error) {
	var said struct {
		Tasks  []jsontext.Value `json:"tasks"`
		Cursor string           `json:"cursor"`
		More   bool             `json:"more"`
	}
	if json.Unmarshal(a.Body, &said) != nil || said.Tasks == nil || said.Cursor == "" {
		return changes, odd("the body is not one JSON object of tasks, with a cursor")
	}
	changes = Changes{cursor: said.Cursor, more: said.More, states: map[string]state{}}
	for _, text := range said.Tasks {
		s, bulk, err := readAnyTask(link.Answer{Body: text})
		switch {
		case err != nil:
			return Changes{}, err
		case bulk:
			continue // another program's: this client asks for one at a time
		}
		if _, twice := changes.states[s.kept.ID]; !twice {
			changes.ids = append(changes.ids, s.kept.ID)
		}
		changes.states[s.kept.ID] = s
	}
	return changes, nil
}

// Cursor is what to watch after next.
func (c Changes) Cursor() string { return c.cursor }

// More reports whether there is more to be had at once.
func (c Changes) More() bool { return c.more }

// TaskIDs are the tasks that began or changed.
func (c Changes) TaskIDs() []string { return slices.Clone(c.ids) }

// Of is the standing of a task. It is not ok if the task has not changed.
func (c Changes) Of(t Task) (s Standing, ok bool) {
	now, ok := c.states[t.ID()]
	if !ok || t.kept.PDP != c.pdp {
		return s, false
	}
	return t.standing(now), true
}

// Waiting yields the approval requests ([Standing.Approvals]) of all tasks in the changes, as far as the PDP names them,
// and whether each still waits for people: also of tasks that another program filed.
func (c Changes) Waiting() iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for _, id := range c.ids {
			s := c.states[id]
			for _, approval := range s.named() {
				if !yield(approval, s.status == taskPending) {
					return
				}
			}
		}
	}
}
