package server

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// checkListen refuses an address that is certain to be refused later: other than
// loopback, without TLS. Whether there are credentials is known when they are open.
func (c Config) checkListen() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("%q is no address to listen on; try host:port, such as %s", c.Listen, DefaultListen)
	}
	if isLoopbackAddress(c.Listen) {
		return nil
	}
	return c.exposable()
}

// isLoopbackAddress reports whether host:port is on loopback, as far as it says so itself.
func isLoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

// exposable says why nobody but this machine may be let in. TLS, because a credential
// that can be read on the way is anybody's.
func (c Config) exposable() error {
	if c.TLS.CertFile == "" {
		return fmt.Errorf("refusing to listen on %q: without TLS only loopback is safe; try %s behind a proxy that speaks TLS, or add --tls-cert and --tls-key", c.Listen, DefaultListen)
	}
	return nil
}

// checkExposure is about the address a name led to, and the credentials there are.
func (s *Server) checkExposure(address net.Addr) error {
	if a, ok := address.(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return nil
	}
	if err := s.config.exposable(); err != nil {
		return err
	}
	if !s.credentials() {
		return fmt.Errorf("refusing to listen on %q: without credentials anybody could ask; try policy-service keys add --data DIR --name NAME first, or auth.jwt or auth.mtls in the configuration", s.config.Listen)
	}
	return nil
}

// base is the address of the service in what it publishes: public_url, or that of the
// listener where only this machine reaches it. Otherwise nobody knows ("").
func (s *Server) base() string {
	if s.config.PublicURL != "" {
		return s.config.PublicURL
	}
	if s.listener == nil {
		return ""
	}
	if a, ok := s.listener.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return ""
	}
	if s.config.TLS.CertFile != "" {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}
