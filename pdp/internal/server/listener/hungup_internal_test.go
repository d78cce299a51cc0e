package listener

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// A connection that is pushed out ends the requests on it.
func TestHungUpEndsRequests(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"} {
		synctest.Test(t, func(t *testing.T) { hungUpEndsRequest(t, request) })
	}
}

func hungUpEndsRequest(t *testing.T, request string) {
	on := pipes{make(chan net.Conn), make(chan struct{})}
	connections := NewConnections(4, func() {})
	asked, ended := make(chan Carrier, 1), make(chan error, 1)
	server := HTTPServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- CarrierOf(r.Context())
		<-r.Context().Done()
		ended <- r.Context().Err()
	}), connections, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- (*Certificates)(nil).Serve(server, on) }()
	client := on.dial()
	send(t, client, request)
	by := <-asked
	connections.mu.Lock()
	connections.push(by.connection)
	connections.mu.Unlock()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v", err)
	}
	_, _ = client.Close(), server.Close()
	<-served
}
