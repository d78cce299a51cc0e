package mcp

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// watched is a way to the PDP on which everything that is sent is seen. Without a next nothing is sent.
type watched struct {
	next http.RoundTripper
	path string
	body []byte
}

var errNobodyAsked = errors.New("nobody is asked")

// RoundTrip implements [http.RoundTripper].
func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return nil, err
	}
	w.path, w.body = r.URL.Path, text
	if w.next == nil {
		return nil, errNobodyAsked
	}
	sent := r.Clone(r.Context())
	sent.Body = io.NopCloser(strings.NewReader(string(text)))
	return w.next.RoundTrip(sent)
}
