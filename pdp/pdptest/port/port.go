// Package port makes no promise: it is for the tests of this module alone. It has addresses for what listens later, or
// again: for programs that cannot choose one, and servers that come back.
package port

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
)

// Ports from first on, below those that a system gives to connections and to listeners without one: nobody gets one of these by
// chance after it was found free here.
const (
	first = 20_000
	count = 12_000
)

// Processes begin apart, so that two that look at the same time do not find the same.
var next = func() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(rand.Uint32N(count))
	return n
}()

// On is an address of an IP address that nothing listens at, and that no other caller in this process gets.
func On(t testing.TB, ip string) string {
	t.Helper()
	for range count {
		address := net.JoinHostPort(ip, strconv.Itoa(first+int(next.Add(1)%count)))
		l, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return address
	}
	t.Fatalf("all ports of %s are in use", ip)
	return ""
}

// Free is [On] the loopback address.
func Free(t testing.TB) string {
	t.Helper()
	return On(t, "127.0.0.1")
}
