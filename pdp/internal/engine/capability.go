package engine

import (
	"context"
	"strings"

	"policy-service/evaluation"
)

// NeedCapability changes a deny, for which no more is to be said, if it would be an allow of a call that holds a
// capability: then the caller can ask for one. Nothing is asked if no policy can see capabilities.
func (in *Inquiry) NeedCapability(ctx context.Context, w *Verdict, d *evaluation.Decision) error {
	if d.Allow || d.Reason != "" || w.view == nil || !w.view.SeesCapability || in.Capability.Held || in.Request.Unknown != nil {
		return nil
	}
	r := &in.Request
	again := Inquiry{
		Bundle: in.Bundle, Request: in.Request, Asker: in.Asker, Now: in.Now, Hidden: in.Hidden, Masked: in.Masked,
		NoMismatch: true, Capability: evaluation.Capability{Held: true},
	}
	in.countConverted(r.Subject.Properties, r.Action.Properties, r.Resource.Properties, r.Context)
	var second Verdict
	if err := again.Judge(ctx, &second); err != nil || !second.Decision.Allow {
		return err
	}
	d.Reason = evaluation.CapabilityRequired
	audience, _, _ := strings.Cut(r.Resource.ID, ":")
	d.Capability = &evaluation.CapabilityAnswer{Audience: audience, Tools: []string{r.Resource.ID}, NextAction: "request"}
	return nil
}
