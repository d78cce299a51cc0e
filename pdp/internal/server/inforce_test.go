package server_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/written"
)

const ended = "a request that takes long ended with its credential"

// Who waits with a key that is revoked is told nothing of what happens afterwards.
func TestARevokedKeyEndsWhoWaits(t *testing.T) {
	t.Parallel()
	var log written.Text
	c := openCounter(t, logTo(&log))
	id := c.asks("pep", tool("push", push)).Approval.ID
	answers := make(chan pdptest.Response, 2)
	for who, path := range map[string]string{"pep": "/v1/approvals/" + id + "?wait=30s", "mia": "/v1/approvals?tenant=acme&wait=30s"} {
		go func() { answers <- c.Do("GET", path, "", "Authorization", c.key[who]) }()
	}
	apiKeys, err := keys.Open(c.data)
	must(t, err)
	eventually(t, "both wait", func() bool { return c.Waiting() == 2 })
	begun := time.Now()
	must(t, apiKeys.Revoke("pep"))
	must(t, apiKeys.Revoke("mia"))
	for range 2 {
		replied(t, <-answers, 401)
	}
	if took := time.Since(begun); took > 25*time.Second { // at the end of its time everybody is answered
		t.Errorf("it took %v", took)
	}
	if got := strings.Count(log.String(), ended); got != 2 {
		t.Errorf("%d ended with their credentials", got)
	}
}

// Who reads the whole log stops with the credential, whatever ends that.
func TestAnEndedCredentialEndsAnExport(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*office, *clock.Clock, server.Config){
		"a key is revoked": func(o *office, _ *clock.Clock, _ server.Config) {
			apiKeys, err := keys.Open(o.data)
			must(t, err)
			must(t, apiKeys.Revoke("reader"))
		},
		"a token expires": func(_ *office, now *clock.Clock, _ server.Config) { now.Advance(2 * time.Hour) },
		"an issuer goes": func(o *office, _ *clock.Clock, config server.Config) {
			config.Auth.JWT = nil
			must(t, o.Reconfigure(t.Context(), func() (server.Config, error) { return config, nil }))
		},
		"a permission goes": func(o *office, _ *clock.Clock, config server.Config) {
			config.Auth.JWT = []auth.JWTIssuer{config.Auth.JWT[0]}
			config.Auth.JWT[0].Permissions = []auth.Permission{auth.Decide}
			must(t, o.Reconfigure(t.Context(), func() (server.Config, error) { return config, nil }))
		},
		"a key is no more in the file": func(_ *office, now *clock.Clock, config server.Config) {
			must(t, os.WriteFile(config.Auth.JWT[0].JWKSFile, []byte(`{"keys":[]}`), 0o600))
			now.Advance(5 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			issuer, now := pdptest.NewIssuer(t), clock.At(pdptest.Now)
			var log written.Text
			var config server.Config
			o := openOffice(t, logTo(&log), func(c *server.Config) {
				c.Auth.JWT = []auth.JWTIssuer{{Issuer: "https://issuer.example", Audience: "pdp", JWKSFile: issuer.File, Algorithms: []string{"EdDSA"}, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.LogRead}}}}
				c.Program.PDP.Now = now.Now
				config = *c
			})
			o.Client = ownClient() // megabytes need not be held to a schema
			o.large()
			reader := o.as("reader")
			if name != "a key is revoked" {
				o.key["token"] = "Bearer " + issuer.Token(jwt.Claims{Issuer: "https://issuer.example", Subject: "ann", Audience: jwt.Audience{"pdp"}, IssuedAt: jwt.NewNumericDate(pdptest.Now), Expiry: jwt.NewNumericDate(pdptest.Now.Add(time.Hour))})
				reader = o.as("token")
			}
			answer := reader.stream(t.Context(), "/v1/log/export")
			if answer.StatusCode != http.StatusOK {
				t.Fatalf("got %d", answer.StatusCode)
			}
			end(o, now, config)
			eventually(t, "the export ends", func() bool { return strings.Count(log.String(), ended) == 1 })
			read, err := io.Copy(io.Discard, answer.Body)
			if err == nil || read >= largeEntries*largeNote {
				t.Errorf("%d bytes came after the end, with %v", read, err)
			}
		})
	}
}
