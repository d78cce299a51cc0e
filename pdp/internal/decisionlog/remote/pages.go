package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/httpclient"
)

// pageSize is how many records are asked for at once, the most there are.
const pageSize = 1000

type page struct {
	Items   []jsontext.Value `json:"items"`
	Batches []jsontext.Value `json:"batches"`
	Next    string           `json:"next"`
	More    bool             `json:"more"`
	next    int64
}

// page reads one page. Below 0 a cursor is none.
func (l *Log) page(ctx context.Context, f record.Filter, order string, cursor, limit int64) (p page, err error) {
	query := filterQuery(f)
	query.Set("order", order)
	query.Set("limit", strconv.FormatInt(limit, 10))
	if cursor >= 0 {
		query.Set("cursor", strconv.FormatInt(cursor, 10))
	}
	const what = "page of records"
	if p, err = httpclient.GetJSON[page](ctx, l.server, "/v1/decisions", query, recordBody, what); err != nil {
		return p, err
	}
	p.next, err = strconv.ParseInt(p.Next, 10, 64)
	back := order == "newest"
	if err == nil && p.More && cursor >= 0 && (p.next == cursor || back != (p.next < cursor)) {
		err = errors.New("it does not come to an end")
	}
	if err != nil {
		return p, fmt.Errorf("the server's answer is no %s: %w", what, err)
	}
	return p, nil
}

func filterQuery(f record.Filter) url.Values {
	query := timesOf(f.From, f.To)
	for name, value := range map[string]string{
		"tenant": f.Tenant, "kind": f.Kind, "decision": f.Decision, "subject": f.Subject, "resource": f.Resource,
		"action": f.Action, "policy": f.Policy, "event": f.Event, "of": f.Of, "approval": f.Approval, "capability": f.Capability,
		"text": f.Text,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// Last hands the last records that pass to yield, in order, at most o.Last, and returns
// the cursor to go on from.
func (l *Log) Last(ctx context.Context, o export.TailOptions, yield func(sequence int64, line []byte) error) (cursor int64, err error) {
	newest, err := l.page(ctx, record.Filter{}, "newest", -1, 1)
	if err != nil || len(newest.Items) == 0 {
		return -1, err
	}
	if cursor, err = sequenceOf(newest.Items[0]); err != nil {
		return -1, err
	}
	var all page
	for at := cursor + 1; int64(len(all.Items)) < o.Last; {
		p, err := l.page(ctx, o.Filter, "newest", at, min(o.Last-int64(len(all.Items)), pageSize))
		if err != nil {
			return cursor, err
		}
		all.Items, all.Batches, at = append(all.Items, p.Items...), append(all.Batches, p.Batches...), p.next
		if !p.More {
			break
		}
	}
	slices.Reverse(all.Items)
	return cursor, all.each(o, new(record.Inheritance), yield)
}

// each hands records to yield, and before them those that they inherit from, where
// somebody asks for these.
func (p *page) each(o export.TailOptions, inherited *record.Inheritance, yield func(int64, []byte) error) error {
	batches := map[string][]byte{}
	for _, batch := range p.Batches {
		r, err := record.Parse(batch)
		if err != nil {
			return err
		}
		batches[r.ID] = batch
	}
	for _, line := range p.Items {
		sequence, err := sequenceOf(line)
		if err == nil && o.Inherited != nil {
			err = lacks(o, inherited, line, batches)
		}
		if err == nil {
			err = yield(sequence, line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func lacks(o export.TailOptions, inherited *record.Inheritance, line []byte, batches map[string][]byte) error {
	id, err := inherited.MissingBatch(line)
	if err != nil || id == "" {
		return err
	}
	r, err := record.Resolve(line, record.Record{Line: batches[id]})
	if err != nil {
		return err
	}
	return o.Inherited(id, r.Batch)
}

func sequenceOf(line []byte) (int64, error) {
	r, err := record.Parse(line)
	if err == nil && r.Sequence > math.MaxInt64 {
		err = fmt.Errorf("the server names a record %d, and no log has so many", r.Sequence)
	}
	return int64(r.Sequence), err
}

// Tail hands records to yield in order, as [export.Tail] does: those after
// o.After, and while it follows those that come. A server that is not there for a
// moment is asked again.
func (l *Log) Tail(ctx context.Context, o export.TailOptions, yield func(sequence int64, line []byte) error) (cursor int64, err error) {
	cursor = o.After
	inherited := new(record.Inheritance)
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
			if err := p.each(o, inherited, yield); err != nil {
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
