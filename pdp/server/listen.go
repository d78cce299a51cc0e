package server

import (
	"fmt"
	"net"
	"net/url"

	"policy-service/pdp/server/auth"
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
	return auth.IsLoopbackName(host)
}

// exposable says why nobody but this machine may be let in. TLS, because a credential
// that can be read on the way is anybody's.
func (c Config) exposable() error {
	if c.TLS.CertFile == "" {
		return fmt.Errorf("refusing to listen on %q: without TLS only loopback is safe; try %s behind a proxy that speaks TLS, or add --tls-cert and --tls-key", c.Listen, DefaultListen)
	}
	return nil
}

const addCredentials = "try policy-service keys add --data DIR --name NAME first, or auth.jwt or auth.mtls in the configuration"

// Published reports whether public_url leads here from other machines: credentials are
// needed then, wherever the server listens.
func (c Config) Published() bool {
	u, err := url.Parse(c.PublicURL)
	return c.PublicURL != "" && (err != nil || !auth.IsLoopbackName(u.Hostname()))
}

// checkPublished refuses a public_url that is certain to be refused later: API keys are
// in the data directory, and there is none.
func (c Config) checkPublished() error {
	if !c.Published() || c.Data != "" || c.Program.Authenticator != nil || len(c.Auth.JWT)+len(c.Auth.MTLS) > 0 {
		return nil
	}
	return c.refusedPublished()
}

func (c Config) refusedPublished() error {
	return fmt.Errorf("refusing to serve %s: without credentials only this machine may ask, and whoever comes by that address could ask everything of every tenant; "+addCredentials+", or leave public_url out", c.PublicURL)
}

// checkExposure is about the address a name led to, and the credentials there are.
func (s *Server) checkExposure(address net.Addr) error {
	if s.config.Published() && !s.credentials() {
		return s.config.refusedPublished()
	}
	if a, ok := address.(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return nil
	}
	if err := s.config.exposable(); err != nil {
		return err
	}
	if !s.credentials() {
		return fmt.Errorf("refusing to listen on %q: without credentials anybody could ask; "+addCredentials, s.config.Listen)
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
