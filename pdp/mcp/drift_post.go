package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/drift"
	"policy-service/pdp/mcp/internal/gate"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/visible"
)

// newDriftPost makes what sends one finding to the PDP, for the gateway's own tenant and with its own key.
func newDriftPost(c PDPConfig, d Deps) func(context.Context, driftReport) driftAnswer {
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
	return func(ctx context.Context, one driftReport) driftAnswer {
		text, err := json.Marshal(driftSaid(one.found))
		if err != nil {
			return driftAnswer{why: "it has no JSON form"}
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/tools/drift", bytes.NewReader(text))
		if err != nil {
			return driftAnswer{why: "pdp.url is no address"}
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-ID", one.id)
		switch token, err := key(ctx); {
		case err != nil:
			return driftAnswer{why: err.Error(), again: true}
		case token != "":
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		if err != nil {
			return driftAnswer{why: "there is no answer", again: true}
		}
		defer func() { _ = answer.Body.Close() }()
		return judgeDrift(answer)
	}
}

// notElsewhere follows no redirect: it is how a key would leave its origin.
func notElsewhere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// judgeDrift says what an answer means. A PDP that does not know the path will not soon, and what it cannot read it never
// will; all else may be other in a moment: a key gets a permission, a disk gets room.
func judgeDrift(answer *http.Response) driftAnswer {
	if answer.StatusCode == http.StatusNoContent {
		return driftAnswer{}
	}
	var problem struct {
		Detail string `json:"detail"`
	}
	if text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<10)); err == nil {
		_ = json.Unmarshal(text, &problem) // without it the status must do
	}
	a := driftAnswer{why: fmt.Sprintf("%d %s", answer.StatusCode, shortened(visible.Quoted(problem.Detail), 300)), again: true}
	switch answer.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		a.again = false
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.after = min(time.Duration(seconds)*time.Second, time.Hour)
	}
	return a
}

// driftSaid is a finding as the PDP takes it. A kind of change of which the PDP has no word is a part of the definition.
func driftSaid(found gate.Drift) evaluation.Drift {
	d := evaluation.Drift{Server: found.Server, Tool: found.Tool, With: found.With, Locked: found.Locked, Found: found.Found}
	switch change := lock.Kind(found.Change); change {
	case lock.NewServer, lock.NewTool:
		d.Change = evaluation.DriftNew
	case lock.GoneServer, lock.GoneTool:
		d.Change = evaluation.DriftGone
	case lock.Renamed:
		d.Change = evaluation.DriftRenamed
	case lock.Swapped:
		d.Change = evaluation.DriftSwapped
	case lock.Instructions:
		d.Change = evaluation.DriftInstructions
	case drift.More:
		d.Change = evaluation.DriftMore
	default:
		d.Change, d.Parts = evaluation.DriftChanged, []string{found.Change}
	}
	return d
}

// printable is a finding within the bounds of what the PDP takes, with nothing in it that cannot be seen: names of tools
// are what a stranger wrote.
func printable(found gate.Drift) gate.Drift {
	return gate.Drift{
		Server: shortened(visible.Text(found.Server), evaluation.DriftServer),
		Tool:   shortened(visible.Text(found.Tool), evaluation.DriftTool),
		Change: shortened(visible.Text(found.Change), evaluation.DriftPart),
		With:   shortened(visible.Text(found.With), evaluation.DriftTool),
		Locked: shortened(found.Locked, evaluation.DriftDigest),
		Found:  shortened(found.Found, evaluation.DriftDigest),
	}
}

// shortened is a text of at most so many bytes. One that was longer ends in an ellipsis.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
