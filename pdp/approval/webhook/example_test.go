package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"policy-service/pdp/approval/webhook"
)

// A receiver and a sender that share a secret.
func Example() {
	dir, err := os.MkdirTemp("", "webhook")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "webhook.key") // openssl rand -hex 32 > webhook.key
	if err := os.WriteFile(file, []byte("5a1f0e7c93d24b68a0b1c2d3e4f50617\n"), 0o600); err != nil {
		log.Fatal(err)
	}

	key, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	key = bytes.TrimSuffix(key, []byte("\n"))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hooks/policy", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || webhook.Verify(key, r.Header, body, time.Now(), 5*time.Minute) != nil {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		fmt.Printf("%s: %s\n", r.Header.Get("Webhook-Id"), body)
	})
	receiver := httptest.NewServer(mux)
	defer receiver.Close()

	sender, err := webhook.New([]webhook.Config{{URL: receiver.URL + "/hooks/policy", SecretFile: file, Allow: []string{"127.0.0.1"}}}, webhook.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := sender.Send(context.Background(), "msg_1", "approval.filed", []byte(`{"type":"approval.filed"}`)); err != nil {
		log.Fatal(err)
	}
	// Output: msg_1: {"type":"approval.filed"}
}
