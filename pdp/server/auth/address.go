package auth

import (
	"net/http"
	"net/netip"
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

// Client is the address, with a port, that a request comes from. If a proxy of ours has sent it, that is what the last
// such proxy in X-Forwarded-For says: anybody can write what stands before that.
func (p Proxies) Client(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.has(at.Addr()) {
		return r.RemoteAddr
	}
	client := at.Addr()
	said := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for n := len(said) - 1; n >= 0 && p.has(client); n-- {
		before, err := netip.ParseAddr(strings.TrimSpace(said[n]))
		if err != nil {
			break
		}
		client = before
	}
	return netip.AddrPortFrom(client.Unmap().WithZone(""), 0).String()
}

func (p Proxies) has(address netip.Addr) bool {
	for _, of := range p {
		if of.Contains(address.Unmap().WithZone("")) {
			return true
		}
	}
	return false
}
