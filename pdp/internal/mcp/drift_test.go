package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/obligations"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/mcptest"
)

var driftBundle = map[string]string{
	"all.cedar":              `@id("all") permit (principal, action, resource);`,
	"bundle.yaml":            "allow_trivial: true\n",
	"tenants/acme/all.cedar": `@id("acme") permit (principal, action, resource);`,
}

// clientsOf are the clients of a PDP that a gateway has, of its own tenant and of acme.
func clientsOf(t *testing.T, c PDPConfig, d Deps) map[string]*authzenclient.Client {
	t.Helper()
	c.Timeout = time.Minute
	whole := Config{PDP: c, Resource: "http://127.0.0.1:8181/mcp", Identity: IdentityConfig{Issuers: []IssuerConfig{{Tenant: "acme"}}}}
	Form.SetDefaults(&whole)
	d.Transport = cmp.Or(d.Transport, http.DefaultTransport)
	_, clients, err := whole.asker(d.withDefaults(), obligations.Handlers{}, nil)
	mcptest.Must(t, err)
	return clients
}

// TestTenantsShareACircuit: a PDP that does not answer about one tenant is asked about no other.
func TestTenantsShareACircuit(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(broken.Close)
	clients := clientsOf(t, PDPConfig{URL: broken.URL}, Deps{})
	entity := evaluation.Entity{Type: "user", ID: "alice"}
	ask := func(tenant string) error {
		return clients[tenant].Evaluate(t.Context(), evaluation.Request{Subject: entity, Action: evaluation.Action{Name: "read"}, Resource: entity}).Err()
	}
	for range 5 {
		_ = ask("acme")
	}
	var e *authzenclient.Error
	if err := ask(evaluation.DefaultTenant); !errors.As(err, &e) || e.Kind != authzenclient.Open {
		t.Errorf("the other tenant: %v", err)
	}
}

// driftRecord records drifts at a PDP, for the gateway's own tenant.
func driftRecord(t *testing.T, c PDPConfig, d Deps) func(context.Context, link.Drift, string) error {
	t.Helper()
	return newDriftRecord(clientsOf(t, c, d)[cmp.Or(c.Tenant, evaluation.DefaultTenant)])
}

// Requests for tools are kept for their tenant, and found by no other. Of two that put a value in the place of one, one succeeds.
func TestRequestsAreOfTheirTenant(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, pdptest.Bundle(driftBundle), func(c *server.Config) { c.Data = mcptest.QuickDir(t) })
	s := requestStore(clientsOf(t, PDPConfig{URL: pdp.URL}, Deps{}))
	value := approvals.ToolRequest{Open: true, Seconds: 60, Text: "sealed"}
	revision, err := s.Put(t.Context(), "acme", "id-1", value)
	mcptest.Must(t, err)
	if _, err := s.Put(t.Context(), "acme", "id-1", value); !errors.Is(err, people.ErrChanged) {
		t.Errorf("a second value in the place of none: %v", err)
	}
	for tenant, want := range map[string]string{"acme": "[id-1]", evaluation.DefaultTenant: "[]"} {
		ids, err := s.Open(t.Context(), tenant)
		if fmt.Sprint(ids) != want || err != nil {
			t.Errorf("%s: %q wait, %v", tenant, ids, err)
		}
	}
	if got, err := s.Get(t.Context(), "acme", "id-1"); err != nil || got.Text != value.Text || got.Revision != revision {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Get(t.Context(), evaluation.DefaultTenant, "id-1"); !errors.Is(err, people.ErrNoRequest) {
		t.Errorf("of another tenant: %v", err)
	}
}

func driftsIn(t *testing.T, data string) (found []record.Recorded) {
	t.Helper()
	r, err := segment.OpenReader(data)
	mcptest.Must(t, err)
	defer func() { _ = r.Close() }()
	for line, err := range r.Records(t.Context(), 0, r.Size()) {
		mcptest.Must(t, err)
		one, err := record.Parse(line.Line)
		mcptest.Must(t, err)
		if one.Event == format.EventToolDrift {
			found = append(found, *one)
		}
	}
	return found
}

func driftOf(t *testing.T, r record.Recorded) (d evaluation.Drift) {
	t.Helper()
	mcptest.Must(t, json.Unmarshal(r.Details, &d))
	return d
}

// A drift is on record once, of the gateway's tenant and key, whatever a server calls its tools.
func TestDriftIsRecorded(t *testing.T) {
	t.Parallel()
	data := mcptest.QuickDir(t)
	pdp := pdptest.Start(t, pdptest.Bundle(driftBundle), func(c *server.Config) { c.Data = data })
	record := driftRecord(t, PDPConfig{URL: pdp.URL + "/", Tenant: "acme"}, Deps{})
	var want []evaluation.Drift
	for n, test := range []struct {
		found  link.Drift
		change evaluation.DriftChange
		parts  []string
	}{
		{link.Drift{Server: "jira", Tool: "reset_password", Change: "input_schema", Locked: "sha256:a", Found: "sha256:b"}, "changed", []string{"input_schema"}},
		{link.Drift{Server: "jira", Tool: `a\u000ab\u202e`, Change: "new_tool", Found: "sha256:c"}, "new", nil},
		{link.Drift{Server: "jira", Tool: "v", Change: "renamed", With: "w"}, "renamed", nil},
		{link.Drift{Server: "jira", Tool: "x", Change: "swapped", With: "y"}, "swapped", nil},
		{link.Drift{Server: "jira", Change: "instructions", Locked: "sha256:d", Found: "sha256:e"}, "instructions", nil},
		{link.Drift{Server: "jira", Change: "gone_server"}, "gone", nil},
		{link.Drift{Server: "jira", Tool: "z", Change: "gone_tool"}, "gone", nil},
		{link.Drift{Server: "jira", Change: "more"}, "more", nil},
	} {
		d := test.found
		mcptest.Must(t, record(t.Context(), d, fmt.Sprint(n)))
		want = append(want, evaluation.Drift{Server: d.Server, Tool: d.Tool, Change: test.change, With: d.With, Parts: test.parts, Locked: d.Locked, Found: d.Found})
	}
	mcptest.Must(t, pdp.Stop(context.Background()))
	var got []evaluation.Drift
	for n, r := range driftsIn(t, data) {
		got = append(got, driftOf(t, r))
		if r.Kind != format.KindAdmin || r.Tenant != "acme" || r.RequestID != fmt.Sprint(n) {
			t.Errorf("%+v", r)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The error of a PDP that does not record names the reason. A changed key file is read again.
func TestDriftIsNotRecorded(t *testing.T) {
	t.Parallel()
	data, file := mcptest.QuickDir(t), filepath.Join(t.TempDir(), "gateway.key")
	apiKeys, err := keys.Open(data)
	mcptest.Must(t, err)
	key := map[auth.Permission]string{}
	for _, may := range []auth.Permission{auth.Search, auth.Decide} {
		key[may], err = apiKeys.Add(keys.Spec{Name: string(may), Grant: auth.Grant{Permissions: []auth.Permission{may}}})
		mcptest.Must(t, err)
	}
	pdp := pdptest.Start(t, pdptest.Bundle(driftBundle), func(c *server.Config) { c.Data = data })
	clock, logs := time.Now(), bytes.Buffer{}
	mcptest.Must(t, os.WriteFile(file, []byte(key[auth.Search]+"\n"), 0o600))
	record := driftRecord(t, PDPConfig{URL: pdp.URL, KeyFile: file}, Deps{Now: func() time.Time { return clock }, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	fails := func(record func(context.Context, link.Drift, string) error, want string) {
		t.Helper()
		if err := record(t.Context(), link.Drift{Server: "jira", Change: "more"}, "1"); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("%v, and not %s", err, want)
		}
	}
	fails(record, "permission decide")
	mcptest.Must(t, os.Remove(file))
	clock = clock.Add(time.Minute)
	fails(record, "token")
	if !strings.Contains(logs.String(), "pdp.key_file cannot be used") || !strings.Contains(logs.String(), "gateway.key") {
		t.Errorf("the log does not say why: %s", &logs)
	}
	mcptest.Must(t, os.WriteFile(file, []byte(key[auth.Decide]+"\n"), 0o600))
	clock = clock.Add(time.Minute)
	mcptest.Must(t, record(t.Context(), link.Drift{Server: "jira", Change: "more"}, "2"))
	mcptest.Must(t, pdp.Stop(context.Background()))
	if all := driftsIn(t, data); len(all) != 1 || all[0].Caller != "key:decide" {
		t.Errorf("%+v", all)
	}
	fails(record, "there is no answer")
	other := httptest.NewServer(http.RedirectHandler(pdp.URL, http.StatusTemporaryRedirect))
	t.Cleanup(other.Close)
	fails(driftRecord(t, PDPConfig{URL: other.URL}, Deps{}), "307")
	strange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"detail":"` + strings.Repeat(`\u202e`, 1000) + `"}`))
	}))
	t.Cleanup(strange.Close)
	fails(driftRecord(t, PDPConfig{URL: strange.URL}, Deps{}), `404 \u202e`)
}

type driftInProcess struct{}

func (driftInProcess) Authenticate(*http.Request) (auth.Caller, error) {
	return auth.Caller{Name: "key:mcp-gateway", AllTenants: true, Permissions: []auth.Permission{auth.Decide}}, nil
}

// A PDP in the process records drifts if it keeps a log, and says so if it keeps none.
func TestDriftEmbedded(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", mcptest.QuickDir(t)} {
		pdp, err := server.New(server.Config{Data: data, Program: server.Program{
			Source: pdptest.Bundle(driftBundle), InProcess: true, Authenticator: driftInProcess{},
		}})
		mcptest.Must(t, err)
		mcptest.Must(t, pdp.Start(t.Context()))
		c := PDPConfig{Embedded: &EmbeddedConfig{Policies: t.TempDir(), Data: data}}
		err = driftRecord(t, c, Deps{Transport: pdp.Transport()})(t.Context(), link.Drift{Server: "jira", Change: "more"}, "1")
		mcptest.Must(t, pdp.Stop(context.Background()))
		if data == "" {
			if err == nil || !strings.Contains(err.Error(), "404") || !strings.Contains(err.Error(), "no decision log is kept here") {
				t.Errorf("%v", err)
			}
			continue
		}
		if got := driftsIn(t, data); len(got) != 1 || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
