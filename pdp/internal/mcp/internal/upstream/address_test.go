package upstream_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/pdptest/mcptest"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		host, allowed, want string // want is part of the error, "" for none
	}{
		{"93.184.216.34", "", ""},
		{"[2606:4700::1111]", "", ""},
		{"127.0.0.1", "", "loopback"},
		{"127.9.9.9", "", "loopback"},
		{"[::1]", "", "loopback"},
		{"0.0.0.0", "", "unspecified"},
		{"[::]", "", "unspecified"},
		{"10.1.2.3", "", "private"},
		{"172.31.0.1", "", "private"},
		{"192.168.0.1", "", "private"},
		{"[fd12::1]", "", "private"},
		{"169.254.1.1", "", "link-local"},
		{"[fe80::1]", "", "link-local"},
		{"[fe80::1%25lo]", "", "link-local"},
		{"100.64.0.1", "", "carrier"},
		{"224.0.0.1", "", "multicast"},
		{"[ff02::1]", "", "multicast"},
		{"255.255.255.255", "", "reserved"},
		{"198.18.0.1", "", "benchmarks"},
		{"[::ffff:127.0.0.1]", "", "loopback"},
		{"[::ffff:10.0.0.1]", "", "private"},
		{"[::127.0.0.1]", "", "loopback"},
		{"[64:ff9b::10.0.0.1]", "", "private"},
		{"[64:ff9b::8.8.8.8]", "", ""},
		{"[64:ff9b:1::a00:1]", "", "translation"},
		{"[::ffff:0:a00:1]", "", "translation"},
		{"[2002:7f00:1::]", "", "loopback"},
		{"[2002:a9fe:a9fe::]", "", "credentials"},
		{"[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "", "protocols"},
		{"169.254.169.254", "", "credentials"},
		{"[fd00:ec2::254]", "", "credentials"},
		{"[::ffff:169.254.169.254]", "", "credentials"},
		{"168.63.129.16", "", "credentials"},

		{"10.1.2.3", "10.0.0.0/8", ""},
		{"[::ffff:10.1.2.3]", "10.0.0.0/8", ""},
		{"[64:ff9b::10.1.2.3]", "10.0.0.0/8", ""},
		{"[64:ff9b:1::a00:1]", "64:ff9b:1::/48", ""},
		{"10.1.2.3", "192.168.0.0/16", "private"},
		{"[::1]", "127.0.0.0/8", "loopback"},
		{"169.254.169.254", "169.254.0.0/16", "credentials"},
		{"169.254.169.254", "0.0.0.0/0", "credentials"},
		{"169.254.169.254", "169.254.169.254/32", ""},
		{"[fd00:ec2::254]", "fd00::/8", "credentials"},
		{"[fd00:ec2::254]", "fd00:ec2::254/128", ""},
	} {
		o := upstream.HTTPOptions{URL: "https://" + c.host + "/mcp"}
		if c.allowed != "" {
			o.AllowNetworks = []netip.Prefix{netip.MustParsePrefix(c.allowed)}
		}
		u, err := upstream.NewHTTP(o)
		if err == nil {
			_ = u.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %q: %v, should be %q", c.host, c.allowed, err, c.want)
		}
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"":                               "https://host/path",
		"mcp.example.com/mcp":            "https://host/path",
		"file:///etc/passwd":             "https://host/path",
		"https://":                       "https://host/path",
		"https://me:secret@example.com/": "credentials stand under auth",
		"https://example.com/#x":         "fragment",
		"http://93.184.216.34/mcp":       "use https",
		"https://example.com/\x00secret": "https://host/path",
	} {
		_, err := upstream.NewHTTP(upstream.HTTPOptions{URL: url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, should be %q", url, err, want)
		}
	}
	if _, err := upstream.NewHTTP(upstream.HTTPOptions{URL: "http://93.184.216.34/mcp", AllowNetworks: []netip.Prefix{netip.MustParsePrefix("93.184.216.0/24")}}); err != nil {
		t.Error(err)
	}
}

// A name counts by the address that is dialled for it, at each dial.
func TestNames(t *testing.T) {
	s := newStub(t, era.Modern, says(200, jsonKind, good))
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	u := reach(t, "http://localhost:"+port, func(o *upstream.HTTPOptions) { o.AllowNetworks = nil })
	_, err := u.Open(t.Context(), upstream.Client{})
	if err == nil || !strings.Contains(err.Error(), "allow_networks") {
		t.Errorf("a name of a loopback address: %v", err)
	}
	if len(s.received()) != 0 {
		t.Error("the server got something")
	}
	open(t, reach(t, "http://localhost:"+port))
}

// No status, header or body has us send anything to where a server names.
func TestNothingNamedIsFetched(t *testing.T) {
	trap := newStub(t, era.Modern, says(200, jsonKind, good))
	for _, status := range []int{301, 302, 303, 307, 308, 401, 403, 503} {
		for _, e := range []era.Era{era.Modern, era.Legacy} {
			answer := func(w http.ResponseWriter, _ *http.Request, _ string) {
				w.Header().Set("Location", trap.URL)
				w.Header().Set("Refresh", "0; url="+trap.URL)
				w.Header().Set("Link", "<"+trap.URL+">; rel=preload")
				w.Header().Set("Alt-Svc", `h2="`+strings.TrimPrefix(trap.URL, "http://")+`"`)
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+trap.URL+`"`)
				w.WriteHeader(status)
			}
			s := open(t, reach(t, newStub(t, e, answer).URL))
			if _, _, err := send(s, call(s, "x", `{}`)); err == nil {
				t.Errorf("status %d is no error", status)
			}
			if _, err := s.Listen(t.Context()); err == nil && e == era.Legacy {
				t.Errorf("status %d for GET is no error", status)
			}
			refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r, "") }))
			if _, err := reach(t, refusing.URL).Open(t.Context(), upstream.Client{}); err == nil {
				t.Errorf("status %d for a handshake is no error", status)
			}
			refusing.Close()
		}
	}
	if got := trap.received(); len(got) != 0 {
		t.Errorf("fetched was %v", got)
	}
}

func TestRoots(t *testing.T) {
	stub := newStub(t, era.Modern, says(200, jsonKind, good))
	secure := httptest.NewTLSServer(stub)
	t.Cleanup(secure.Close)
	_, err := reach(t, secure.URL).Open(t.Context(), upstream.Client{})
	if err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a certificate that nobody knows: %v", err)
	}
	if len(stub.received()) != 0 {
		t.Error("the server got something")
	}
	file := filepath.Join(t.TempDir(), "roots.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	mcptest.Must(t, os.WriteFile(file, text, 0o600))
	s := open(t, reach(t, secure.URL, func(o *upstream.HTTPOptions) { o.RootsFile = file }))
	if _, m, err := send(s, call(s, "x", `{}`)); err != nil || m.Result == nil {
		t.Error(err)
	}
	for _, content := range [][]byte{nil, []byte("no certificate"), slices.Repeat([]byte("x"), 2<<20)} {
		mcptest.Must(t, os.WriteFile(file, content, 0o600))
		if _, err := upstream.NewHTTP(upstream.HTTPOptions{URL: secure.URL, AllowNetworks: here, RootsFile: file}); err == nil {
			t.Errorf("roots of %d bytes without a certificate are taken", len(content))
		}
	}
}
