package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"policy-service/pdp/server"
	"policy-service/pdp/server/auth"
)

// listen looks whether the address can be had, or is a running server's already.
func (x *exam) listen() {
	if x.Config.Program.InProcess {
		return
	}
	listen := cmp.Or(x.Config.Listen, server.DefaultListen)
	on, err := new(net.ListenConfig).Listen(x.ctx, "tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		x.inUse(listen)
		return
	}
	if err != nil {
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

// inUse asks the holder of the address.
func (x *exam) inUse(listen string) {
	ctx, cancel := context.WithTimeout(x.ctx, 10*time.Second)
	defer cancel()
	scheme := "http://"
	if x.Config.TLS.CertFile != "" {
		scheme = "https://"
	}
	probe := Probe{URL: scheme + reachable(listen), CertFile: x.Config.TLS.CertFile}
	if _, err := probe.Live(ctx); err != nil {
		x.Bites("listen", "give --listen another address, or end what has this one", "%s is in use, and not by a policy-service that answers: %v", listen, err)
		return
	}
	if x.reader != nil && !x.reader.Partial() {
		x.Bites("listen", "stop that one, or give --listen another address", "%s is in use by a policy-service, and not by one that writes to the log of %s", listen, x.data)
		return
	}
	x.OK("listen", "%s is in use by a policy-service that answers", listen)
}

// reachable is an address by which a listener on this machine can be asked.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}

// certificate is the first certificate of a file in PEM, which is the server's own.
func certificate(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate: %w; try the file that serve is given", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no certificate in PEM; try the file that serve is given as --tls-cert", name)
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("%s holds no certificate that can be read; try the file that serve is given as --tls-cert", name)
	}
	return block.Bytes, nil
}
