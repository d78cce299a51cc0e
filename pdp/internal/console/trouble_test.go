package console_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// coreTrouble is an API that answers some paths as it is told, once it is.
type coreTrouble struct {
	http.RoundTripper

	mu     sync.Mutex
	path   string // the end of the paths
	status int
}

// What a troubled API does in place of an answer.
const (
	coreAway  = -1
	coreNever = -2
)

// answers has it answer paths with an end by a status, or not at all. By 0 it is the API as it is.
func (a *coreTrouble) answers(end string, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.path, a.status = end, status
}

func (a *coreTrouble) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	end, status := a.path, a.status
	a.mu.Unlock()
	if !strings.HasSuffix(r.URL.Path, end) {
		status = 0
	}
	switch status {
	case 0:
		return a.RoundTripper.RoundTrip(r)
	case coreAway:
		return nil, errors.New("SECRET: it is away")
	case coreNever:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(`{"detail":"SECRET"}`))}, nil
}
