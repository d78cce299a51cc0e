package port_test

import (
	"net"
	"testing"

	"policy-service/pdp/pdptest/port"
)

// What listens without a port of its own never takes one that was found here, however many listen.
func TestFree(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for range 200 {
		address := port.Free(t)
		if found[address] {
			t.Fatalf("%s was found twice", address)
		}
		found[address] = true
	}
	for range 2000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if found[l.Addr().String()] {
			t.Fatalf("%v was taken by chance", l.Addr())
		}
	}
	for address := range found {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
