package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/listener"
)

// TLSFiles are the files that TLS is made from, and the oldest version it speaks.
type TLSFiles = listener.TLSFiles

// TLSConfig says which side speaks TLS with clients: the service, if it has the files, or a proxy before it.
type TLSConfig struct {
	TLSFiles `yaml:",inline"`
	// Terminated says that a proxy does, and Proxies are its addresses.
	Terminated bool     `yaml:"terminated" doc:"A proxy before the service terminates TLS. The service then speaks plain HTTP, and whatever can read along between the two sees every credential. It needs credentials, and proxies unless it listens on a Unix socket."`
	Proxies    []string `yaml:"proxies" min:"1" doc:"The addresses of the proxies that terminate TLS, as 10.0.0.5 or 10.0.0.0/24. A connection from another machine is closed before it is read. Of a request of theirs, the last address in X-Forwarded-For that is none of theirs counts as the one that it comes from."`
}

func (t TLSConfig) proxies() (auth.Proxies, error) {
	all, err := auth.ParseProxies(t.Proxies)
	if err != nil {
		err = fmt.Errorf("tls.proxies %w", err)
	}
	return all, err
}

// checkTerminated finds why a proxy could not be the one that terminates TLS.
func (c Config) checkTerminated() error {
	switch {
	case !c.TLS.Terminated && len(c.TLS.Proxies) > 0:
		return errors.New("tls.proxies terminate TLS, and tls.terminated does not say so; add it, or leave tls.proxies out")
	case !c.TLS.Terminated:
	case c.TLS.CertFile != "":
		return errors.New("tls.terminated says that a proxy terminates TLS, and tls.cert_file that the service does; leave one of them out")
	case len(c.Auth.MTLS) > 0:
		return errors.New("auth.mtls needs the certificates of clients, and with tls.terminated the proxy gets them: a header about them is never believed; take keys or tokens, or have the proxy pass TLS through")
	case len(c.TLS.Proxies) == 0 && !c.onlySocket():
		return errors.New("tls.terminated needs tls.proxies: without them, other machines could ask in plain HTTP; list the addresses of the proxies")
	case c.Console != nil && len(c.Console.TrustedProxies) > 0:
		return errors.New("console.trusted_proxies say what tls.proxies say for the whole service; leave them out")
	}
	return nil
}

func isSocket(address string) bool {
	_, ok := listener.Socket(address)
	return ok
}

// onlySocket reports whether the server has a Unix socket, and no address besides.
func (c Config) onlySocket() bool {
	return isSocket(c.Listen) && (c.Console == nil || c.Console.Listen == "")
}

// checkSocket finds a key that is of no use with, or without, a Unix socket.
func (c Config) checkSocket() error {
	switch {
	case c.ListenMode != "" && !isSocket(c.Listen):
		return fmt.Errorf("listen_mode is the mode of a Unix socket, and listen is %q; leave listen_mode out, or try unix:/run/policy-service/pdp.sock", c.Listen)
	case c.TLS.CertFile != "" && c.onlySocket():
		return errors.New("a Unix socket speaks plain HTTP: nothing on the way can read along; leave out --tls-cert, tls.cert_file and what belongs to them")
	}
	return nil
}

// known reports whether clients reach a listening address by the URL that it makes: they are on this machine then. Else
// only public_url says how.
func (c Config) known(at string) bool { return listener.IsLoopback(at) && !c.TLS.Terminated }

// checkListen refuses an address that is certain to be refused later: one other than loopback, without TLS. Whether
// there are credentials is known once they are open.
func (c Config) checkListen() error {
	if path, ok := listener.Socket(c.Listen); ok {
		if err := listener.CheckPath(path); err != nil {
			return fmt.Errorf("cannot listen on %q: %w", c.Listen, err)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("%q is no address to listen on; try host:port, such as %s, or unix:PATH", c.Listen, DefaultListen)
	}
	if listener.IsLoopback(c.Listen) {
		return nil
	}
	return c.exposable(c.Listen, DefaultListen)
}

// exposable says why only this machine may be let in at an address. TLS is needed because everybody on the way could
// read, and use, a credential without it.
func (c Config) exposable(at, safe string) error {
	if c.TLS.CertFile == "" && !c.TLS.Terminated && !isSocket(at) {
		return fmt.Errorf("refusing to listen on %q: without TLS only loopback is safe; try %s behind a proxy that speaks TLS, add --tls-cert and --tls-key, or write tls.terminated if a proxy on another machine speaks TLS", at, safe)
	}
	return nil
}

const addCredentials = "try policy-service keys add --data DIR --name NAME first, or auth.jwt or auth.mtls in the configuration"

// terminator stands for a proxy without a URL in [Config.Published].
const terminator = "a proxy that terminates TLS"

// Published is the way here from other machines: the public_url of the service or of its console, or a proxy; "" if
// nothing does. Then credentials are needed, wherever the server listens.
func (c Config) Published() string {
	urls := []string{c.PublicURL}
	if c.Console != nil {
		urls = append(urls, c.Console.PublicURL)
	}
	for _, one := range urls {
		if u, err := url.Parse(one); one != "" && (err != nil || !auth.IsLoopbackName(u.Hostname())) {
			return one
		}
	}
	if c.TLS.Terminated {
		return terminator
	}
	return ""
}

// checkPublished refuses a public_url that is certain to be refused later: API keys are in the data directory, and
// there is no such directory.
func (c Config) checkPublished() error {
	if c.Published() == "" || c.Data != "" || c.Program.Authenticator != nil || len(c.Auth.JWT)+len(c.Auth.MTLS) > 0 {
		return nil
	}
	return c.refusedPublished()
}

func (c Config) refusedPublished() error {
	by, key := c.Published(), "public_url"
	if by == terminator {
		key = "tls.terminated"
	}
	return fmt.Errorf("refusing to serve %s: without credentials only this machine may ask, and whoever comes by that address could ask everything of every tenant; "+addCredentials+", or leave %s out", by, key)
}

// listeners are the addresses at which a server is reached: one for everybody, perhaps one for people at the console, and
// perhaps one for this machine alone.
type listeners struct {
	*base
	certificates *listener.Certificates // nil is plain HTTP
	public       net.Listener           // nil before it is open
	console      net.Listener           // nil if the console has none of its own
	admin        net.Listener           // nil if there is none
	servers      []*http.Server
	failed       chan error // gets the errors that ended serving, one of each listener

	inProcess atomic.Pointer[http.Handler] // nil if the server listens, or does not run

	early, earlyOwn *early                 // what answers at the addresses if the server waited to join the cluster, nil otherwise
	waiting         atomic.Pointer[string] // for what it waited
}

// loadCertificates reads the files of TLS, unless they are in use.
func (l *listeners) loadCertificates() (err error) {
	if l.early != nil {
		return nil
	}
	if l.certificates, err = listener.Open(l.config.TLS.TLSFiles, l.log); l.certificates != nil {
		l.certificates.Now = l.config.Program.PDP.Now
	}
	return err
}

// trusts reports whether the authority of a client's certificate still counts.
func (l *listeners) trusts(state *tls.ConnectionState) bool {
	return l.certificates == nil || l.certificates.Trusts(state)
}

// open opens the addresses, unless they are open, and refuses those at which too many could ask.
func (l *listeners) open(ctx context.Context) (err error) {
	credentials := l.live.Load().credentials()
	switch {
	case l.config.Program.InProcess:
		return nil
	case l.early == nil:
		err = l.openAll(ctx, credentials)
	default:
		if err = l.checkExposure(l.public.Addr(), l.config.Listen, credentials); l.console != nil {
			err = errors.Join(err, l.checkExposure(l.console.Addr(), l.config.Console.Listen, credentials))
		}
	}
	if err != nil {
		return err
	}
	return l.openAdmin(ctx)
}

// openAll opens the address for everybody, and that of the console.
func (l *listeners) openAll(ctx context.Context, credentials bool) (err error) {
	if l.public, err = l.listen(ctx, l.config.Listen, "--listen address", credentials); err != nil {
		return err
	}
	if c := l.config.Console; c != nil && c.Listen != "" {
		l.console, err = l.listen(ctx, c.Listen, "console.listen", credentials)
	}
	return err
}

// listen opens an address that was given by an option.
func (l *listeners) listen(ctx context.Context, at, option string, credentials bool) (net.Listener, error) {
	on, err := listener.Listen(ctx, at, l.config.socketMode())
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && isSocket(at):
		return nil, fmt.Errorf("cannot listen on %s: another process answers there; try another %s, or end that process", at, option)
	case err != nil && isSocket(at):
		return nil, fmt.Errorf("cannot listen on %s: %w; see to its directory, or try another %s", at, err, option)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s: %w; try another %s, or port 0 for any free one", at, err, option)
	}
	l.lifetime.add("listener", func(context.Context) error {
		if err := on.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil // the drain closed it
	})
	// A name was checked as a name; the address it led to counts.
	return on, l.checkExposure(on.Addr(), at, credentials)
}

// checkExposure refuses the address that a name led to if too many could ask there.
func (l *listeners) checkExposure(address net.Addr, name string, credentials bool) error {
	if l.config.Published() != "" && !credentials {
		return l.config.refusedPublished()
	}
	if l.config.Cluster != nil && !credentials {
		return errors.New("refusing to serve as a replica of a cluster: without credentials all callers are one, at each replica another; " +
			"try policy-service keys add --config FILE --name NAME first, or auth.jwt or auth.mtls in the configuration")
	}
	if l.config.closed(address) {
		return nil
	}
	if err := l.config.exposable(name, DefaultListen); err != nil {
		return err
	}
	if !credentials {
		return fmt.Errorf("refusing to listen on %q: without credentials anybody could ask; "+addCredentials, name)
	}
	return nil
}

func (c Config) socketMode() fs.FileMode {
	mode, _ := listener.SocketMode(c.ListenMode)
	return mode
}

// closed reports whether only this machine reaches an address, and a socket only the user of the service.
func (c Config) closed(at net.Addr) bool {
	if at.Network() == "unix" {
		return listener.IsClosed(c.socketMode())
	}
	return listener.IsLoopback(at.String())
}

// address is where a listener listens, as host:port or unix:PATH; "" if there is none.
func address(l net.Listener) string {
	switch {
	case l == nil:
		return ""
	case l.Addr().Network() == "unix":
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// address is where this process is reached, as it is told of it.
func (l *listeners) address() string { return cmp.Or(l.urlOf(l.public), address(l.public)) }

// url returns the address of the service in what it publishes: public_url, or that of the listener if only this machine
// reaches it. Otherwise it is not known, and "".
func (l *listeners) url() string { return cmp.Or(l.config.PublicURL, l.urlOf(l.public)) }

// consoleURL is the address of the console in what is published; "" if there is no console, and while it is not known.
func (l *listeners) consoleURL() string {
	c := l.config.Console
	if c == nil {
		return ""
	}
	base := l.url()
	if c.Listen != "" {
		base = l.urlOf(l.console)
	}
	if base != "" {
		base += consolePath
	}
	return cmp.Or(c.PublicURL, base)
}

// urlOf is the address of a listener that only this machine reaches; "" of any other.
func (l *listeners) urlOf(on net.Listener) string {
	switch at := address(on); {
	case !l.config.known(at):
		return ""
	case l.config.TLS.CertFile != "":
		return "https://" + at
	default:
		return "http://" + at
	}
}

// issuerURL returns the URL by which a tenant's decisions are asked for, "" if it is not known. Tokens are by it and for it.
func (l *listeners) issuerURL(tenant string) string {
	url := l.url()
	if url == "" || tenant == evaluation.DefaultTenant {
		return url
	}
	return url + "/tenants/" + tenant
}

// serve has the handlers answer: public at the address for everybody, and own at that of the console, if it has one. The stop
// waits for them.
func (l *listeners) serve(public, own http.Handler) {
	switch {
	case l.config.Program.InProcess:
		l.inProcess.Store(&public)
		l.lifetime.add("requests of the process", closing(func() error { l.inProcess.Store(nil); return nil }))
		return
	case l.early == nil:
		l.serveAll(public, own)
	default:
		l.early.handler.Store(&public)
		if own != nil {
			l.earlyOwn.handler.Store(&own)
		}
	}
	l.lifetime.add("http", l.drain)
}

func (l *listeners) serveAll(public, own http.Handler) {
	serve := func(handler http.Handler, on net.Listener) {
		handler, on = l.behind(handler, on)
		server := listener.HTTPServer(handler, l.door.Connections, l.log)
		if tune := l.config.Program.tuneHTTP; tune != nil {
			tune(server)
		}
		l.servers = append(l.servers, server)
		certificates := l.certificates
		if on.Addr().Network() == "unix" {
			certificates = nil // TLS is for the console's own address
		}
		go func() {
			err := certificates.Serve(server, on)
			closed := errors.Is(err, net.ErrClosed) && l.door.Stopping.Load() // by drain
			if !closed && !errors.Is(err, http.ErrServerClosed) {
				l.log.Error("serving ended", "error", err)
				l.failed <- err
			}
		}()
	}
	serve(public, l.public)
	if l.console != nil {
		serve(own, l.console)
	}
}

// keptForTheRest is the time that draining leaves for the other steps of a stop.
const keptForTheRest = 6 * time.Second

// drain answers what was asked. It leaves some of the time there is to what stops after it: above all the log, which
// has the records of these answers.
func (l *listeners) drain(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left-min(left/3, keptForTheRest))
		defer cancel()
	}
	_ = l.public.Close()
	if l.console != nil {
		_ = l.console.Close()
	}
	l.door.Connections.Drain(ctx)
	var ended errgroup.Group
	for _, server := range l.servers {
		ended.Go(func() error { return server.Shutdown(ctx) })
	}
	err := ended.Wait()
	if err == nil {
		return nil
	}
	// There is no time left: requests that still run are cut off.
	undecided := l.door.Busy()
	for _, server := range l.servers {
		if closing := server.Close(); undecided {
			err = errors.Join(err, closing)
		}
	}
	if undecided {
		return err
	}
	l.log.Warn("clients were cut off at the stop, who did not send their request to its end, or did not read their answer")
	return nil
}
