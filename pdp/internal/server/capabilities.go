package server

import (
	"context"
	"time"

	"policy-service/pdp"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/capability/broker"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/server/capabilities"
)

// CapabilitiesConfig bounds the capabilities that agents are granted.
type CapabilitiesConfig struct {
	MaxLifetime     time.Duration `yaml:"max_lifetime" default:"24h" min:"1m" max:"2160h" doc:"How long a capability counts at most. One for a holder that is away counts up to 90 days."`
	DefaultLifetime time.Duration `yaml:"default_lifetime" default:"10m" min:"1s" max:"2160h" doc:"How long a capability counts if its request does not say."`
	ProofAge        time.Duration `yaml:"proof_age" default:"60s" min:"5s" max:"5m" doc:"How old the proof of a call may be."`
	ClockSkew       time.Duration `yaml:"clock_skew" default:"10s" min:"1s" max:"1m" doc:"How far the clock of a holder may be ahead. Beyond it, a replica whose clock differs from those of the others takes no proofs."`
	// Nonce is auto or required.
	Nonce                 string        `yaml:"nonce" default:"auto" enum:"required,auto" doc:"auto: only a proof made before this process started needs a nonce of it. required: every proof does; for several processes that sign with one key and share no etcd."`
	StatusTTL             time.Duration `yaml:"status_ttl" default:"15s" min:"1s" max:"1h" doc:"How long a gateway that verifies capabilities by itself keeps a list of those that were revoked, and so how late it learns of one. Without a newer list it refuses after four times as long."`
	MaxLivePerHolder      int64         `yaml:"max_live_per_holder" default:"100" min:"1" max:"1000000" doc:"How many capabilities one person may have at once in one tenant, by all holders together; or one holder of those that were granted for no person."`
	MaxLivePerTenant      int64         `yaml:"max_live_per_tenant" default:"100000" min:"1" max:"10000000" doc:"How many capabilities there may be at once in one tenant. One holder may have half of them, for all its persons together."`
	NewPerMinutePerHolder int64         `yaml:"new_per_minute_per_holder" default:"60" min:"1" max:"1000000" doc:"How many capabilities may be asked for in a minute for one person in one tenant, or for one holder without a person, whatever the answers are."`
	Retain                time.Duration `yaml:"retain" default:"720h" min:"1h" doc:"How long the service keeps capabilities that have ended, like 30d. The decision log keeps its records of them."`
}

// granting adds what /readyz says of capabilities to their routes.
type granting struct{ *capabilities.Capabilities }

// Ready implements [ready].
func (g granting) Ready(is *readiness) {
	if g.Closed != nil {
		is.Capabilities = "closed"
		is.degrade()
	}
}

// openCapabilities opens the file of capabilities. A server has capabilities if it records decisions, because each step of
// one is on record. If the file cannot be opened the service goes on: whoever shows a capability is answered with an error,
// and nobody else is held up.
//
// In a cluster this is an error: what one replica cannot open is compared by none.
func openCapabilities(b *base, into *capabilities.Capabilities, k ownKeys, d *decisionLog, r *replica, p *policies, l *listeners) error {
	if d == nil {
		return nil
	}
	c := b.config.Capabilities
	kept := store.Options{
		Key:    k.approvals,
		Now:    b.now,
		Retain: c.Retain,
		Limits: store.Limits{
			MaxLivePerHolder:      int(c.MaxLivePerHolder),
			MaxLivePerTenant:      int(c.MaxLivePerTenant),
			NewPerMinutePerHolder: int(c.NewPerMinutePerHolder),
		},
	}
	o := broker.Options{
		Data:      b.config.Data,
		Log:       d.Log,
		Keys:      k.signing,
		PDP:       func() *pdp.PDP { return p.PDP },
		Mask:      func(ctx context.Context) *mask.Masker { return b.live.pinned(ctx).mask },
		KeyOf:     r.logKeys,
		IssuerURL: l.issuerURL,
		ListURL:   func(name string) string { return l.url() + capabilities.StatusPath + name },
		Elapsed:   b.config.Program.elapsed,
		Terms: broker.Terms{
			MaxLifetime:     c.MaxLifetime,
			DefaultLifetime: c.DefaultLifetime,
			ProofAge:        c.ProofAge,
			Skew:            c.ClockSkew,
			NonceAlways:     c.Nonce == "required",
			StatusTTL:       max(time.Second, c.StatusTTL.Truncate(time.Second)),
		},
		Logger: b.log,
	}
	if r != nil {
		kept.Engine, kept.Origin = r.Engine(cluster.Capabilities, store.EngineErrors()), r.Origin()
		kept.Behind, kept.Room, kept.Lost, kept.Generation = r.Behind, r.Room, r.lost, r.Generation()
		o.NonceKey, o.Clock, o.Shown = r.NonceKey(), r.Clock, r.Shown
	}
	o.Store = kept
	opened, err := broker.Open(o)
	if err != nil {
		if r != nil {
			return err
		}
		b.log.Error("the capabilities cannot be opened; requests that show one are not answered until a restart", "error", err)
		into.Closed = err
		return nil
	}
	b.lifetime.add("capabilities", closing(opened.Store.Close))
	into.Broker, into.Count = opened, b.telemetry.Grants.Count
	return nil
}
