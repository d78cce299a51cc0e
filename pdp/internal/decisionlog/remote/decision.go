package remote

import (
	"context"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
)

// The types of answers, and the kinds of records that readers tell apart.
type (
	Recorded   = record.Recorded
	Explained  = record.Explained
	Checkpoint = segment.Checkpoint
	Part       = record.Part
)

// The kinds.
const (
	KindDecision   = format.KindDecision
	KindPossible   = format.KindPossible
	KindSearch     = format.KindSearch
	KindApproval   = format.KindApproval
	KindCapability = format.KindCapability
	KindReceipt    = format.KindReceipt
	KindAdmin      = format.KindAdmin
)

// The parts that a policy can have in a decision.
const (
	Determining = record.Determining
	Overruled   = record.Overruled
	Erred       = record.Erred
	Near        = record.Near
)

// Decision is a record by its id, with its place in the log and the receipts about its obligations.
type Decision struct {
	segment.Shown
	Sequence uint64
	Receipts []record.Receipt
}

// Decision finds a record by its id.
func (l *Log) Decision(ctx context.Context, id string) (d Decision, err error) {
	type answer struct {
		proved
		Batch    *proved          `json:"batch"`
		Receipts []jsontext.Value `json:"receipts"`
	}
	got, err := httpclient.GetJSON[answer](ctx, l.server, recordPath(id), nil, recordBody, "record")
	if err != nil {
		return d, err
	}
	rec, err := got.record()
	var batch record.Record
	if err == nil && got.Batch != nil {
		batch, err = got.Batch.record()
	}
	d.LeafHash, d.Sequence = got.LeafHash, got.Sequence
	if err == nil {
		d.Record, err = record.Resolve(rec.Line, batch)
	}
	// A question of a batch has an id of its own, and no record: only that question is shown.
	if err == nil {
		err = d.SelectQuestion(id)
	}
	for _, line := range got.Receipts {
		r, wrong := record.Parse(line)
		if wrong != nil {
			return d, wrong
		}
		d.Receipts = append(d.Receipts, r.Receipt())
	}
	return d, err
}

// Explain says how a recorded decision came about, by the policies of then.
func (l *Log) Explain(ctx context.Context, id string) (record.Explained, error) {
	return httpclient.GetJSON[record.Explained](ctx, l.server, recordPath(id)+"/explain", nil, recordBody, "explanation")
}

// Signed is the newest checkpoint. Its signature is not verified.
func (l *Log) Signed(ctx context.Context) (segment.Checkpoint, error) {
	note, err := l.Checkpoint(ctx)
	if err != nil {
		return segment.Checkpoint{}, err
	}
	return segment.ParseCheckpoint(note, nil)
}

// Page is some records, each without its inherited parts.
type Page struct {
	Records []record.Recorded
	// Next is the cursor of the page after this one, if there are More records.
	Next string
	More bool
}

// Page asks for a page, by the parameters of the API.
func (l *Log) Page(ctx context.Context, query url.Values) (p Page, err error) {
	got, err := httpclient.GetJSON[page](ctx, l.server, "/v1/decisions", query, recordBody, "page of records")
	if err != nil {
		return p, err
	}
	p.Next, p.More = got.Next, got.More
	for _, line := range got.Items {
		r, err := record.Parse(line)
		if err != nil {
			return p, err
		}
		p.Records = append(p.Records, *r)
	}
	return p, nil
}

// Over is a reader of the log of a server that something else asks, too.
func Over(server *httpclient.Server) *Log { return &Log{server} }
