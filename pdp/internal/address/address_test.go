package address

import (
	"net/netip"
	"testing"
)

// Every network of the table has its purpose at both ends, also if it is written in IPv6, and its neighbours may be public.
func TestPurposes(t *testing.T) {
	for _, p := range purposes {
		first := p.network.Addr()
		if Purpose(first) == "" {
			t.Errorf("%s is public", first)
		}
		if !first.Is4() {
			continue
		}
		b := first.As4()
		for _, in6 := range []netip.Addr{
			netip.AddrFrom16(first.As16()),
			netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: b[0], b[1], b[2], b[3]}),
			netip.AddrFrom16([16]byte{0x20, 0x02, b[0], b[1], b[2], b[3]}),
		} {
			if Purpose(in6) != p.what {
				t.Errorf("%s, which is %s, is %q", in6, first, Purpose(in6))
			}
		}
	}
	for text, want := range map[string]string{
		"8.8.8.8": "", "9.255.255.255": "", "11.0.0.0": "", "172.32.0.0": "", "223.255.255.255": "", "2606:4700::1111": "", "64:ff9b::808:808": "", "::ffff:8.8.8.8": "",
		"172.31.255.255": "private", "255.255.255.255": "reserved", "fe80::1%lo": "link-local", "::": "unspecified", "::1": "loopback", "::7f00:1": "loopback",
		"2002:7f00:1::": "loopback", "fdff::1": "private",
	} {
		if got := Purpose(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
	for _, a := range metadata {
		if !HasCredentials(a) || Purpose(a) != "where a cloud keeps its machines' credentials" {
			t.Errorf("%s is %q", a, Purpose(a))
		}
	}
}
