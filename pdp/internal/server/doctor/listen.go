package doctor

import (
	"cmp"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/listener"
)

// listen looks whether the address can be had. If a server is running on the data directory, it has the address.
func (x *exam) listen() {
	if x.Config.Program.InProcess {
		return
	}
	listen := cmp.Or(x.Config.Listen, server.DefaultListen)
	loopback, err := x.canListen(listen)
	x.socketDirectory(listen)
	switch running := x.reader != nil && x.reader.Partial(); {
	case errors.Is(err, syscall.EADDRINUSE) && running:
		x.OK("listen", "%s is in use, and a server is running on %s", listen, x.data)
		return
	case errors.Is(err, syscall.EADDRINUSE):
		x.Bites("listen", "give --listen another address, or end what has this one", "%s is in use, and no server is running on the log of this data directory", listen)
		return
	case err != nil:
		x.Bites("listen", "give --listen an address of this machine, and a port above 1023 unless the process may have a lower one, or a socket in a directory that serve may write to", "%s cannot be listened on: %v", listen, err)
		return
	}
	const add = "policy-service keys add --data DIR --name NAME first, or set auth.jwt or auth.mtls"
	switch url := x.Config.Published(); {
	case !loopback && x.credentials() && x.Config.TLS.Terminated:
		x.Bites("listen", "give the service a certificate of its own, or keep that network to the two of them",
			"%s speaks plain HTTP with the proxies of tls.proxies: whatever can read along between them sees every credential", listen)
	case !loopback && !x.credentials():
		x.Bites("listen", add, "%s is more than this machine, and there are no credentials: serve will not start", listen)
	case url != "" && !x.credentials():
		x.Bites("listen", add, "%s leads here from other machines, and there are no credentials: serve will not start", url)
	default:
		x.OK("listen", "%s is free", listen)
	}
}

// canListen reports whether an address is closed to all but this machine, or an error if it cannot be had. It makes no
// socket: a server could start at this moment, and would find it.
func (x *exam) canListen(at string) (closed bool, err error) {
	if path, ok := listener.Socket(at); ok {
		mode, err := listener.SocketMode(x.Config.ListenMode)
		if err == nil {
			_, err = listener.CheckSocket(x.ctx, path)
		}
		return listener.IsClosed(mode), err
	}
	on, err := new(net.ListenConfig).Listen(x.ctx, "tcp", at)
	if err != nil {
		return false, err
	}
	return on.Addr().(*net.TCPAddr).IP.IsLoopback(), on.Close()
}

// socketDirectory looks for a directory in which every user could put a socket while the server does not run.
func (x *exam) socketDirectory(listen string) {
	path, ok := listener.Socket(listen)
	if dir, err := os.Stat(filepath.Dir(path)); ok && err == nil && dir.Mode()&0o002 != 0 {
		x.Bites("listen", "put the socket into a directory that only the user of serve may write to",
			"every user of this machine can put a socket of its own at %s while serve does not run, and clients would believe it", path)
	}
}

// credentials reports whether the server would tell callers apart.
func (x *exam) credentials() bool {
	if len(x.Config.Auth.JWT)+len(x.Config.Auth.MTLS) > 0 || x.Config.Console != nil && x.Config.Console.OIDC != nil {
		return true
	}
	keys, err := x.apiKeys()
	return err == nil && len(keys) > 0 || x.Config.Cluster != nil // a replica lets no caller in without credentials
}
