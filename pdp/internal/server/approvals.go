package server

import (
	"context"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/server/approvals"
	"policy-service/pdp/internal/server/auth"
)

// ApprovalsConfig bounds the questions to people.
type ApprovalsConfig struct {
	MaxPendingPerSubject int64 `yaml:"max_pending_per_subject" default:"200" min:"1" max:"1000000" doc:"How many approval requests of one person, or of one subject if the question names no person (context.person), may wait at once in one tenant."`
	MaxPendingPerTenant  int64 `yaml:"max_pending_per_tenant" default:"10000" min:"1" max:"1000000" doc:"How many approval requests of one tenant may wait at once."`
	// MaxPendingPerCaller is half of MaxPendingPerTenant unless it is given, so that one caller leaves room for
	// others.
	MaxPendingPerCaller    int64 `yaml:"max_pending_per_caller" min:"1" max:"1000000" doc:"How many approval requests that one caller caused may wait at once in one tenant. Half of max_pending_per_tenant unless given."`
	NewPerMinutePerSubject int64 `yaml:"new_per_minute_per_subject" default:"60" min:"1" max:"1000000" doc:"How many new approval requests one person, or one subject if the question names no person, may cause in one tenant in a minute."`
	// NewPerMinutePerCaller is ten times NewPerMinutePerSubject unless it is given.
	NewPerMinutePerCaller int64 `yaml:"new_per_minute_per_caller" min:"1" max:"10000000" doc:"How many new approval requests one caller may cause in one tenant in a minute. Ten times new_per_minute_per_subject unless given."`
	// Retain is how long approval requests are kept here after they have ended. decision_log.retain says how long the
	// decision log keeps its records of them.
	Retain time.Duration `yaml:"retain" default:"720h" min:"1h" doc:"How long the service keeps approval requests that have ended, like 30d. The decision log keeps its records of them."`
	// Callbacks are the addresses at which programs may receive the outcome of their approval requests.
	Callbacks []broker.CallbackConfig `yaml:"callbacks" doc:"Where callers that file approval requests may be told of the outcome, by signed POSTs. The service accepts no other callback."`
	// Webhooks are the systems that receive each approval request that is filed, and each that waits no longer.
	Webhooks []webhook.Config `yaml:"webhooks" doc:"Systems that are told of every approval request, by signed POSTs."`
}

// openApprovals opens the approvals. A server has some if it records decisions, because each step of an approval is on record.
func openApprovals(b *base, a *approvals.Approvals, k ownKeys, d *decisionLog, r *replica, p *policies, l *listeners) error {
	if d == nil {
		return nil
	}
	c := b.config.Approvals
	kept := approval.Options{
		Key:     k.approvals,
		Now:     b.now,
		Retain:  c.Retain,
		InForce: b.mayApprove,
		Limits: approval.Limits{
			MaxPendingPerSubject:   int(c.MaxPendingPerSubject),
			MaxPendingPerTenant:    int(c.MaxPendingPerTenant),
			MaxPendingPerCaller:    int(c.MaxPendingPerCaller),
			NewPerMinutePerSubject: int(c.NewPerMinutePerSubject),
			NewPerMinutePerCaller:  int(c.NewPerMinutePerCaller),
		},
	}
	if r != nil {
		kept.Engine, kept.Origin = r.Engine(cluster.Approvals, approval.EngineErrors()), r.Origin()
		kept.Behind, kept.Room, kept.Lost, kept.Generation = r.Behind, r.Room, r.lost, r.Generation()
	}
	opened, err := broker.Open(broker.Options{
		Data:       b.config.Data,
		Store:      kept,
		Log:        d.Log,
		Keys:       k.signing,
		Sealer:     k.pages.sealer,
		PDP:        func() *pdp.PDP { return p.PDP },
		Mask:       func(ctx context.Context) *mask.Masker { return b.live.pinned(ctx).mask },
		KeyOf:      r.logKeys,
		IssuerURL:  l.issuerURL,
		Approvers:  b.approvers,
		Persons:    b.persons,
		ConsoleURL: l.consoleURL,
		Count:      b.telemetry.Approvals.Count,
		Refused:    a.Refused,
		Webhooks:   c.Webhooks,
		Callbacks:  c.Callbacks,
		Logger:     b.log,
	})
	if err != nil {
		return err
	}
	b.lifetime.add("approvals", closing(opened.Store.Close))
	a.Broker = opened
	return nil
}

// mayApprove reports whether a credential may still approve in a tenant, with the gateway that relayed it if there was
// one. A program that embeds the server, and tells callers apart itself, says so by methods of its own.
func (b *base) mayApprove(tenant, caller, gateway string) bool {
	callers := b.live.Load().callers
	if gateway != "" {
		known, says := callers.(interface {
			RelayInForce(tenant, caller, gateway string) bool
		})
		return says && known.RelayInForce(tenant, caller, gateway)
	}
	known, says := callers.(interface {
		InForce(tenant, caller string) bool
	})
	return !says || known.InForce(tenant, caller)
}

// persons are what context.person may be of the holder of a credential. A program that embeds the server, and tells callers
// apart itself, knows of no other names of theirs than that of a token.
func (b *base) persons(caller string, entity auth.Principal) []string {
	known, says := b.live.Load().callers.(*auth.Authenticator)
	if !says {
		known = &auth.Authenticator{}
	}
	return known.Persons(caller, entity)
}

// approvers are those who may approve in a tenant. A program that embeds the server, and tells callers apart itself, says
// so by a method of its own, or says nothing.
func (b *base) approvers(tenant string) (keys []auth.Caller, types []string) {
	if known, says := b.live.Load().callers.(interface {
		Approvers(tenant string) (keys []auth.Caller, types []string)
	}); says {
		return known.Approvers(tenant)
	}
	return nil, nil
}
