package remote

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/report"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
)

// Show finds a record by its id, with the policies that decided it, as far as the
// caller may see them.
func (l *Log) Show(ctx context.Context, id string) (segment.Shown, error) {
	d, err := l.Decision(ctx, id)
	shown := d.Shown
	if err != nil || shown.Record.Bundle == "" {
		return shown, err
	}
	shown.Files, err = l.bundle(ctx, shown.Record.Bundle)
	return shown, err
}

// proved is a record as a server answers with it.
type proved struct {
	Record   jsontext.Value `json:"record"`
	Sequence uint64         `json:"sequence"`
	LeafHash string         `json:"leaf_hash"`
}

func (p *proved) record() (record.Record, error) {
	leaf := tlog.RecordHash(p.Record)
	if leaf.String() != p.LeafHash {
		return record.Record{}, errors.New("the record is not the one that its hash is of: something on the way altered it")
	}
	return record.Record{Sequence: p.Sequence, Line: p.Record, Leaf: leaf}, nil
}

func recordPath(id string) string { return "/v1/decisions/" + url.PathEscape(id) }

// InForce is the bundle that was loaded last, by the log. It has no digest if no record of that may be seen, as by a caller that may
// not see all tenants, and no files if they are not kept.
func (l *Log) InForce(ctx context.Context) (digest string, files map[string][]byte, err error) {
	got, err := l.page(ctx, record.Filter{Event: format.EventBundleLoaded}, "newest", -1, 1)
	if err != nil || len(got.Items) == 0 {
		return "", nil, err
	}
	r, err := record.Parse(got.Items[0])
	if err != nil {
		return "", nil, err
	}
	if digest, err = r.NamedBundle(); err != nil || digest == "" {
		return "", nil, err
	}
	files, err = l.bundle(ctx, digest)
	return digest, files, err
}

// bundle is nil for a bundle that is not kept.
func (l *Log) bundle(ctx context.Context, digest string) (map[string][]byte, error) {
	type answer struct {
		Complete bool         `json:"complete"`
		Files    report.Files `json:"files"`
	}
	got, err := httpclient.GetJSON[answer](ctx, l.server, "/v1/bundles/"+url.PathEscape(digest), nil, bundleBody, "bundle")
	if httpclient.StatusOf(err) == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if got.Complete && digestOf(got.Files) != digest { // a part of the files does not have the digest
		return nil, errors.New("the files of the bundle are not those that its digest is of: something on the way altered them")
	}
	return got.Files, nil
}

func digestOf(files map[string][]byte) string {
	digest, err := dirhash.Hash1(slices.Collect(maps.Keys(files)), func(name string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(string(files[name]))), nil
	})
	if err != nil {
		return ""
	}
	return digest
}

// Proof is the text of the proof of a record, also if its content is gone.
func (l *Log) Proof(ctx context.Context, id string) ([]byte, error) {
	return l.server.Get(ctx, "/v1/log/records/"+url.PathEscape(id)+"/proof", nil, smallBody)
}

// Prove writes a record with the proof that it is in the log, which verify accepts
// alone.
func (l *Log) Prove(ctx context.Context, w io.Writer, id string) error {
	return passed(w)(l.server.Get(ctx, recordPath(id)+"/proof", nil, recordBody))
}

// Checkpoint is the newest signed checkpoint.
func (l *Log) Checkpoint(ctx context.Context) ([]byte, error) {
	return l.server.Get(ctx, "/v1/log/checkpoint", nil, smallBody)
}

// Consistency writes the proof that the log of today continues the one that an
// older checkpoint was signed for.
func (l *Log) Consistency(ctx context.Context, w io.Writer, old []byte) error {
	return passed(w)(l.server.Call(ctx, httpclient.Call{
		Method: http.MethodPost, Path: "/v1/log/consistency", Sends: "text/plain", Body: old, Most: smallBody,
	}))
}

// passed writes an answer that came without an error.
func passed(w io.Writer) func([]byte, error) error {
	return func(body []byte, err error) error {
		if err == nil {
			_, err = w.Write(body)
		}
		return err
	}
}

// Stats counts the records that the caller sees.
func (l *Log) Stats(ctx context.Context) (report.Statistics, error) {
	return httpclient.GetJSON[report.Statistics](ctx, l.server, "/v1/log/stats", nil, recordBody, "count of records")
}

// Report is the answer to an auditor's first questions, of the records that the caller sees.
func (l *Log) Report(ctx context.Context, o report.Options) (report.Report, error) {
	query := timesOf(o.From, o.To)
	if o.By != "" {
		query.Set("by", o.By)
		query.Set("top", strconv.Itoa(o.Top))
		if o.Decision != "" {
			query.Set("decision", o.Decision)
		}
	}
	return httpclient.GetJSON[report.Report](ctx, l.server, "/v1/log/report", query, bundleBody, "report")
}

// Sample chooses decisions among those that the caller sees. The sample itself says how it is checked.
func (l *Log) Sample(ctx context.Context, o report.SampleOptions) (report.Sample, error) {
	query := timesOf(o.From, o.To)
	query.Set("n", strconv.Itoa(o.N))
	query.Set("seed", o.Seed)
	sample, err := httpclient.GetJSON[report.Sample](ctx, l.server, "/v1/log/sample", query, sampleBody, "sample")
	if httpclient.StatusOf(err) == http.StatusNotFound {
		err = report.ErrNoPopulation
	}
	return sample, err
}

func timesOf(from, to time.Time) url.Values {
	query := url.Values{}
	for name, at := range map[string]time.Time{"from": from, "to": to} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return query
}

// Keys are the public keys of all times, oldest first, as the server says. To verify the log, take a key from
// elsewhere.
func (l *Log) Keys(ctx context.Context) ([]string, error) {
	body, err := l.server.Get(ctx, "/v1/log/keys", nil, smallBody)
	return strings.Fields(string(body)), err
}

// RotateKey has checkpoints signed with a new key, and returns its public half. A server that requires witnesses does so
// only anyway.
func (l *Log) RotateKey(ctx context.Context, anyway bool) (string, error) {
	query := url.Values{}
	if anyway {
		query.Set("anyway", "true")
	}
	body, err := l.server.Call(ctx, httpclient.Call{Method: http.MethodPost, Path: "/v1/log/keys", Query: query, Most: smallBody})
	return strings.TrimSpace(string(body)), err
}

// Redact removes the content of a record for good.
func (l *Log) Redact(ctx context.Context, id, reason string) error {
	body, err := json.Marshal(struct {
		Reason string `json:"reason"`
	}{reason})
	if err != nil {
		return err
	}
	_, err = l.server.Call(ctx, httpclient.Call{
		Method: http.MethodPost, Path: recordPath(id) + "/redaction", Sends: "application/json", Body: body, Most: smallBody, Want: http.StatusNoContent,
	})
	return err
}

// Redacted says what the redaction of an approval request removed: Records lost their content, Batches have what items
// inherit, and stay, and the words may stand Elsewhere.
type Redacted struct {
	Records   int      `json:"records"`
	Batches   []string `json:"batches"`
	Elsewhere []string `json:"elsewhere"`
}

// RedactApproval removes the words of an approval request, wherever the server keeps it. If end is set, one
// that waits or can be used is cancelled or revoked first.
func (l *Log) RedactApproval(ctx context.Context, id, reason string, end bool) (Redacted, error) {
	return httpclient.PostJSON[Redacted](ctx, l.server, "/v1/approvals/"+url.PathEscape(id)+"/redaction", struct {
		Reason string `json:"reason"`
		End    bool   `json:"end"`
	}{reason, end}, smallBody, "account of a redaction")
}
