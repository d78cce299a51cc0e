package etcdtest

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Connections from one port to two places are told apart: by the port alone a member that is cut off would be taken for another.
func TestOnePortOfTwoConnections(t *testing.T) {
	t.Parallel()
	sockets := socketsOfOnePort(t)
	for len(sockets) < 2 { // another connection has the port, too
		sockets = socketsOfOnePort(t)
	}
	if sockets[0] == "" || sockets[1] == "" || sockets[0] == sockets[1] {
		t.Errorf("the sockets are %q", sockets)
	}
}

func socketsOfOnePort(t *testing.T) (sockets []string) {
	t.Helper()
	dial := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(failed, err)
	}}
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		conn, err := dial.Dial("tcp", l.Addr().String())
		if errors.Is(err, syscall.EADDRINUSE) {
			return sockets
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		dial.LocalAddr = conn.LocalAddr()
		sockets = append(sockets, inodeOf(conn.LocalAddr(), conn.RemoteAddr()))
	}
	return sockets
}
