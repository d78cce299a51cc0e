package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/visible"
)

// NewTransport is the way to a PDP elsewhere. Many questions go to one address at once, so many connections are kept.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256
	return t
}

// client is what the clients of the PDP have in common, for all tenants.
func (c PDPConfig) client(d Deps) (address string, options []authzenclient.Option, err error) {
	options = []authzenclient.Option{
		authzenclient.WithTimeout(c.Timeout), authzenclient.WithRetries(0),
		authzenclient.WithBreaker(int(c.Breaker.Failures), c.Breaker.CoolDown), authzenclient.WithClock(d.Now, nil),
		authzenclient.WithHTTPClient(&http.Client{Transport: tracing{d.Transport}}),
	}
	switch {
	case c.Embedded != nil && d.Transport == nil:
		return "", nil, errors.New("pdp.embedded: nobody has made the PDP")
	case c.Embedded != nil:
		return EmbeddedURL, append(options, authzenclient.WithSameProcess()), nil
	case c.KeyFile != "":
		key := &keyFile{path: c.KeyFile, now: d.Now, logger: d.Logger}
		if _, err := key.read(); err != nil { // every request would be refused
			return "", nil, fmt.Errorf("pdp.key_file: %w", err)
		}
		options = append(options, authzenclient.WithToken(key.token))
	}
	return c.URL, options, nil
}

// EmbeddedURL is the address of a PDP in this process, and the issuer and audience of its tokens. Nothing is sent there.
const EmbeddedURL = "http://localhost"

// keyFile is a secret in a file, read again now and then: a change needs no signal.
type keyFile struct {
	path   string
	now    func() time.Time
	logger *slog.Logger // gets the reason why the file is of no use: callers do not log it

	mu    sync.Mutex
	value string
	until time.Time
	wrong string // why the file was of no use when it was last read
}

// fresh is for how long a file is believed to be as it was.
const fresh = time.Second

// token is the secret. A file that cannot be read is an error, and never no secret.
func (f *keyFile) token(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now().Before(f.until) {
		return f.value, nil
	}
	value, err := f.read()
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	switch {
	case wrong == f.wrong: // it is said once, and not with each request
	case wrong != "":
		f.logger.Error("every request is refused: pdp.key_file cannot be used: " + wrong)
	default:
		f.logger.Info("pdp.key_file can be used again")
	}
	f.wrong = wrong
	if err != nil {
		return "", err
	}
	f.value, f.until = value, f.now().Add(fresh)
	return value, nil
}

// read reads the file. Its errors have nothing of the secret.
func (f *keyFile) read() (string, error) {
	text, err := plainfile.ReadPrivate(f.path, 4096)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" || strings.ContainsAny(value, " \t\r\n") {
		return "", fmt.Errorf("%s holds no key: write the key, and nothing else, on one line", f.path)
	}
	return value, nil
}

// tracing carries requests to the PDP by another transport, with the trace that they belong to.
type tracing struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t tracing) RoundTrip(r *http.Request) (*http.Response, error) {
	if trace.SpanContextFromContext(r.Context()).IsValid() {
		r = r.Clone(r.Context())
		propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	}
	return t.next.RoundTrip(r)
}

func newDriftRecord(c *authzenclient.Client) func(context.Context, link.Drift, string) error {
	return func(ctx context.Context, found link.Drift, id string) error {
		change, known := recorded[found.Change]
		d := evaluation.Drift{Server: found.Server, Tool: found.Tool, Change: change, With: found.With, Locked: found.Locked, Found: found.Found}
		if !known {
			d.Change, d.Parts = evaluation.DriftChanged, []string{string(found.Change)}
		}
		return worded(approvals.RecordDrift(ctx, c, id, d))
	}
}

// worded is what an error of the client is in the log: the status, and what the PDP says of it.
func worded(err error) error {
	e, ok := errors.AsType[*authzenclient.Error](err)
	switch {
	case ok && e.Status != 0:
		return fmt.Errorf("%d %.300s", e.Status, visible.Quoted(e.Detail))
	case ok && (e.Kind == authzenclient.Unreachable || e.Kind == authzenclient.TimedOut || e.Kind == authzenclient.Cancelled):
		return errors.New("there is no answer")
	}
	return err
}

// recorded are the kinds of change in the words of the PDP. A kind without a word is a part of the definition.
var recorded = map[lock.Kind]evaluation.DriftChange{
	lock.NewServer: evaluation.DriftNew, lock.NewTool: evaluation.DriftNew,
	lock.GoneServer: evaluation.DriftGone, lock.GoneTool: evaluation.DriftGone,
	lock.Renamed: evaluation.DriftRenamed, lock.Swapped: evaluation.DriftSwapped,
	lock.Instructions: evaluation.DriftInstructions, link.MoreDrifts: evaluation.DriftMore,
}
