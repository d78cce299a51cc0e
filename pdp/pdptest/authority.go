package pdptest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority that lives as long as its test.
type Authority struct {
	// File holds its certificate, in PEM.
	File string
	// Pool trusts it.
	Pool *x509.CertPool
	// Lifetime is how long its certificates are good from now on; 0 is a year.
	Lifetime time.Duration

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority with a key of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir(), Pool: x509.NewCertPool()}
	template := a.template("test authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, key := a.sign(template)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = cert, key
	a.Pool.AddCert(cert)
	a.File = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

// Server writes a certificate for this machine, and returns its files. Each call
// writes another certificate to the same files.
func (a *Authority) Server() (certFile, keyFile string) {
	a.t.Helper()
	template := a.template("test server")
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	der, key := a.sign(template)
	return a.write("server.pem", "CERTIFICATE", der), a.write("server.key", "PRIVATE KEY", a.encode(key))
}

// Client is a certificate for a DNS name, for a client to show.
func (a *Authority) Client(name string) tls.Certificate {
	a.t.Helper()
	template := a.template(name)
	template.DNSNames = []string{name}
	der, key := a.sign(template)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// template is valid by the real clock and by [Now], whichever a test uses.
func (a *Authority) template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		a.t.Fatal(err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    Now.AddDate(-1, 0, 0),
		NotAfter:     time.Now().Add(cmp.Or(a.Lifetime, 365*24*time.Hour)),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// sign signs with the authority's key, or with the new one where it has none yet.
func (a *Authority) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

func (a *Authority) encode(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *Authority) write(name, kind string, der []byte) string {
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}
