package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"policy-service/pdp/internal/address"
	"policy-service/pdp/internal/plainfile"
)

// errAddress is of every address that we do not go to.
var errAddress = errors.New("not an address for an upstream")

const (
	dialTime = 10 * time.Second
	// idleTime is shorter than the five seconds after which many servers close an idle connection: a request that meets
	// such a close on its way looks like one that was executed.
	idleTime   = 4 * time.Second
	idleMost   = 64
	headerMost = 64 << 10
)

// newTransport goes to no address but those that are allowed. It knows no proxy, keeps no cookie, and follows nothing.
//
// It speaks HTTP/1.1 alone. Over it net/http repeats a request only if not one byte of it was written to a connection
// that had been used before. Over HTTP/2 it also repeats requests that the server refused by a code of HTTP/2.
func newTransport(o HTTPOptions, target *url.URL) (*http.Transport, error) {
	roots, err := readRoots(o.RootsFile)
	if err != nil {
		return nil, err
	}
	plain := target.Scheme == "http"
	dialer := &net.Dialer{
		Timeout: dialTime,
		// The address here is the one that is dialled, whatever a name resolved to before.
		ControlContext: func(_ context.Context, _, dialled string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(dialled)
			if err != nil {
				return fmt.Errorf("%w: %s", errAddress, dialled)
			}
			if err := CheckAddress(at.Addr(), o.AllowNetworks, plain); err != nil {
				return fmt.Errorf("%w: %w", errAddress, err)
			}
			return nil
		},
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:            dialer.DialContext,
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTime,
		DisableCompression:     true, // a packed body may be a thousand times larger unpacked
		IdleConnTimeout:        idleTime,
		MaxIdleConns:           idleMost,
		MaxIdleConnsPerHost:    idleMost,
		MaxResponseHeaderBytes: headerMost,
	}, nil
}

// readRoots reads the certificates that an upstream is trusted by. Without a file they are the system's.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := plainfile.Read(file, 1<<20)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificates of an upstream: %w; check the file's name and permissions", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate; it must be PEM, the roots of the upstream's certificate", file)
	}
	return roots, nil
}

// parseTarget reads the URL of an upstream. Its errors do not quote it: there may be a key in its query.
func parseTarget(o HTTPOptions) (*url.URL, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("the url of an upstream is https://host/path")
	case u.User != nil:
		return nil, errors.New("the url of an upstream has a name or password in it; credentials stand under auth")
	case u.Fragment != "":
		return nil, errors.New("the url of an upstream has a fragment, which no server gets to see; take it away")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := CheckAddress(a, o.AllowNetworks, u.Scheme == "http"); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// allows reports whether one of the networks has an address. One where a cloud keeps credentials must be
// the whole network.
func allows(networks []netip.Prefix, a netip.Addr) bool {
	whole := address.HasCredentials(a)
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) && (!whole || n.IsSingleIP()) })
}

// CheckAddress is an error if an upstream must not be reached at an address: it is none of a public server, or it is to be
// reached without TLS, and no network that is allowed has it.
func CheckAddress(a netip.Addr, allowed []netip.Prefix, plain bool) error {
	end := address.Inner(a)
	what := address.Purpose(a)
	listed := allows(allowed, end) || allows(allowed, a.WithZone(""))
	if what != "" && !listed {
		return fmt.Errorf("the address %s is %s; list its network in allow_networks if the upstream is meant to be there", a, what)
	}
	if plain && !listed {
		return fmt.Errorf("the URL is http, and the network of the address %s is not in allow_networks; use https, or list it", a)
	}
	return nil
}
