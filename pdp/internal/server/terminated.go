package server

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"policy-service/pdp/internal/server/auth"
)

// behind is a listener whose TLS a proxy terminates, with the handler of its requests. Without tls.terminated both stay
// what they are.
func (l *listeners) behind(next http.Handler, on net.Listener) (http.Handler, net.Listener) {
	if !l.config.TLS.Terminated {
		return next, on
	}
	proxies, _ := l.config.TLS.proxies()
	client := proxies.Client
	if on.Addr().Network() == "unix" {
		client = proxies.ClientOfSocket // its mode says which programs may connect
	} else {
		on = &onlyFrom{Listener: on, proxies: proxies, log: l.log, now: l.config.Program.PDP.Now}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// From here on a request comes from its client, and no header says otherwise.
		r.RemoteAddr = client(r)
		auth.DropForwarded(r.Header)
		next.ServeHTTP(w, r)
	}), on
}

// onlyFrom closes every connection that comes neither from a proxy nor from this machine. Nothing of it is read: its
// sender speaks plain HTTP over a network.
type onlyFrom struct {
	net.Listener
	proxies auth.Proxies
	log     *slog.Logger
	now     func() time.Time
	closed  int       // connections, since that was logged
	logged  time.Time // zero before the first
}

// Accept implements [net.Listener]. Only the server calls it, one call after the other.
func (o *onlyFrom) Accept() (net.Conn, error) {
	for {
		c, err := o.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err == nil && (o.proxies.Has(from.Addr()) || from.Addr().Unmap().IsLoopback()) {
			return c, nil
		}
		_ = c.Close()
		o.closed++
		if now := o.now(); o.logged.IsZero() || now.Sub(o.logged) >= time.Minute {
			o.log.Warn("connections were closed unread: they came in plain HTTP from other machines than tls.proxies", "count", o.closed, "last", from.Addr().String())
			o.closed, o.logged = 0, now
		}
	}
}
