package auth_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"policy-service/pdp/internal/server/auth"
)

// Only a proxy of ours says where a request comes from, and only of the address that it saw itself.
func TestNobodyChoosesTheirAddress(t *testing.T) {
	t.Parallel()
	ours := auth.Proxies{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8:5::/64")}
	for _, test := range []struct {
		from string
		said []string
		want string
	}{
		{"192.0.2.7:5", nil, "192.0.2.7:5"},
		{"192.0.2.7:5", []string{"198.51.100.1"}, "192.0.2.7:5"},
		{"10.0.0.5:5", nil, "10.0.0.5:0"},
		{"10.0.0.5:5", []string{"198.51.100.1"}, "198.51.100.1:0"},
		{"[::ffff:10.0.0.5]:5", []string{"::ffff:198.51.100.1"}, "198.51.100.1:0"},
		{"[2001:db8:5::1]:5", []string{"2001:db8:9::1"}, "[2001:db8:9::1]:0"},
		{"10.0.0.5:5", []string{"192.0.2.9, 198.51.100.1"}, "198.51.100.1:0"},
		{"10.0.0.5:5", []string{"192.0.2.9", "198.51.100.1"}, "198.51.100.1:0"},
		{"10.0.0.5:5", []string{"192.0.2.9, 198.51.100.1, 10.0.0.6"}, "198.51.100.1:0"},
		{"10.0.0.5:5", []string{"10.0.0.7, 10.0.0.6"}, "10.0.0.7:0"},
		{"10.0.0.5:5", []string{"192.0.2.9, 198.51.100.1:4711"}, "198.51.100.1:0"},
		{"10.0.0.5:5", []string{"192.0.2.9, 198.51.100.1:4711, 10.0.0.6:4712"}, "198.51.100.1:0"},
		{"10.0.0.5:5", []string{"[2001:db8:9::1]:4711"}, "[2001:db8:9::1]:0"},
		{"10.0.0.5:5", []string{"[2001:db8:9::1]"}, "[2001:db8:9::1]:0"},
		{"10.0.0.5:5", []string{"192.0.2.9, 198.51.100.1:x"}, "10.0.0.5:0"},
		{"10.0.0.5:5", []string{"fe80::1%eth0"}, "[fe80::1]:0"},
		{"10.0.0.5:5", []string{"192.0.2.9, unknown"}, "10.0.0.5:0"},
		{"10.0.0.5:5", []string{"192.0.2.9, "}, "10.0.0.5:0"},
		{"no address", []string{"192.0.2.9"}, "no address"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Header["X-Forwarded-For"] = test.from, test.said
		if got := ours.Client(r); got != test.want {
			t.Errorf("from %s, %q: %s, want %s", test.from, test.said, got, test.want)
		}
		if got := auth.Proxies(nil).Client(r); got != test.from {
			t.Errorf("without proxies of ours, from %s: %s", test.from, got)
		}
	}
}

// What would let in other addresses than it seems to, or none, is no range.
func TestProxiesAreWhatTheySeem(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"10.0.0.5", "10.0.0.0/24", "2001:db8:5::/64", "fe80::1"} {
		if _, err := auth.ParseProxies([]string{text}); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{"", "0.0.0.0/0", "::/0", "10.0.0.5/24", "fe80::1%eth0", "::ffff:10.0.0.5", "::ffff:10.0.0.0/120", "10.0.0.5:80", "[::1]", "localhost"} {
		if all, err := auth.ParseProxies([]string{text}); err == nil {
			t.Errorf("%q is taken for %v", text, all)
		}
	}
}
