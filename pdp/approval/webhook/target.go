package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"policy-service/pdp/internal/address"
)

// target holds which addresses a receiver may have.
type target struct {
	plain  bool // http, which goes only to listed addresses
	named  bool // the host is listed, whatever its addresses are
	listed []netip.Prefix
}

// newTarget reads allow. An error may quote entries of allow, but never the URL.
func newTarget(u *url.URL, allow []string) (target, error) {
	t := target{plain: u.Scheme == "http"}
	for _, entry := range allow {
		if err := t.add(entry, u.Hostname()); err != nil {
			return target{}, fmt.Errorf("allow: %w", err)
		}
	}
	if t.plain && len(allow) == 0 {
		return target{}, errors.New("plain http lets anybody on the way read what is sent; use https, or list the host in allow")
	}
	// An address in the URL is checked now, so that the mistake is found at start. Each connection is checked again.
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return t, t.check(a)
	}
	return t, nil
}

func (t *target) add(entry, host string) error {
	prefix, err := netip.ParsePrefix(entry)
	if a, failed := netip.ParseAddr(entry); failed == nil {
		prefix, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil && sameHost(entry, host):
		t.named = true
		return nil
	case err != nil:
		return fmt.Errorf("%q is no address, no CIDR prefix and not the host of url; write one of them", entry)
	case prefix != prefix.Masked(), prefix.Addr().Is4In6(), strings.Contains(entry, "%"):
		return fmt.Errorf("%q says more than a CIDR prefix can; write it like 10.0.0.0/8, without a zone, and IPv4 as IPv4", entry)
	}
	t.listed = append(t.listed, prefix)
	return nil
}

func sameHost(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// control refuses an address. The dialer calls it for each address of a name, before it sends anything there.
func (t target) control(_, dialled string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(dialled)
	if err != nil {
		return errors.New("webhook: not an address")
	}
	return t.check(to.Addr())
}

func (t target) check(a netip.Addr) error {
	a = a.Unmap().WithZone("") // no prefix contains an address with a zone
	switch {
	case t.named, within(t.listed, a):
		return nil
	case t.plain:
		return &refusedAddress{a, "is not listed, and plain http goes only to what is"}
	case !public(a):
		return &refusedAddress{a, "is not a public address"}
	}
	return nil
}

// refusedAddress is the error for an address that no message goes to.
type refusedAddress struct {
	address netip.Addr
	why     string
}

// Error gives the address, the reason, and what would permit it.
func (e *refusedAddress) Error() string {
	return fmt.Sprintf("%s %s; list it in allow if it is meant", e.address, e.why)
}

var (
	unicast6 = netip.MustParsePrefix("2000::/3") // of IPv6 everything else is special
	nat64    = netip.MustParsePrefix("64:ff9b::/96")
)

func within(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}

// public tells if an address is public. An IPv6 address that stands for an IPv4 address is judged by the latter,
// because in a network with IPv6 only, DNS64 gives every receiver such an address.
func public(a netip.Addr) bool {
	return (a.Is4() || unicast6.Contains(a) || nat64.Contains(a)) && address.Purpose(a) == ""
}
