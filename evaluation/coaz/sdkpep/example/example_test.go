package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/pdptest"
)

// issuer signs tokens.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
		case "/keys":
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

// token is a good one of alice's, with changes; nil takes a claim away.
func (i *issuer) token(t *testing.T, resource string, changes map[string]any, header map[jose.HeaderKey]any) string {
	t.Helper()
	claims := map[string]any{"iss": i.URL, "aud": resource, "sub": "alice", "client_id": "agent", "exp": time.Now().Add(time.Hour).Unix(), "amount": json.Number("9007199254740993")}
	for name, v := range changes {
		if claims[name] = v; v == nil {
			delete(claims, name)
		}
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, payload, header)
}

// sign makes a token of a payload, whatever it holds.
func sign(t *testing.T, key jose.SigningKey, payload []byte, header map[jose.HeaderKey]any) string {
	t.Helper()
	options := &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{"typ": "at+jwt", "kid": "k"}}
	for name, v := range header {
		options.ExtraHeaders[name] = v
	}
	signer, err := jose.NewSigner(key, options)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// running is the example beside a real PDP.
type running struct {
	url, resource string
	issuer        *issuer
	mu            sync.Mutex
	reported      []string
}

func start(t *testing.T, change func(*settings)) *running {
	t.Helper()
	r := &running{issuer: newIssuer(t)}
	pdp := pdptest.Start(t, pdptest.Bundle(map[string]string{
		"a.cedar": `@id("alice") permit(principal == identity::"alice", action, resource);
@id("older") permit(principal == user::"alice", action, resource);
@id("kept") forbid(principal, action == Action::"get_customer", resource == customer::"kept");
@id("open") forbid(principal, action == Action::"close_account", resource == account::"open");`,
	}))
	report := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		text, err := io.ReadAll(q.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
		r.mu.Lock()
		r.reported = append(r.reported, string(text))
		r.mu.Unlock()
	}))
	t.Cleanup(report.Close)
	s := settings{listen: "127.0.0.1:0", issuer: r.issuer.URL, pdp: pdp.URL, pdpTimeout: time.Minute, report: report.URL, addrFile: filepath.Join(t.TempDir(), "addr")}
	if change != nil {
		change(&s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- serve(ctx, s, slog.New(slog.DiscardHandler), func(addr string) { ready <- addr }) }()
	select {
	case addr := <-ready:
		r.url = "http://" + addr + "/mcp"
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if text, err := os.ReadFile(s.addrFile); err != nil || "http://"+strings.TrimSpace(string(text))+"/mcp" != r.url {
		t.Errorf("the address is %s, %v", text, err)
	}
	r.resource = r.url
	return r
}

func (r *running) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.reported
	r.reported = nil
	return told
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// The SDK's client speaks to it in the newest era.
func TestExample(t *testing.T) {
	t.Parallel()
	r := start(t, func(*settings) {})
	token := r.issuer.token(t, r.resource, nil, nil)
	transport := &mcp.StreamableClientTransport{Endpoint: r.url, HTTPClient: &http.Client{Transport: bearer(token)}, MaxRetries: -1}
	c, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.InitializeResult().ProtocolVersion; got != "2026-07-28" {
		t.Errorf("this is %s", got)
	}
	tools, err := c.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 4 || !strings.Contains(text(t, tools), `"x-authzen-mapping":{"evaluation"`) {
		t.Errorf("%s, %v", text(t, tools), err)
	}
	r.told()
	for _, test := range []struct {
		tool, arguments string
		code            int64
	}{
		{"get_customer", `{"id":"c"}`, 0}, {"get_customer", `{"id":"kept"}`, -32001}, {"get_local_weather", `{"zip":"1"}`, 0}, {"get_customer", `{}`, -32602},
		{"copy_object", `{"source":"a","destination":"b"}`, 0}, {"close_account", `{"id":"c"}`, 0}, {"close_account", `{"id":"open"}`, -32401},
	} {
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: test.tool, Arguments: json.RawMessage(test.arguments)})
		var wire *jsonrpc.Error
		if errors.As(err, &wire) != (test.code != 0) || wire != nil && wire.Code != test.code || wire == nil && err != nil {
			t.Errorf("%s %s: %v", test.tool, test.arguments, err)
		}
		if told := r.told(); (len(told) == 1) != (test.code == 0) || len(told) == 1 && !strings.Contains(told[0], `"name":"`+test.tool+`"`) {
			t.Errorf("%s %s: reported %v", test.tool, test.arguments, told)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A session of the older era, with the server's own id for it; another's token gets nothing there.
func TestExampleLegacy(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	token := r.issuer.token(t, r.resource, nil, nil)
	send := func(token, session, body string) (*http.Response, string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": session} {
			if value != "" {
				q.Header.Set(name, value)
			}
		}
		w, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(w.Body)
		_ = w.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		return w, string(text)
	}
	w, answer := send(token, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	session := w.Header.Get("Mcp-Session-Id")
	if session == "" || !strings.Contains(answer, `"protocolVersion":"2025-11-25"`) {
		t.Fatalf("no session: %s", answer)
	}
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_local_weather","arguments":{}}}`
	send(token, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if _, answer := send(token, session, call); !strings.Contains(answer, "ran get_local_weather") || len(r.told()) != 1 {
		t.Errorf("called: %s", answer)
	}
	if w, _ := send(r.issuer.token(t, r.resource, map[string]any{"sub": "bob"}, nil), session, call); w.StatusCode != http.StatusForbidden || len(r.told()) > 0 {
		t.Errorf("another's session: %d", w.StatusCode)
	}
	if w, answer := send(token, "", strings.Replace(call, `"id":2,`, ``, 1)); w.StatusCode != http.StatusBadRequest || len(r.told()) > 0 {
		t.Errorf("a call without an id: %d %s", w.StatusCode, answer)
	}
}

// Tokens that are not good are 401, and nobody is asked about them.
func TestExampleTokens(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	change := func(changes map[string]any) string { return r.issuer.token(t, r.resource, changes, nil) }
	header := func(h map[jose.HeaderKey]any) string { return r.issuer.token(t, r.resource, nil, h) }
	good := change(nil)
	parts := strings.Split(good, ".")
	other := newIssuer(t)
	payload, err1 := base64.RawURLEncoding.DecodeString(parts[1])
	public, err2 := x509.MarshalPKIXPublicKey(r.issuer.key.Public())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	signing := jose.SigningKey{Algorithm: jose.ES256, Key: r.issuer.key}
	for name, test := range map[string]struct {
		token string
		good  bool
	}{
		"good":             {good, true},
		"aud, of several":  {change(map[string]any{"aud": []string{"https://other.example.com", r.resource}}), true},
		"typ JWT":          {header(map[jose.HeaderKey]any{"typ": "JWT"}), true},
		"expired":          {change(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}), false},
		"for ever":         {change(map[string]any{"exp": nil}), false},
		"not yet":          {change(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), false},
		"another audience": {change(map[string]any{"aud": "https://other.example.com"}), false},
		"longer audience":  {change(map[string]any{"aud": r.resource + "/x"}), false},
		"no audience":      {change(map[string]any{"aud": nil}), false},
		"another issuer":   {change(map[string]any{"iss": "https://other.example.com"}), false},
		"other keys":       {other.token(t, r.resource, map[string]any{"iss": r.issuer.URL}, nil), false},
		"a logout token":   {header(map[jose.HeaderKey]any{"typ": "logout+jwt"}), false},
		"unsigned":         {parts[0] + "." + parts[1] + ".", false},
		"none":             {"eyJhbGciOiJub25lIn0." + parts[1] + ".", false},
		"of another's":     {parts[0] + "." + strings.Split(change(map[string]any{"sub": "bob"}), ".")[1] + "." + parts[2], false},
		"the public key":   {sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: public}, payload, nil), false},
		"a claim once":     {sign(t, signing, payload, nil), true},
		"a claim twice":    {sign(t, signing, append([]byte(`{"sub":"bob",`), payload[1:]...), nil), false},
		"garbage":          {"garbage", false},
		"a claim too odd":  {change(map[string]any{"__entity": "x"}), false},
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+test.token)
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Accept", "application/json, text/event-stream")
		w, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(w.Body)
		_ = w.Body.Close()
		if err != nil || (w.StatusCode == 200) != test.good || !test.good && (w.StatusCode != 401 || !strings.Contains(w.Header.Get("WWW-Authenticate"), "/.well-known/oauth-protected-resource/mcp")) {
			t.Errorf("%s: %d %s", name, w.StatusCode, answer)
		}
	}
	w, err := http.Get(strings.TrimSuffix(r.url, "/mcp") + "/.well-known/oauth-protected-resource/mcp")
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := io.ReadAll(w.Body)
	_ = w.Body.Close()
	if err != nil || !strings.Contains(string(metadata), r.issuer.URL) || !strings.Contains(string(metadata), r.resource) {
		t.Errorf("metadata %s, %v", metadata, err)
	}
}

// What it cannot start with is exit code 2, and says what to try.
func TestExampleRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	odd := filepath.Join(dir, "odd.json")
	if err := os.WriteFile(odd, []byte(`{"tools":[{}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	needed := []string{"--issuer", "https://idp.example.com", "--pdp", "https://pdp.example.com", "--listen", "127.0.0.1:0"}
	for name, args := range map[string][]string{
		"nothing":         nil,
		"an unknown flag": {"--x"},
		"no PDP":          needed[:2],
		"plain PDP":       append(needed[:2:2], "--pdp", "http://pdp.example.com"),
		"no offer":        append(needed[:6:6], "--offer", filepath.Join(dir, "none")),
		"an odd offer":    append(needed[:6:6], "--offer", odd),
		"no key":          append(needed[:6:6], "--pdp-key-file", filepath.Join(dir, "none")),
		"no resource":     append(needed[:6:6], "--resource", "x"),
		"no tenant":       append(needed[:6:6], "--tenant", "../x"),
		"no address":      append(needed[:4:4], "--listen", "x"),
		"no addr-file":    append(needed[:6:6], "--addr-file", filepath.Join(dir, "none", "x")),
	} {
		var errors bytes.Buffer
		if code := run(t.Context(), args, &errors); code != 2 || errors.Len() < 20 {
			t.Errorf("%s: exit code %d, %s", name, code, &errors)
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	var errors bytes.Buffer
	if code := run(stopped, needed, &errors); code != 0 {
		t.Errorf("stopped: exit code %d, %s", code, &errors)
	}
}

// TestFlagsOnPage holds the table of the page to the flags.
func TestFlagsOnPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	new(settings).flags(io.Discard).VisitAll(func(f *flag.Flag) {
		n++
		if !strings.Contains(string(page), "| `--"+f.Name+"` |") {
			t.Errorf("the page has no line for --%s", f.Name)
		}
	})
	if rows := strings.Count(string(page), "| `--"); rows != n {
		t.Errorf("the page has %d lines of flags, and there are %d flags", rows, n)
	}
}
