package rates

import "net/netip"

// Address is the key of a client that has no other, by the address of its connection. An IPv6 client has 2⁶⁴ addresses,
// so it counts by its network. What is no address has one key for all.
func Address(remote string) string {
	var ip netip.Addr
	if both, err := netip.ParseAddrPort(remote); err == nil {
		ip = both.Addr()
	} else if ip, err = netip.ParseAddr(remote); err != nil {
		return "unknown"
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		network, _ := ip.Prefix(64) // which every IPv6 address has
		return network.String()
	}
	return ip.String()
}
