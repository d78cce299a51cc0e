package server

import (
	"context"
	"log/slog"
	"time"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
)

// AuthConfig has the callers besides the holders of API keys.
type AuthConfig struct {
	JWT  []auth.JWTIssuer `yaml:"jwt" min:"1" doc:"Issuers whose bearer tokens the service accepts."`
	MTLS []auth.MTLSRule  `yaml:"mtls" min:"1" doc:"Client certificates that the service accepts. The first entry that fits a certificate counts."`
}

// openCallers makes the authenticator from the keys in the data directory and from what is configured, unless the
// program brought one. It returns the keys.
func openCallers(ctx context.Context, b *base, k ownKeys, d *decisionLog, r *replica, l *listeners) (apiKeys *keys.Keys, err error) {
	first := b.live.Load()
	if first.callers != nil {
		return nil, nil
	}
	known := &auth.Authenticator{Trusts: l.trusts}
	if b.config.Data != "" {
		if apiKeys, err = openAPIKeys(ctx, b, k, r); err != nil {
			return nil, err
		}
		if err := apiKeys.Keep(); err != nil {
			return nil, err
		}
		apiKeys.LogTo(b.log)
		if d != nil {
			if err := apiKeys.FollowLog(ctx, d.Log, d.events); err != nil {
				return nil, err
			}
		}
		known.Keys = apiKeys
	}
	if known, err = newAuthenticator(b.config, known); err != nil {
		return nil, err
	}
	// An issuer that is down is no reason to hold up the start.
	if known.JWT != nil {
		b.lifetime.background("issuers' keys", known.JWT.Warm)
	}
	if known.Console != nil {
		b.lifetime.background("the console's issuer", known.Console.Warm)
	}
	first.callers = known
	return apiKeys, nil
}

// openAPIKeys opens the keys of the data directory, or of the cluster. The log of each replica says for itself what it has
// learned of the keys, as that of a server does of its file.
func openAPIKeys(ctx context.Context, b *base, k ownKeys, r *replica) (*keys.Keys, error) {
	if r == nil {
		return keys.Open(b.config.Data)
	}
	apiKeys, err := keys.OpenShared(ctx, sharedKeys(r.Cluster, k.approvals, b.config.Cluster.KeysStale, b.now, b.log))
	if err != nil {
		return nil, err
	}
	b.lifetime.add("API keys", closing(apiKeys.Close))
	b.lifetime.background("API keys' changes", apiKeys.Run)
	return apiKeys, nil
}

func sharedKeys(c *cluster.Cluster, key []byte, stale time.Duration, now func() time.Time, log *slog.Logger) keys.Shared {
	return keys.Shared{Engine: c.Engine(cluster.Keys, keys.SharedErrors()), Key: key, Stale: stale, Now: now, Logger: log}
}

// newAuthenticator knows the callers that a configuration names, and the API keys of the one before. What was known of
// the keys of an issuer stays known.
func newAuthenticator(config Config, before *auth.Authenticator) (known *auth.Authenticator, err error) {
	known = &auth.Authenticator{Keys: before.Keys, Trusts: before.Trusts}
	options := auth.JWTOptions{Now: config.Program.PDP.Now, Logger: config.Program.Logger, Before: before.JWT}
	if issuers := config.Auth.JWT; len(issuers) > 0 {
		if known.JWT, err = auth.NewJWT(issuers, options); err != nil {
			return nil, err
		}
	}
	if entry := config.oidc(); entry != nil {
		if known.Console, err = auth.NewConsole(*entry, before.Console, options); err != nil {
			return nil, err
		}
	}
	if rules := config.Auth.MTLS; len(rules) > 0 {
		if known.MTLS, err = auth.NewMTLS(rules, config.Program.PDP.Now); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// credentials reports if callers are told apart at all.
func (l *live) credentials() bool {
	switch a := l.callers.(type) {
	case nil, auth.Loopback:
		return false
	case interface{ Configured() bool }:
		return a.Configured()
	}
	return true // one of the embedding program's own
}
