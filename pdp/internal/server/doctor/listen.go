package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/listener"
)

// address is the address to listen on.
type address struct {
	*server.Config
	keys    keyList
	running bool // a server is running on the data directory
}

// Findings looks whether the address can be had. If a server is running on the data directory, it has the address.
func (a address) Findings(ctx context.Context) (found finding.List) {
	const check = "listen"
	if a.Program.InProcess {
		return nil
	}
	loopback, err := canListen(ctx, a.Config, a.Listen)
	if path, ok := listener.Socket(a.Listen); ok {
		if dir, err := os.Stat(filepath.Dir(path)); err == nil && dir.Mode()&0o002 != 0 {
			found.Bites(check, "put the socket into a directory that only the user of serve may write to",
				"every user of this machine can put a socket of its own at %s while serve does not run, and clients would believe it", path)
		}
	}
	credentials := a.keys.credentials(a.Config)
	const add = "policy-service keys add --data DIR --name NAME first, or set auth.jwt or auth.mtls"
	switch url := a.Published(); {
	case errors.Is(err, syscall.EADDRINUSE) && a.running:
		found.OK(check, "%s is in use, and a server is running on %s", a.Listen, a.Data)
	case errors.Is(err, syscall.EADDRINUSE):
		found.Bites(check, "give --listen another address, or end what has this one", "%s is in use, and no server is running on the log of this data directory", a.Listen)
	case err != nil:
		found.Bites(check, "give --listen an address of this machine, and a port above 1023 unless the process may have a lower one, or a socket in a directory that serve may write to", "%s cannot be listened on: %v", a.Listen, err)
	case !loopback && credentials && a.TLS.Terminated:
		found.Bites(check, "give the service a certificate of its own, or keep that network to the two of them",
			"%s speaks plain HTTP with the proxies of tls.proxies: whatever can read along between them sees every credential", a.Listen)
	case !loopback && !credentials:
		found.Bites(check, add, "%s is more than this machine, and there are no credentials: serve will not start", a.Listen)
	case url != "" && !credentials:
		found.Bites(check, add, "%s leads here from other machines, and there are no credentials: serve will not start", url)
	default:
		found.OK(check, "%s is free", a.Listen)
	}
	return found
}

// canListen reports whether an address is closed to all but this machine, or an error if it cannot be had. It makes no
// socket: a server could start at this moment, and would find it.
func canListen(ctx context.Context, c *server.Config, at string) (closed bool, err error) {
	if path, ok := listener.Socket(at); ok {
		mode, err := listener.SocketMode(c.ListenMode)
		if err == nil {
			_, err = listener.CheckSocket(ctx, path)
		}
		return listener.IsClosed(mode), err
	}
	on, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return false, err
	}
	return on.Addr().(*net.TCPAddr).IP.IsLoopback(), on.Close()
}
