package auth

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// MTLSRule says what the holder of a certificate may do.
type MTLSRule struct {
	// SAN is a DNS name, a URI or an e-mail address, bare; or the common name of
	// a certificate without any alternative name.
	SAN   string `yaml:"san" required:"yes" doc:"A DNS name, URI or e-mail address of the certificate, written bare. Of a certificate without any alternative name, its common name."`
	Grant `yaml:",inline"`
}

// MTLS maps client certificates to callers.
type MTLS struct {
	rules []MTLSRule
	now   func() time.Time
}

// NewMTLS checks rules. now is nil but in tests.
func NewMTLS(rules []MTLSRule, now func() time.Time) (*MTLS, error) {
	seen := make(map[string]bool)
	var errs []error
	for i, rule := range rules {
		err := rule.check()
		switch {
		case !IsName(rule.SAN):
			err = errors.New("san is missing or not printable; write the bare name, such as pep.example.com")
		case seen[rule.SAN]:
			err = errors.New("a rule before has the same san; delete one of them")
		}
		if seen[rule.SAN] = true; err != nil {
			errs = append(errs, fmt.Errorf("auth.mtls[%d]: %w", i, err))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if now == nil {
		now = time.Now
	}
	return &MTLS{slices.Clone(rules), now}, nil
}

func (r MTLSRule) check() error {
	if r.approves() {
		return errors.New("permissions has approve, and a certificate does not say who approves; give approvers API keys with a principal, or tokens, and take approve out")
	}
	return cmp.Or(r.Grant.check(), r.onlyKeysRelay())
}

// Verify finds the caller of a connection. Only a certificate that crypto/tls
// has verified counts; where several rules match, the first does.
func (m *MTLS) Verify(state *tls.ConnectionState) (Caller, error) {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return Caller{}, invalid("the client certificate is not verified; send one of the authority this server trusts")
	}
	cert := state.VerifiedChains[0][0]
	// A connection outlives its handshake, and may outlive the certificate.
	if now := m.now(); now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return Caller{}, invalid("the client certificate is not valid at this time; get a new one")
	}
	for _, rule := range m.rules {
		if rule.matches(cert) {
			return rule.caller("mtls:" + rule.SAN), nil
		}
	}
	return Caller{}, invalid("the client certificate is nobody's here; ask the operator to list its name")
}

// matches compares byte for byte. The form of the name says which alternative
// names it may be, so that an e-mail address is never taken for a host. The
// common name is read only where nothing else is there: authorities often check
// alternative names alone.
func (r MTLSRule) matches(cert *x509.Certificate) bool {
	if len(cert.DNSNames)+len(cert.URIs)+len(cert.EmailAddresses)+len(cert.IPAddresses) == 0 {
		return cert.Subject.CommonName == r.SAN
	}
	switch {
	case strings.Contains(r.SAN, ":"):
		return slices.ContainsFunc(cert.URIs, func(uri *url.URL) bool { return uri.String() == r.SAN })
	case strings.Contains(r.SAN, "@"):
		return slices.Contains(cert.EmailAddresses, r.SAN)
	}
	return slices.Contains(cert.DNSNames, r.SAN)
}
