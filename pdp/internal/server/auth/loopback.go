package auth

import (
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Loopback answers for a server without credentials: whoever is on this machine
// may ask everything. A page in a browser is on this machine too, and DNS can be
// made to call it by any name, so the Host must be loopback. And so is a proxy, which
// lets the whole world ask and may send a Host of its own: what says that it came by one
// is refused. All this holds on a Unix socket of the server's own user, too.
type Loopback struct{}

// Authenticate accepts requests whose Host is a loopback name or address. An
// Authorization header is not looked at: there is nothing to check it with.
func (Loopback) Authenticate(r *http.Request) (Caller, error) {
	if !loopbackHost(r.Host) {
		return Caller{}, forbidden("without credentials the Host header must be a loopback name or address; try localhost, 127.0.0.1 or [::1]")
	}
	// The listener was checked at start; this holds whatever the Host says.
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		return Caller{}, forbidden("without credentials only requests on a loopback address are answered; try 127.0.0.1, or add a key")
	}
	if forwarded(r.Header) || forwarded(r.Trailer) {
		return Caller{}, &Refusal{Kind: ErrForwarded, Detail: "without credentials only this machine is answered, and this request has been forwarded by a proxy; add a key with policy-service keys add, or auth to the configuration", Credential: ByNone}
	}
	// Nobody approves: there is nothing that says who it would be.
	return Caller{AllTenants: true, Permissions: []Permission{Decide, Search, Explain}}, nil
}

// forwarded reports whether a header says that the request came by a proxy. That it says
// so counts, not what: an empty value is one that a proxy took the content of.
func forwarded(header http.Header) bool {
	for name := range header {
		if ofProxy(name) {
			return true
		}
	}
	return false
}

// DropForwarded takes out of a header all that proxies say about the way of a request.
func DropForwarded(header http.Header) {
	maps.DeleteFunc(header, func(name string, _ []string) bool { return ofProxy(name) })
}

func ofProxy(name string) bool {
	const family = "x-forwarded-"
	return strings.EqualFold(name, "forwarded") || strings.EqualFold(name, "via") || strings.EqualFold(name, "x-real-ip") ||
		len(name) >= len(family) && strings.EqualFold(name[:len(family)], family)
}

// loopbackHost takes the forms a Host header has: name or address, an IPv6
// address in brackets, each with or without a port; and no other.
func loopbackHost(hostport string) bool {
	host := hostport
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && !strings.HasSuffix(hostport, "]") {
		if _, err := strconv.ParseUint(hostport[i+1:], 10, 16); err != nil {
			return false
		}
		host = hostport[:i]
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		inner = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(inner)
	return err == nil && ip.Zone() == "" && ip.IsLoopback() && ip.Is6() == bracketed
}

// IsLoopbackName reports if a host, without a port, is this machine by its name alone.
func IsLoopbackName(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}
