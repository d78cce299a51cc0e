package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/visible"
)

// newDriftRecord returns a function that has the PDP record one drift, for the gateway's own tenant and with its own key.
func newDriftRecord(c PDPConfig, d Deps) func(context.Context, link.Drift, string) error {
	base := strings.TrimSuffix(c.URL, "/")
	if c.Embedded != nil {
		base = EmbeddedURL
	}
	if c.Tenant != evaluation.DefaultTenant {
		base += "/tenants/" + url.PathEscape(c.Tenant)
	}
	key := func(context.Context) (string, error) { return "", nil }
	if c.KeyFile != "" && c.Embedded == nil {
		key = (&keyFile{path: c.KeyFile, now: d.Now, logger: slog.New(slog.DiscardHandler)}).token
	}
	client := http.Client{Transport: d.Transport, Timeout: c.Timeout, CheckRedirect: notElsewhere}
	return func(ctx context.Context, drift link.Drift, id string) error {
		text, err := json.Marshal(recordOf(drift))
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/tools/drift", bytes.NewReader(text))
		if err != nil {
			return errors.New("pdp.url is no address")
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-ID", id)
		switch token, err := key(ctx); {
		case err != nil:
			return err
		case token != "":
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		if err != nil {
			return errors.New("there is no answer")
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode == http.StatusNoContent {
			return nil
		}
		var problem struct {
			Detail string `json:"detail"`
		}
		if text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<10)); err == nil {
			_ = json.Unmarshal(text, &problem) // the status says enough without it
		}
		return fmt.Errorf("%d %.300s", answer.StatusCode, visible.Quoted(problem.Detail))
	}
}

// notElsewhere follows no redirect: a redirect would take the key away from its origin.
func notElsewhere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// recorded are the kinds of change in the words of the PDP. A kind without a word is a part of the definition.
var recorded = map[lock.Kind]evaluation.DriftChange{
	lock.NewServer: evaluation.DriftNew, lock.NewTool: evaluation.DriftNew,
	lock.GoneServer: evaluation.DriftGone, lock.GoneTool: evaluation.DriftGone,
	lock.Renamed: evaluation.DriftRenamed, lock.Swapped: evaluation.DriftSwapped,
	lock.Instructions: evaluation.DriftInstructions, link.MoreDrifts: evaluation.DriftMore,
}

// recordOf is a drift in the words of the PDP.
func recordOf(found link.Drift) evaluation.Drift {
	change, known := recorded[found.Change]
	d := evaluation.Drift{Server: found.Server, Tool: found.Tool, Change: change, With: found.With, Locked: found.Locked, Found: found.Found}
	if !known {
		d.Change, d.Parts = evaluation.DriftChanged, []string{string(found.Change)}
	}
	return d
}
