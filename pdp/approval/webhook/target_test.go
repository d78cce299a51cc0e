package webhook_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"policy-service/pdp/approval/webhook"
)

// inside are addresses that are not public, each with a prefix that lists it.
var inside = []struct{ address, prefix string }{
	{"0.0.0.0", "0.0.0.0/32"},
	{"0.1.2.3", "0.0.0.0/8"},
	{"10.0.0.1", "10.0.0.0/8"},
	{"10.255.255.255", "10.255.255.255"},
	{"100.64.0.1", "100.64.0.0/10"},
	{"100.127.255.255", "100.64.0.0/10"},
	{"127.0.0.1", "127.0.0.1"},
	{"127.255.0.1", "127.0.0.0/8"},
	{"168.63.129.16", "168.63.129.16"},
	{"169.254.169.254", "169.254.169.254/32"},
	{"172.16.0.1", "172.16.0.0/12"},
	{"172.31.255.255", "172.16.0.0/12"},
	{"192.0.0.8", "192.0.0.0/24"},
	{"192.0.2.1", "192.0.2.0/24"},
	{"192.88.99.1", "192.88.99.0/24"},
	{"192.168.1.1", "192.168.0.0/16"},
	{"198.18.0.1", "198.18.0.0/15"},
	{"198.19.255.255", "198.18.0.0/15"},
	{"198.51.100.1", "198.51.100.0/24"},
	{"203.0.113.1", "203.0.113.0/24"},
	{"224.0.0.1", "224.0.0.0/4"},
	{"240.0.0.1", "240.0.0.0/4"},
	{"255.255.255.255", "0.0.0.0/0"},
	{"::", "::/128"},
	{"::1", "::1"},
	{"::7f00:1", "::/96"},
	{"::ffff:127.0.0.1", "127.0.0.0/8"},
	{"::ffff:169.254.169.254", "169.254.0.0/16"},
	{"64:ff9b::7f00:1", "64:ff9b::/96"},
	{"64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9fe"},
	{"64:ff9b:1::808:808", "64:ff9b:1::/48"},
	{"100::1", "100::/64"},
	{"2001::1", "2001::/32"},
	{"2001:2::1", "2001:2::/48"},
	{"2001:db8::1", "2001:db8::/32"},
	{"2002:7f00:1::", "2002:7f00:1::/48"},
	{"2002:a9fe:a9fe::1", "2002::/16"},
	{"3fff::1", "3fff::/20"},
	{"5f00::1", "5f00::/16"},
	{"fc00::1", "fc00::/7"},
	{"fd12:3456::1", "fc00::/7"},
	{"fe80::1", "fe80::/10"},
	{"fec0::1", "fec0::/10"},
	{"ff02::1", "ff00::/8"},
}

// TestLiteralAddresses gives addresses in the place of a name: then it is told at once.
func TestLiteralAddresses(t *testing.T) {
	t.Parallel()
	o, _, _ := options(t)
	for _, test := range inside {
		url := "https://" + net.JoinHostPort(test.address, "443") + path
		if err := try(t, o, url); err == nil || !strings.Contains(err.Error(), "is not a public address; list it in allow") {
			t.Errorf("%s: %v", test.address, err)
		}
		if err := try(t, o, url, test.prefix); err != nil {
			t.Errorf("%s, listed as %s: %v", test.address, test.prefix, err)
		}
		if err := try(t, o, url, "172.32.0.0/16", "2a00::/16"); err == nil {
			t.Errorf("%s is not in what is listed", test.address)
		}
	}
	for _, outside := range []string{
		"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.1", "198.17.0.1", "223.255.255.255",
		"2606:4700::1111", "2a00::1", "64:ff9b::808:808", "2002:808:808::1", "::ffff:8.8.8.8",
	} {
		host := net.JoinHostPort(outside, "8443")
		if err := try(t, o, "https://"+host+path); err != nil {
			t.Errorf("%s: %v", outside, err)
		}
		if err := try(t, o, "http://"+host+path, "10.0.0.0/8"); err == nil {
			t.Errorf("%s is reached by plain http though it is not listed", outside)
		}
	}
	if err := try(t, o, "https://[fe80::1%25eth0]"+path); err == nil {
		t.Error("a zone makes an address public")
	}
	if err := try(t, o, "https://[fe80::1%25eth0]"+path, "fe80::/10"); err != nil {
		t.Errorf("with a zone, and listed: %v", err)
	}
}

func try(t testing.TB, o webhook.Options, url string, allow ...string) error {
	_, err := webhook.New([]webhook.Config{{URL: url, SecretFile: secretFile(t, secret), Allow: allow}}, o)
	return err
}

// TestNamedAddresses has a name that leads to each of them: nothing is connected to.
func TestNamedAddresses(t *testing.T) {
	t.Parallel()
	six := hasIPv6()
	dns, resolver := newNames(t)
	once := func(o *webhook.Options) {
		o.Resolver = resolver
		o.Backoff = webhook.Backoff{First: 1, Most: 1, Within: patience, Tries: 1}
	}
	for _, test := range inside {
		if a := netip.MustParseAddr(test.address); a.Unmap().Is6() && !six {
			continue // there is no socket to ask with
		}
		dns.set(test.address)
		w := sends(t, "https://receiver.test", nil, once)
		w.send(t)
		if !strings.Contains(w.log.String(), "is not a public address") {
			t.Errorf("%s: log:\n%s", test.address, w.log)
		}
		plain := sends(t, "http://receiver.test", []string{"192.0.2.77"}, once)
		plain.send(t)
		if !strings.Contains(plain.log.String(), "is not listed, and plain http") {
			t.Errorf("%s by plain http: log:\n%s", test.address, plain.log)
		}
	}
}

func hasIPv6() bool {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err == nil {
		_ = l.Close()
	}
	return err == nil
}

// TestChangingAnswer lists one address of a name, which then gets others that lead to
// the same listener, and at last the first again.
func TestChangingAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		allow []string
		want  int
	}{
		"the address listed": {[]string{"127.0.0.1"}, 3},
		"the name listed":    {[]string{"Receiver.Test."}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			dns, resolver := newNames(t, "127.0.0.1")
			i := receives(t, answers(503), answers(503), answers(503), answers(200))
			_, port, _ := net.SplitHostPort(i.Listener.Addr().String())
			w := sends(t, "http://receiver.test:"+port, test.allow, func(o *webhook.Options) {
				o.Resolver = resolver
				o.Backoff = webhook.Backoff{First: 1, Most: 1, Within: patience, Tries: 4}
			})
			w.between = func(n int) {
				// The second and third time; a mapped address is the one it maps.
				dns.set([]string{"0.0.0.0", "::ffff:127.0.0.1", "127.0.0.1"}[n-1])
			}
			w.send(t)
			if got := len(i.deliveries()); got != test.want {
				t.Errorf("%d requests, not %d; log:\n%s", got, test.want, w.log)
			}
		})
	}
}

// TestSeveralAddresses has a name with an address that is not listed before one that is.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	_, resolver := newNames(t, "0.0.0.0", "127.0.0.1")
	i := receives(t, answers(200))
	_, port, _ := net.SplitHostPort(i.Listener.Addr().String())
	w := sends(t, "http://receiver.test:"+port, []string{"127.0.0.1"}, func(o *webhook.Options) { o.Resolver = resolver })
	w.send(t)
	if got := i.deliveries(); len(got) != 1 || got[0].Host != "receiver.test:"+port {
		t.Errorf("requests: %v; log:\n%s", got, w.log)
	}
}

// TestUnknownName is a name without an address.
func TestUnknownName(t *testing.T) {
	t.Parallel()
	_, resolver := newNames(t)
	w := sends(t, "https://nobody.receiver.test", nil, func(o *webhook.Options) { o.Resolver = resolver })
	w.send(t)
	if !strings.Contains(w.log.String(), "its name has no address") {
		t.Errorf("log:\n%s", w.log)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	o, _, _ := options(t)
	for _, test := range []struct {
		url   string
		allow []string
		want  string
	}{
		{"", nil, "url is no URL"},
		{"chat.example.com", nil, "url is no URL"},
		{"https:chat.example.com", nil, "url is no URL"},
		{"https:///secret-path", nil, "url is no URL"},
		{"ftp://chat.example.com", nil, "url is no URL"},
		{"https://chat.example.com:x/secret-path", nil, "url is no URL"},
		{"https://a:secret-query@chat.example.com", nil, "credentials"},
		{"https://chat.example.com/secret-path#", nil, "fragment"},
		{"http://chat.example.com/secret-path", nil, "plain http"},
		{"https://chat.example.com/secret-path", []string{"ticket.example.com"}, "not the host of url"},
		{"https://chat.example.com/secret-path", []string{"*.example.com"}, "not the host of url"},
		{"https://chat.example.com/secret-path", []string{""}, "not the host of url"},
		{"https://chat.example.com/secret-path", []string{"10.0.0.1/8"}, "write it like 10.0.0.0/8"},
		{"https://chat.example.com/secret-path", []string{"::ffff:10.0.0.0/104"}, "IPv4 as IPv4"},
		{"https://chat.example.com/secret-path", []string{"fe80::1%eth0"}, "without a zone"},
	} {
		err := try(t, o, test.url, test.allow...)
		if err == nil || !strings.HasPrefix(err.Error(), "webhooks[0]: ") || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret-") {
			t.Errorf("%s with %q: %v", test.url, test.allow, err)
		}
	}
	good := webhook.Config{URL: "https://chat.example.com", SecretFile: secretFile(t, secret), Allow: []string{"CHAT.example.com"}}
	if _, err := webhook.New([]webhook.Config{good}, o); err != nil {
		t.Error(err)
	}
	if _, err := webhook.New([]webhook.Config{good, good}, o); err == nil || !strings.HasPrefix(err.Error(), "webhooks[1]: ") {
		t.Errorf("the same twice: %v", err)
	}
}
