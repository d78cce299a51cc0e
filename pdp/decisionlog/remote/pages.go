package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/httpclient"
)

// pageSize is how many records are asked for at once, the most there are.
const pageSize = 1000

type page struct {
	Items []jsontext.Value `json:"items"`
	Next  string           `json:"next"`
	More  bool             `json:"more"`
	next  int64
}

// page reads one page. Below 0 a cursor is none.
func (l *Log) page(ctx context.Context, f decisionlog.Filter, order string, cursor, limit int64) (p page, err error) {
	query := filterQuery(f)
	query.Set("order", order)
	query.Set("limit", strconv.FormatInt(limit, 10))
	if cursor >= 0 {
		query.Set("cursor", strconv.FormatInt(cursor, 10))
	}
	body, err := l.server.Get(ctx, "/v1/decisions", query, recordBody)
	if err != nil {
		return p, err
	}
	if err = json.Unmarshal(body, &p); err == nil {
		p.next, err = strconv.ParseInt(p.Next, 10, 64)
	}
	if err == nil && p.More && (len(p.Items) == 0 || p.next == cursor) {
		err = errors.New("it does not come to an end")
	}
	if err != nil {
		return p, fmt.Errorf("the server's answer is no page of records: %w", err)
	}
	return p, nil
}

func filterQuery(f decisionlog.Filter) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{
		"tenant": f.Tenant, "kind": f.Kind, "decision": f.Decision, "subject": f.Subject, "resource": f.Resource,
		"action": f.Action, "policy": f.Policy, "event": f.Event, "of": f.Of, "approval": f.Approval,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"from": f.From, "to": f.To} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return query
}

// Last hands the last records that pass to yield, in order, at most n, and returns
// the cursor to go on from.
func (l *Log) Last(ctx context.Context, f decisionlog.Filter, n int64, yield func(sequence int64, line []byte) error) (cursor int64, err error) {
	newest, err := l.page(ctx, decisionlog.Filter{}, "newest", -1, 1)
	if err != nil || len(newest.Items) == 0 {
		return -1, err
	}
	if cursor, err = sequenceOf(newest.Items[0]); err != nil {
		return -1, err
	}
	var lines []jsontext.Value
	for at := cursor + 1; int64(len(lines)) < n; {
		p, err := l.page(ctx, f, "newest", at, min(n-int64(len(lines)), pageSize))
		if err != nil {
			return cursor, err
		}
		lines, at = append(lines, p.Items...), p.next
		if !p.More {
			break
		}
	}
	slices.Reverse(lines)
	return cursor, each(lines, yield)
}

func each(lines []jsontext.Value, yield func(int64, []byte) error) error {
	for _, line := range lines {
		sequence, err := sequenceOf(line)
		if err == nil {
			err = yield(sequence, line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sequenceOf(line []byte) (int64, error) {
	var record struct {
		Sequence int64 `json:"sequence"`
	}
	err := json.Unmarshal(line, &record)
	return record.Sequence, err
}

// Tail hands records to yield in order, as [decisionlog.Tail] does: those after
// o.After, and while it follows those that come. A server that is not there for a
// moment is asked again.
func (l *Log) Tail(ctx context.Context, o decisionlog.TailOptions, yield func(sequence int64, line []byte) error) (cursor int64, err error) {
	cursor = o.After
	for failures := 0; ; {
		p, err := l.page(ctx, o.Filter, "oldest", cursor+1, pageSize)
		switch {
		case err == nil:
			failures = 0
		case o.Every == 0 || !httpclient.Passing(err) || failures == attempts:
			return cursor, err
		default:
			failures++
		}
		if err == nil {
			if err := each(p.Items, yield); err != nil {
				return cursor, err
			}
			if cursor = p.next - 1; p.More {
				continue
			}
		}
		if o.Every == 0 {
			return cursor, nil
		}
		if l.server.Wait(ctx, o.Every) != nil {
			return cursor, nil
		}
	}
}
