package doctor

import (
	"cmp"
	"errors"
	"net"
	"syscall"

	"policy-service/pdp/server"
	"policy-service/pdp/server/auth"
)

// listen looks whether the address can be had. If a server is running on the data directory, it has the address.
func (x *exam) listen() {
	if x.Config.Program.InProcess {
		return
	}
	listen := cmp.Or(x.Config.Listen, server.DefaultListen)
	on, err := new(net.ListenConfig).Listen(x.ctx, "tcp", listen)
	switch running := x.reader != nil && x.reader.Partial(); {
	case errors.Is(err, syscall.EADDRINUSE) && running:
		x.OK("listen", "%s is in use, and a server is running on %s", listen, x.data)
		return
	case errors.Is(err, syscall.EADDRINUSE):
		x.Bites("listen", "give --listen another address, or end what has this one", "%s is in use, and no server is running on the log of this data directory", listen)
		return
	case err != nil:
		x.Bites("listen", "give --listen an address of this machine, and a port above 1023 unless the process may have a lower one", "%s cannot be listened on: %v", listen, err)
		return
	}
	loopback := on.Addr().(*net.TCPAddr).IP.IsLoopback()
	_ = on.Close()
	const add = "policy-service keys add --data DIR --name NAME first, or set auth.jwt or auth.mtls"
	switch url := x.Config.Published(); {
	case !loopback && !x.credentials():
		x.Bites("listen", add, "%s is more than this machine, and there are no credentials: serve will not start", listen)
	case url != "" && !x.credentials():
		x.Bites("listen", add, "%s leads here from other machines, and there are no credentials: serve will not start", url)
	default:
		x.OK("listen", "%s is free", listen)
	}
}

// credentials reports whether the server would tell callers apart.
func (x *exam) credentials() bool {
	if len(x.Config.Auth.JWT)+len(x.Config.Auth.MTLS) > 0 || x.Config.Console != nil && x.Config.Console.OIDC != nil {
		return true
	}
	keys, err := auth.OpenKeys(x.data)
	if x.data == "" || err != nil {
		return false
	}
	return keys.Configured()
}
