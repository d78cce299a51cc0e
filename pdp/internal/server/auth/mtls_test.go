package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a := authority{key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.cert = a.sign(t, template, template, key)
	return a
}

func (a authority) sign(t *testing.T, template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return cert
}

// client is a certificate for a client, with what change adds to it.
func (a authority) client(t *testing.T, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	change(template)
	cert := a.sign(t, template, a.cert, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// listenTLS answers with the caller's name, or the refusal and its status.
func listenTLS(t *testing.T, authenticator *Authenticator, mode tls.ClientAuthType, trusted authority) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(answering(authenticator))
	pool := x509.NewCertPool()
	pool.AddCert(trusted.cert)
	server.TLS = &tls.Config{ClientAuth: mode, ClientCAs: pool}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func with(server *httptest.Server, certs ...tls.Certificate) *http.Client {
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = certs
	return &http.Client{Transport: transport}
}

func rule(san string, permissions ...Permission) MTLSRule {
	return MTLSRule{san, Grant{Tenants: []string{"default"}, Permissions: permissions}}
}

func newMTLS(t *testing.T, now func() time.Time, rules ...MTLSRule) *MTLS {
	t.Helper()
	m, err := NewMTLS(rules, now)
	must(t, err)
	return m
}

func dns(names ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.DNSNames = names }
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	spiffe, err := url.Parse("spiffe://example/pep")
	must(t, err)
	rules := []MTLSRule{
		rule("pep.example", Decide), rule("spiffe://example/pep", Search), rule("pep@example.org", Explain), rule("Old PEP", LogRead), rule("second.example", Search),
	}
	server := listenTLS(t, &Authenticator{MTLS: newMTLS(t, nil, rules...)}, tls.VerifyClientCertIfGiven, a)
	for name, test := range map[string]struct {
		change func(*x509.Certificate)
		want   string
	}{
		"DNS name":            {dns("pep.example"), "200 mtls:pep.example"},
		"one of several":      {dns("other.example", "pep.example"), "200 mtls:pep.example"},
		"two rules match":     {dns("second.example", "pep.example"), "200 mtls:pep.example"},
		"URI":                 {func(c *x509.Certificate) { c.URIs = []*url.URL{spiffe} }, "200 mtls:spiffe://example/pep"},
		"e-mail address":      {func(c *x509.Certificate) { c.EmailAddresses = []string{"pep@example.org"} }, "200 mtls:pep@example.org"},
		"common name alone":   {func(c *x509.Certificate) { c.Subject.CommonName = "Old PEP" }, "200 mtls:Old PEP"},
		"common name and SAN": {func(c *x509.Certificate) { c.Subject.CommonName = "Old PEP"; c.DNSNames = []string{"x.example"} }, "401 "},
		"common name and IP": {func(c *x509.Certificate) {
			c.Subject.CommonName, c.IPAddresses = "Old PEP", []net.IP{net.IPv4(127, 0, 0, 1)}
		}, "401 "},
		"a name below":        {dns("x.pep.example"), "401 "},
		"a wildcard":          {dns("*.example"), "401 "},
		"e-mail as DNS name":  {dns("pep@example.org"), "401 "},
		"organisation is not": {func(c *x509.Certificate) { c.Subject.Organization = []string{"Old PEP"} }, "401 "},
		"nothing at all":      {func(*x509.Certificate) {}, "401 "},
	} {
		got := do(t, with(server, a.client(t, test.change)), server.URL)
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	if got := do(t, with(server), server.URL); !strings.HasPrefix(got, "401 ") {
		t.Errorf("no certificate: got %s", got)
	}
	bad := do(t, with(server, a.client(t, dns("pep.example"))), server.URL, "Authorization", "Bearer psk_a_b")
	if !strings.HasPrefix(bad, "401 ") {
		t.Errorf("a bad key and a good certificate: got %s, want the key to count", bad)
	}
}

// The listener may be told to ask for certificates without verifying them: then
// they prove nothing.
func TestUnverifiedCertificateIsNobody(t *testing.T) {
	t.Parallel()
	trusted, stranger := newAuthority(t), newAuthority(t)
	server := listenTLS(t, &Authenticator{MTLS: newMTLS(t, nil, rule("pep.example", Decide))}, tls.RequestClientCert, trusted)
	for name, a := range map[string]authority{"trusted": trusted, "stranger": stranger} {
		if got := do(t, with(server, a.client(t, dns("pep.example"))), server.URL); !strings.HasPrefix(got, "401 ") {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestCertificateEndsDuringItsConnection(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	var late time.Duration
	m := newMTLS(t, func() time.Time { return time.Now().Add(late) }, rule("pep.example", Decide))
	server := listenTLS(t, &Authenticator{MTLS: m}, tls.RequireAndVerifyClientCert, a)
	client := with(server, a.client(t, dns("pep.example")))
	if got := do(t, client, server.URL); !strings.HasPrefix(got, "200 ") {
		t.Errorf("in its time: got %s", got)
	}
	late = 2 * time.Hour
	if got := do(t, client, server.URL); !strings.HasPrefix(got, "401 ") {
		t.Errorf("after its time: got %s", got)
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]MTLSRule{
		"no san":         {rule("", Decide)},
		"no permissions": {rule("a")},
		"no tenants":     {{"a", Grant{Permissions: []Permission{Decide}}}},
		"twice":          {rule("a", Decide), rule("a", Search)},
	} {
		if _, err := NewMTLS(rules, nil); err == nil || !strings.HasPrefix(err.Error(), "auth.mtls[") {
			t.Errorf("%s: got %v, want an error that says where", name, err)
		}
	}
}
