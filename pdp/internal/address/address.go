// Package address says what addresses of the internet are for, by the registries of special-purpose addresses (RFC 6890):
// at most of those no public server is. Start with [Purpose].
//
// It sends nothing, and does not know what is allowed: its callers refuse an address, or go there because an operator wants
// it.
package address

import (
	"net/netip"
	"slices"
)

// purposes are the networks without public servers, with their purposes. An addition to the registries must be added here.
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

// metadata are the addresses at which a cloud gives a machine its own credentials.
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

// HasCredentials reports whether a cloud gives a machine its own credentials at an address.
func HasCredentials(a netip.Addr) bool { return slices.Contains(metadata, a) }

// Purpose is the purpose of an address, "" if it may be that of a public server. It is that of [Inner].
func Purpose(a netip.Addr) string {
	a = Inner(a)
	if HasCredentials(a) {
		return "where a cloud keeps its machines' credentials"
	}
	for _, p := range purposes {
		if p.network.Contains(a) {
			return p.what
		}
	}
	return ""
}

var (
	compatible = netip.MustParsePrefix("::/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4     = netip.MustParsePrefix("2002::/16")
)

// Inner is the address that a packet to a gets to in the end, where a is a way to write an IPv4 address in IPv6.
func Inner(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	b := a.As16()
	switch {
	case a.Is4(), a == netip.IPv6Unspecified(), a == netip.IPv6Loopback():
		return a
	case compatible.Contains(a), nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixTo4.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}
