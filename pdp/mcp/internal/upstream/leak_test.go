package upstream_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// reveals reports whether a text has a part of a secret.
func reveals(text, secret string) bool {
	for at := 0; at+12 <= len(secret); at++ {
		if strings.Contains(text, secret[at:at+12]) {
			return true
		}
	}
	return false
}

// TestAProgramLeaksNoSecretOfItsEnvironment in a result, an error, a notification, a request of its own or on its standard
// error. Another variable stays as it is.
func TestAProgramLeaksNoSecretOfItsEnvironment(t *testing.T) {
	t.Parallel()
	token, key := "tok/0123456789+abcdef", "-----BEGIN KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\nAwEHBG0wawIBAQQgevZzL1gdAFr88hb2\n"
	var log syncBuffer
	var masked atomic.Int64
	u := newChild(t, "raw", func(o *upstream.CommandOptions) {
		o.Eras = []era.Era{era.Legacy}
		o.Env = map[string]string{"GORACE": quick["GORACE"], "API_TOKEN": token, "PRIVATE_KEY": key, "PATH": "/a/path/of/more/than/sixteen/bytes"}
		o.Secrets = []string{token, key}
		o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		o.Masked = func(places int) { masked.Add(int64(places)) }
	})
	s := open(t, u)
	st, err := s.Send(context.Background(), request("leak", `"progressToken":"p"`))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var all []string
	for done := false; !done; {
		m, err := st.Next()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(m.Append(nil)))
		if m.IsRequest() {
			if err := s.Notify(context.Background(), rpc.Message{ID: m.ID, Result: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		done = m.IsResponse()
	}
	for n, want := range []string{`"message":"[masked]"`, `"message":"aXQgaXMg[masked]`, `{\"API_TOKEN\":\"[masked]\",\"PRIVATE_KEY\":\"[masked]\"}`} {
		if n >= len(all) || !strings.Contains(all[n], want) {
			t.Fatalf("%q", all)
		}
	}
	_, m, err := send(s, request("fail", ""))
	if err != nil || string(m.Error) != `{"code":-32603,"message":"no [masked]","data":[ 1.0, "\u00e9" ]}` {
		t.Errorf("%s %v", m.Error, err)
	}
	if n := masked.Load(); n < 5 {
		t.Errorf("%d were counted", n)
	}
	if got, err := textOf(s, "environ"); err != nil || !strings.Contains(got, "/a/path/of/more/than/sixteen/bytes") || reveals(got, token) {
		t.Errorf("%q %v", got, err)
	}
	if err := u.Close(); err != nil { // all that it wrote is in the log
		t.Fatal(err)
	}
	if said := log.String(); !strings.Contains(said, "the token is [masked]") || !strings.Contains(said, "the key is ") || reveals(said, token) || reveals(said, "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49") {
		t.Error(said)
	}
}

// TestAServerLeaksNoCredentialOfTheGateway: not the one that it was shown with the request, and not the one before.
func TestAServerLeaksNoCredentialOfTheGateway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "header")
	write := func(value string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	basic := base64.StdEncoding.EncodeToString([]byte("gateway:correct-horse-battery"))
	for _, e := range []era.Era{era.Modern, era.Legacy} {
		var before string
		server := newStub(t, e, func(w http.ResponseWriter, r *http.Request, id string) {
			shown := r.Header.Get("Authorization")
			_, password, _ := r.BasicAuth()
			kept := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not %s, %s","data":{"before":"%s", "kept":1.0}}}`, id, shown, password, before)
			before = shown
			if r.Header.Get("X-Stream") != "" || e == era.Modern {
				w.Header().Set("Content-Type", "text/event-stream")
				for _, piece := range []string{event(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + shown + `"}}`), "data: " + kept[:len(kept)/2], kept[len(kept)/2:] + "\n\n"} {
					_, _ = w.Write([]byte(piece))
					_ = http.NewResponseController(w).Flush()
				}
				return
			}
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(kept))
		})
		write("Bearer first/token+0123456789")
		c := upstream.NewHeaderFile(upstream.HeaderFile{Path: file})
		var masked atomic.Int64
		s := open(t, reach(t, server.URL, func(o *upstream.HTTPOptions) {
			o.Credentials, o.Eras, o.Timeout = c, []era.Era{e}, 20*time.Second
			o.Masked = func(places int) { masked.Add(int64(places)) }
		}))
		for _, value := range []string{"Bearer first/token+0123456789", "Bearer second-token-0123456789", "Basic " + basic} {
			write(value)
			notes, m, err := send(s, call(s, "x", "{}"))
			if err != nil {
				t.Fatal(err)
			}
			said := string(m.Append(nil))
			for _, note := range notes {
				said += string(note.Append(nil))
			}
			if !strings.Contains(said, "[masked]") || !strings.Contains(said, `, "kept":1.0}`) {
				t.Error(said)
			}
			for _, secret := range []string{"first/token+0123456789", "second-token-0123456789", basic, "correct-horse-battery"} {
				if reveals(said, secret) {
					t.Errorf("%s %s is left in %s", e, secret, said)
				}
			}
		}
		if masked.Load() < 6 {
			t.Errorf("%d were counted", masked.Load())
		}
	}
}
