package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
	"policy-service/pdp/server/listener"
)

// TLSFiles are the files that TLS is made from, and the oldest version it speaks.
type TLSFiles = listener.TLSFiles

// checkListen refuses an address that is certain to be refused later: one other than loopback, without TLS. Whether
// there are credentials is known once they are open.
func (c Config) checkListen() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("%q is no address to listen on; try host:port, such as %s", c.Listen, DefaultListen)
	}
	if listener.IsLoopback(c.Listen) {
		return nil
	}
	return c.exposable(c.Listen, DefaultListen)
}

// exposable says why only this machine may be let in at an address. TLS is needed because everybody on the way could
// read, and use, a credential without it.
func (c Config) exposable(at, safe string) error {
	if c.TLS.CertFile == "" {
		return fmt.Errorf("refusing to listen on %q: without TLS only loopback is safe; try %s behind a proxy that speaks TLS, or add --tls-cert and --tls-key", at, safe)
	}
	return nil
}

const addCredentials = "try policy-service keys add --data DIR --name NAME first, or auth.jwt or auth.mtls in the configuration"

// Published reports if public_url leads here from other machines. Then credentials are needed, wherever the server
// listens.
func (c Config) Published() bool {
	u, err := url.Parse(c.PublicURL)
	return c.PublicURL != "" && (err != nil || !auth.IsLoopbackName(u.Hostname()))
}

// checkPublished refuses a public_url that is certain to be refused later: API keys are in the data directory, and
// there is no such directory.
func (c Config) checkPublished() error {
	if !c.Published() || c.Data != "" || c.Program.Authenticator != nil || len(c.Auth.JWT)+len(c.Auth.MTLS) > 0 {
		return nil
	}
	return c.refusedPublished()
}

func (c Config) refusedPublished() error {
	return fmt.Errorf("refusing to serve %s: without credentials only this machine may ask, and whoever comes by that address could ask everything of every tenant; "+addCredentials+", or leave public_url out", c.PublicURL)
}

// listeners are the addresses at which a server is reached: one for everybody, and perhaps one for this machine alone.
type listeners struct {
	config       Config
	log          *slog.Logger
	certificates *listener.Certificates // nil is plain HTTP
	public       net.Listener           // nil before it is open
	admin        net.Listener           // nil if there is none
	failed       chan error             // gets the error that ended serving

	inProcess atomic.Pointer[http.Handler] // nil if the server listens, or does not run
}

// serveInProcess answers what comes by [Server.Transport], until the stop.
func (l *listeners) serveInProcess(handler http.Handler, undo *lifetime) {
	l.inProcess.Store(&handler)
	undo.add("requests of the process", closing(func() error { l.inProcess.Store(nil); return nil }))
}

// loadCertificates reads the files of TLS.
func (l *listeners) loadCertificates() (err error) {
	l.certificates, err = listener.Open(l.config.TLS, l.log)
	return err
}

// open opens the address for everybody.
func (l *listeners) open(ctx context.Context, credentials bool, undo *lifetime) error {
	public, err := new(net.ListenConfig).Listen(ctx, "tcp", l.config.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; try another --listen address, or port 0 for any free one", l.config.Listen, err)
	}
	undo.add("listener", func(context.Context) error {
		if err := public.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil // the drain closed it
	})
	// A name was checked as a name; what counts is the address it led to.
	if err := l.checkExposure(public.Addr(), credentials); err != nil {
		return err
	}
	l.public = public
	return nil
}

// checkExposure refuses the address that a name led to if too many could ask there.
func (l *listeners) checkExposure(address net.Addr, credentials bool) error {
	if l.config.Published() && !credentials {
		return l.config.refusedPublished()
	}
	if listener.IsLoopback(address.String()) {
		return nil
	}
	if err := l.config.exposable(); err != nil {
		return err
	}
	if !credentials {
		return fmt.Errorf("refusing to listen on %q: without credentials anybody could ask; "+addCredentials, l.config.Listen)
	}
	return nil
}

// address is where a listener listens, as host:port; "" if there is none.
func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// base is the address of the service in what it publishes: public_url, or that of the listener if only this machine
// reaches it. Otherwise it is not known, and "".
func (l *listeners) base() string {
	switch at := address(l.public); {
	case l.config.PublicURL != "":
		return l.config.PublicURL
	case !listener.IsLoopback(at):
		return ""
	case l.config.TLS.CertFile != "":
		return "https://" + at
	default:
		return "http://" + at
	}
}

// serve answers requests until the listener is closed.
func (l *listeners) serve(server *http.Server) error {
	return l.certificates.Serve(server, l.public)
}

// keptForTheRest is the time that draining leaves for the other steps of a stop.
const keptForTheRest = 6 * time.Second

// drain answers what was asked. It leaves some of the time there is to what stops after it: above all the log, which
// has the records of these answers.
func (l *listeners) drain(ctx context.Context, server *http.Server, d *door.Door) error {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left-min(left/3, keptForTheRest))
		defer cancel()
	}
	_ = l.public.Close()
	d.Connections.Drain(ctx)
	err := server.Shutdown(ctx)
	if err == nil {
		return nil
	}
	// There is no time left: what still runs is cut off.
	undecided := d.Busy()
	if closing := server.Close(); undecided {
		return errors.Join(err, closing)
	}
	l.log.Warn("clients were cut off at the stop, who did not send their request to its end, or did not read their answer")
	return nil
}
