package server

import (
	"strings"
	"sync/atomic"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/signing"
)

// keyWatch records how other processes change the keys, and all API keys in each segment of the log.
type keyWatch struct {
	events  *recorder.Events
	rotated *atomic.Bool
	signing *signing.Keys
	keys    *keys.Keys // nil without any to record
	kid     string     // that it saw last
}

// look reads the API keys, which record what has changed, and compares the signing key with that of the last time.
func (w *keyWatch) look() {
	if w.keys != nil && w.keys.Err() == nil && w.rotated.Swap(false) {
		w.events.Soon(w.keys.AllKeys())
	}
	if now := w.signing.Current().KeyID(); now != w.kid {
		name := format.EventSigningKeyChanged
		if w.kid == "" {
			name = format.EventSigningKey
		}
		w.events.Soon(recorder.Event{Name: name, Details: map[string]any{"kid": now}})
		w.kid = now
	}
}

// refusedEvent is a bundle that was refused. One mistake can make thousands of problems, and a person who edits a
// tenant's policies makes such a record as often as they like. So the record counts all problems and quotes the first. Tenants
// are those that are refused, if the whole bundle is not.
func refusedEvent(inForce string, problems pdp.Problems, tenants []string) recorder.Event {
	texts := []string{}
	for n, room := 0, 2<<10; n < len(problems) && room > 0; n++ {
		text := problems[n].String()
		text = strings.ToValidUTF8(text[:min(len(text), room)], "")
		texts, room = append(texts, text), room-len(text)
	}
	tenants, _ = firstOf(tenants)
	return recorder.Event{
		Name:    format.EventBundleRefused,
		Details: map[string]any{"in_force": inForce, "count": len(problems), "problems": texts, "tenants": tenants},
	}
}
