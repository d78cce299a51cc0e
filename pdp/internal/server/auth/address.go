package auth

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// AddressOf is where a request comes from, as shares and tries count it. A home has 2^64 addresses of IPv6, which count
// as one. What is no address is one address.
func AddressOf(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	address, bits := at.Addr().Unmap().WithZone(""), 64
	if address.Is4() {
		bits = 32
	}
	from, _ := address.Prefix(bits)
	return from
}

// Proxies are the addresses of proxies that say truly where a request comes from.
type Proxies []netip.Prefix

// ParseProxies reads addresses and ranges of addresses. All addresses together are no range: anybody could say anything.
func ParseProxies(texts []string) (all Proxies, err error) {
	for _, text := range texts {
		of, err := netip.ParsePrefix(text)
		if one, oneErr := netip.ParseAddr(text); oneErr == nil {
			of, err = one.Prefix(one.BitLen())
		}
		// A zone would count on every interface, and an address of IPv4 in one of IPv6 never: peers are compared without either.
		if err != nil || of != of.Masked() || of.Bits() == 0 || of.Addr().Is4In6() || strings.Contains(text, "%") {
			return nil, fmt.Errorf("has %q, which is no address and no range of them; try 10.0.0.5 or 10.0.0.0/24", text)
		}
		all = append(all, of)
	}
	return all, nil
}

// Client is the address, with a port, that a request comes from. If a proxy of ours has sent it, that is what the last
// such proxy in X-Forwarded-For says: anybody can write what stands before that.
func (p Proxies) Client(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.Has(at.Addr()) {
		return r.RemoteAddr
	}
	return p.forwarded(r, withoutPort(at.Addr()))
}

// ClientOfSocket is [Proxies.Client] of a request that came by a Unix socket, to which only proxies of ours connect.
func (p Proxies) ClientOfSocket(r *http.Request) string { return p.forwarded(r, r.RemoteAddr) }

// forwarded is the last address in X-Forwarded-For that is none of ours. If there is none, it is the first of ours there,
// or that of the proxy which has sent the request.
func (p Proxies) forwarded(r *http.Request, client string) string {
	said := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(said) {
		before, ok := addressIn(strings.TrimSpace(text))
		if !ok {
			break
		}
		if client = withoutPort(before); !p.Has(before) {
			break
		}
	}
	return client
}

// addressIn is an address as proxies write it: some put a port behind it, and brackets around one of IPv6.
func addressIn(text string) (address netip.Addr, ok bool) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr(), true
	}
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed {
		text = strings.TrimSuffix(inner, "]")
	}
	address, err := netip.ParseAddr(text)
	return address, err == nil
}

func withoutPort(address netip.Addr) string {
	return netip.AddrPortFrom(address.Unmap().WithZone(""), 0).String()
}

// Has reports whether an address is that of a proxy of ours.
func (p Proxies) Has(address netip.Addr) bool {
	for _, of := range p {
		if of.Contains(address.Unmap().WithZone("")) {
			return true
		}
	}
	return false
}
