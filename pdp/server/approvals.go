package server

import (
	"context"
	"fmt"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/approval/webhook"
	"policy-service/pdp/decisionlog/mask"
)

// ApprovalsConfig bounds what people are asked.
type ApprovalsConfig struct {
	MaxPendingPerSubject int64 `yaml:"max_pending_per_subject" default:"200" min:"1" max:"1000000" doc:"How many approval requests of one subject may wait at once in one tenant."`
	MaxPendingPerTenant  int64 `yaml:"max_pending_per_tenant" default:"10000" min:"1" max:"1000000" doc:"How many approval requests of one tenant may wait at once."`
	// MaxPendingPerCaller is a quarter of that, unless given: whoever asks, others can.
	MaxPendingPerCaller    int64 `yaml:"max_pending_per_caller" min:"1" max:"1000000" doc:"How many approval requests that one caller caused may wait at once in one tenant. A quarter of max_pending_per_tenant unless given. If one gateway asks for a whole tenant, give it as many as the tenant has."`
	NewPerMinutePerSubject int64 `yaml:"new_per_minute_per_subject" default:"60" min:"1" max:"1000000" doc:"How many new approval requests one subject may cause in one tenant in a minute."`
	// NewPerMinutePerCaller is ten times that, unless given.
	NewPerMinutePerCaller int64 `yaml:"new_per_minute_per_caller" min:"1" max:"10000000" doc:"How many new approval requests one caller may cause in one tenant in a minute. Ten times new_per_minute_per_subject unless given."`
	// Retain is how long what came of them is kept here; the decision log has its own.
	Retain time.Duration `yaml:"retain" default:"720h" min:"1h" doc:"How long the service keeps approval requests that have ended, like 30d. The decision log keeps its records of them."`
	// Callbacks are where programs may want to be told of what they asked for.
	Callbacks []CallbackConfig `yaml:"callbacks" doc:"Where callers that file approval requests may be told of the outcome, by signed POSTs. The service accepts no other callback."`
	// Webhooks are told of each request that is filed, and of each that waits no longer.
	Webhooks []webhook.Config `yaml:"webhooks" doc:"Systems that are told of every approval request, by signed POSTs."`
}

// approvals are the approvals of a server, and those who are told of them.
type approvals struct {
	*broker.Broker
	server *Server
	teller *broker.Teller
	// callbacks are by caller and address.
	callbacks map[callbackOf]*webhook.Sender
}

// openApprovals opens the file of approvals. A server has approvals if it records decisions, because each step of an
// approval is on record.
func (s *Server) openApprovals() (err error) {
	if s.decisions == nil {
		return nil
	}
	a := &approvals{server: s}
	c := s.config.Approvals
	a.Broker, err = broker.Open(broker.Options{
		Data: s.config.Data,
		Store: approval.Options{
			Now:        s.config.Program.PDP.Now,
			Key:        s.kept.key,
			Retain:     c.Retain,
			OnError:    a.failed,
			Silent:     len(c.Webhooks)+len(c.Callbacks) == 0,
			InForce:    a.inForce,
			SamePerson: a.samePerson,
			Limits: approval.Limits{
				MaxPendingPerSubject:   int(c.MaxPendingPerSubject),
				MaxPendingPerTenant:    int(c.MaxPendingPerTenant),
				MaxPendingPerCaller:    int(c.MaxPendingPerCaller),
				NewPerMinutePerSubject: int(c.NewPerMinutePerSubject),
				NewPerMinutePerCaller:  int(c.NewPerMinutePerCaller),
			},
		},
		Evidence:  s.kept.evidence,
		Log:       s.decisions.log,
		Keys:      s.keys.signing,
		Mask:      func(ctx context.Context) *mask.Masker { return s.live.pinned(ctx).mask },
		IssuerURL: s.issuerURL,
		Count:     s.telemetry.Approvals.Count,
		Refused:   func(limit *approval.LimitError) { s.door.Refused(limitOf(limit)) },
	})
	if err != nil {
		return fmt.Errorf("cannot open the approvals: %w; "+
			"another process may serve from this data directory, or the disk be full", err)
	}
	s.lifetime.add("approvals", closing(a.Store.Close))
	if err := a.mark(); err != nil {
		return err
	}
	s.approvals, s.config.Program.PDP.Approvals = a, a.Broker
	if a.callbacks, err = s.newCallbacks(); err != nil {
		return err
	}
	var sender *webhook.Sender
	if len(c.Webhooks) > 0 {
		if sender, err = webhook.New(c.Webhooks, webhook.Options{Logger: s.log}); err != nil {
			return fmt.Errorf("approvals.%w", err)
		}
	}
	a.teller = broker.NewTeller(a.Store, sender, a.callBack)
	return nil
}

func (a *approvals) failed(err error) {
	a.server.log.Error("approvals wait for something that failed; it is tried again", "error", err)
}

// limitOf is the word that a refusal is counted by.
func limitOf(limit *approval.LimitError) string {
	if limit.OfCaller {
		return "approvals_share"
	}
	return "approvals"
}

// issuerURL is the URL by which a tenant's decisions are asked for, "" if it is not known. Tokens are by it and for it.
func (s *Server) issuerURL(tenant string) string {
	base := s.listeners.base()
	if base == "" || tenant == evaluation.DefaultTenant {
		return base
	}
	return base + "/tenants/" + tenant
}
