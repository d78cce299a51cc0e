package authzenclient_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/pdptest/inside/server"
	"policy-service/policies"
)

// TestMain starts a server on the starter bundle for the examples, and sends what they ask of 127.0.0.1:8180, the address
// of `make run`, to its address.
func TestMain(m *testing.M) {
	s, err := server.New(server.Config{Program: server.Program{Source: pdp.FS(policies.Starter())}, Listen: "127.0.0.1:0"})
	if err == nil {
		err = s.Start(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == "127.0.0.1:8180" {
			addr = s.Addr()
		}
		return dial(ctx, network, addr)
	}
	http.DefaultTransport = transport
	code := m.Run()
	_ = s.Stop(context.Background())
	os.Exit(code)
}
