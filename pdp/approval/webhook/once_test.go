package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOnce makes one attempt, and takes nothing but a receiver's yes for one.
func TestOnce(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 204, 301, 400, 401, 410, 429, 500, 503} {
		i := new(inbox)
		i.Server = httptest.NewServer(i.handler([]http.HandlerFunc{answers(status), answers(200)}))
		defer i.Close()
		w := sends(t, i.URL, loopback)
		err := w.Once(t.Context(), "msg_1", []byte(body))
		if (err == nil) != (status < 300) {
			t.Errorf("%d gives %v", status, err)
		}
		if n := len(i.deliveries()); n != 1 {
			t.Errorf("%d: %d requests", status, n)
		}
	}
	w := sends(t, "http://127.0.0.1:1", loopback)
	if err := w.Once(t.Context(), "msg_1", []byte(body)); err == nil {
		t.Error("nobody is there, and the message is taken")
	}
	if err := w.Once(t.Context(), "no id", []byte(body)); err == nil {
		t.Error("an id with a space is one")
	}
}
