package conformance_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/decisionlog"
	"policy-service/pdp/pdptest/inside/server"
)

// The ways to reach our server.

// everything is what a caller needs who may ask the whole suite.
var everything = auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Request}}

// mode is a way to reach our server.
type mode struct {
	options []pdptest.Option
	// path is that of the tenant.
	path string
	// authorization is the credential, where it is one in a header.
	authorization string
	// trust has the client know the server, and show a certificate.
	trust func(*pdptest.Server)
}

func overTLS(t *testing.T) mode {
	authority := pdptest.NewAuthority(t)
	cert, key := authority.Server()
	return mode{
		options: []pdptest.Option{func(c *server.Config) { c.TLS.CertFile, c.TLS.KeyFile = cert, key }},
		trust:   func(s *pdptest.Server) { s.Trust(authority) },
	}
}

// withData is what serve is with a data directory alone: nobody is known.
func withData(t *testing.T) mode {
	dir := t.TempDir()
	return mode{options: []pdptest.Option{func(c *server.Config) { c.Data = dir }}}
}

func withKeyThatRequestsNothing(t *testing.T) mode {
	return withKeyFor(t, auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search}}, decisionlog.BestEffort)
}

func withKey(t *testing.T) mode { return withKeyFor(t, everything, decisionlog.Strict) }

// withKeyFor is a server with that log: a strict one waits for the disk at each answer.
func withKeyFor(t *testing.T, grant auth.Grant, log decisionlog.Mode) mode {
	dir := t.TempDir()
	keys, err := auth.OpenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := keys.Add(auth.KeySpec{Name: "judge", Grant: grant})
	if err != nil {
		t.Fatal(err)
	}
	return mode{
		options:       []pdptest.Option{func(c *server.Config) { c.Data, c.DecisionLog.Mode = dir, log }},
		authorization: "Bearer " + secret,
	}
}

func withBasicKey(t *testing.T) mode {
	m := withKeyFor(t, everything, decisionlog.BestEffort)
	secret := strings.TrimPrefix(m.authorization, "Bearer ")
	id := strings.Split(secret, "_")[1]
	m.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(id+":"+secret))
	return m
}

func tenantKeyTLS(t *testing.T) mode {
	m, key := overTLS(t), withKeyFor(t, everything, decisionlog.BestEffort)
	m.options = append(m.options, key.options...)
	m.authorization, m.path = key.authorization, "/tenants/acme"
	return m
}

func withCertificate(t *testing.T) mode {
	authority := pdptest.NewAuthority(t)
	cert, key := authority.Server()
	return mode{
		options: []pdptest.Option{func(c *server.Config) {
			c.TLS.CertFile, c.TLS.KeyFile, c.TLS.ClientCAFile = cert, key, authority.File
			c.Auth.MTLS = []auth.MTLSRule{{SAN: "judge.example.com", Grant: everything}}
		}},
		trust: func(s *pdptest.Server) { s.Trust(authority, authority.Client("judge.example.com")) },
	}
}

func withToken(t *testing.T) mode {
	issuer := pdptest.NewIssuer(t)
	token := issuer.Token(jwt.Claims{
		Issuer: "https://issuer.example.com", Subject: "judge", Audience: jwt.Audience{"pdp"}, Expiry: jwt.NewNumericDate(pdptest.Now.Add(time.Hour)),
	})
	return mode{
		options: []pdptest.Option{func(c *server.Config) {
			c.Auth.JWT = []auth.JWTIssuer{{Issuer: "https://issuer.example.com", Audience: "pdp", JWKSFile: issuer.File, Algorithms: []string{"EdDSA"}, Grant: everything}}
		}},
		authorization: "Bearer " + token,
	}
}
