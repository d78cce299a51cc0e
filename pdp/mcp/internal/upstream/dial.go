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

	"policy-service/pdp/plainfile"
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
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %s", errAddress, address)
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

// purposes are the networks without public servers, with their purposes. An upstream there is reached only if
// the configuration allows it.
var purposes = []struct {
	network netip.Prefix
	what    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier's customers"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a relay to other addresses"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::/96"), "unspecified"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a translation to other addresses"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "a translation to other addresses"},
	{netip.MustParsePrefix("100::/64"), "discarded"},
	{netip.MustParsePrefix("2001::/23"), "for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// metadata are the addresses at which a cloud gives a machine its own credentials. No network that contains one allows
// it: it must be listed by itself.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // most clouds
	netip.MustParseAddr("169.254.170.2"),   // containers of AWS
	netip.MustParseAddr("169.254.170.23"),  // pods of AWS
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // pods of AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google
}

// purpose is the purpose of an address, "" if it is a public one.
func purpose(a netip.Addr) string {
	if slices.Contains(metadata, a) {
		return "where a cloud keeps its machines' credentials"
	}
	for _, p := range purposes {
		if p.network.Contains(a) {
			return p.what
		}
	}
	return ""
}

// allows reports whether one of the networks has an address. One of metadata must be the whole network.
func allows(networks []netip.Prefix, a netip.Addr) bool {
	whole := slices.Contains(metadata, a)
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) && (!whole || n.IsSingleIP()) })
}

var (
	mapped6 = netip.MustParsePrefix("::/96")
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4  = netip.MustParsePrefix("2002::/16")
)

// inner is the address that a packet to a gets to in the end, where a is a way to write an IPv4 address in IPv6.
func inner(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	b := a.As16()
	switch {
	case a.Is4(), a == netip.IPv6Unspecified(), a == netip.IPv6Loopback():
		return a
	case mapped6.Contains(a), nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixTo4.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// CheckAddress is an error if an upstream must not be reached at an address: it is none of a public server, or it is to be
// reached without TLS, and no network that is allowed has it.
func CheckAddress(a netip.Addr, allowed []netip.Prefix, plain bool) error {
	end := inner(a)
	what := purpose(end)
	listed := allows(allowed, end) || allows(allowed, a.WithZone(""))
	if what != "" && !listed {
		return fmt.Errorf("the address %s is %s; list its network in allow_networks if the upstream is meant to be there", a, what)
	}
	if plain && !listed {
		return fmt.Errorf("the URL is http, and the network of the address %s is not in allow_networks; use https, or list it", a)
	}
	return nil
}
