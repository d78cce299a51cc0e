package server

import (
	"context"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/decisionlog/mask"
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

// openApprovalKey reads the key of the approvals, if the server will record decisions.
func (s *Server) openApprovalKey() ([]byte, error) {
	if s.config.Data == "" || s.config.Program.PDP.Recorder != nil {
		return nil, nil
	}
	return broker.OpenKey(s.config.Data)
}

// openApprovals opens the file of approvals with its key. A server has approvals if it records decisions, because each
// step of an approval is on record.
func (s *Server) openApprovals(key []byte) (err error) {
	if s.decisions == nil {
		return nil
	}
	c := s.config.Approvals
	kept := approval.Options{
		Key:     key,
		Now:     s.now,
		Retain:  c.Retain,
		InForce: s.mayApprove,
		Limits: approval.Limits{
			MaxPendingPerSubject:   int(c.MaxPendingPerSubject),
			MaxPendingPerTenant:    int(c.MaxPendingPerTenant),
			MaxPendingPerCaller:    int(c.MaxPendingPerCaller),
			NewPerMinutePerSubject: int(c.NewPerMinutePerSubject),
			NewPerMinutePerCaller:  int(c.NewPerMinutePerCaller),
		},
	}
	s.approvalsOnCluster(&kept)
	b, err := broker.Open(broker.Options{
		Data:       s.config.Data,
		Store:      kept,
		Log:        s.decisions.log,
		Keys:       s.keys.signing,
		Sealer:     s.keys.pages.sealer,
		PDP:        func() *pdp.PDP { return s.pdp },
		Mask:       func(ctx context.Context) *mask.Masker { return s.live.pinned(ctx).mask },
		KeyOf:      s.logKeys,
		IssuerURL:  s.issuerURL,
		Approvers:  s.approvers,
		Persons:    s.persons,
		ConsoleURL: s.listeners.consoleURL,
		Count:      s.telemetry.Approvals.Count,
		Refused:    s.approvals.Refused,
		Webhooks:   c.Webhooks,
		Callbacks:  c.Callbacks,
		Logger:     s.log,
	})
	if err != nil {
		return err
	}
	s.lifetime.add("approvals", closing(b.Store.Close))
	s.approvals.Broker, s.config.Program.PDP.Approvals = b, b
	return nil
}

// mayApprove reports whether a credential may still approve in a tenant, with the gateway that relayed it if there was
// one. A program that embeds the server, and tells callers apart itself, says so by methods of its own.
func (s *Server) mayApprove(tenant, caller, gateway string) bool {
	callers := s.live.Load().callers
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
func (s *Server) persons(caller string, entity auth.Principal) []string {
	known, says := s.live.Load().callers.(*auth.Authenticator)
	if !says {
		known = &auth.Authenticator{}
	}
	return known.Persons(caller, entity)
}

// approvers are those who may approve in a tenant. A program that embeds the server, and tells callers apart itself, says
// so by a method of its own, or says nothing.
func (s *Server) approvers(tenant string) (keys []auth.Caller, types []string) {
	if known, says := s.live.Load().callers.(interface {
		Approvers(tenant string) (keys []auth.Caller, types []string)
	}); says {
		return known.Approvers(tenant)
	}
	return nil, nil
}

// issuerURL is the URL by which a tenant's decisions are asked for, "" if it is not known. Tokens are by it and for it.
func (s *Server) issuerURL(tenant string) string {
	base := s.listeners.base()
	if base == "" || tenant == evaluation.DefaultTenant {
		return base
	}
	return base + "/tenants/" + tenant
}
