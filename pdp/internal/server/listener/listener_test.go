package listener_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/internal/server/listener"
)

// A panic is logged for everybody to see, and what strangers do to their connections is not.
func TestPanicIsLogged(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer // read once the server has ended
	server := listener.HTTPServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("on purpose") }),
		listener.NewConnections(10, func() {}), slog.New(slog.NewTextHandler(&said, nil)))
	on, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(on) }()
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+on.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(ask); err == nil {
		_ = response.Body.Close()
		t.Error("somebody got an answer")
	}
	if err := server.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	<-served
	if got := said.String(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "on purpose") {
		t.Errorf("the log has %q", got)
	}
}
