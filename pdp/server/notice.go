package server

import (
	"strings"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/recorder"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/signing"
)

// keyWatch records how other processes change the keys: they add, revoke and rotate them.
type keyWatch struct {
	events  *recorder.Events
	signing *signing.Keys
	live    *inForce

	// What it saw when it looked last; keys is nil before it looks for the first time.
	keys map[string]auth.KeyInfo
	kid  string
}

// look compares the keys with those of the last time. The first time it records what there is, because much may have
// happened while no server ran.
func (w *keyWatch) look() {
	first := w.keys == nil
	if first {
		w.keys = map[string]auth.KeyInfo{}
	}
	if known, ok := w.live.Load().callers.(*auth.Authenticator); ok && known.Keys != nil && known.Keys.Err() == nil {
		all := known.Keys.List()
		if first && len(all) > 0 {
			w.events.Soon(recorder.Event{Name: decisionlog.EventAPIKeys, Details: map[string]any{"keys": all}})
		}
		for _, key := range all {
			before, known := w.keys[key.ID]
			w.keys[key.ID] = key
			switch {
			case first: // it is recorded with the others
			case !known:
				w.events.Soon(recorder.Event{Name: decisionlog.EventAPIKeyAdded, Details: key})
			case before.Revoked.IsZero() && !key.Revoked.IsZero():
				w.events.Soon(recorder.Event{Name: decisionlog.EventAPIKeyRevoked, Details: key})
			}
		}
	}
	if now := w.signing.Current().KeyID(); now != w.kid {
		name := decisionlog.EventSigningKeyChanged
		if first {
			name = decisionlog.EventSigningKey
		}
		w.events.Soon(recorder.Event{Name: name, Details: map[string]any{"kid": now}})
		w.kid = now
	}
}

// refusedEvent is a bundle that was refused. One mistake can make thousands of problems, and a person who edits a
// tenant's policies makes such a record as often as they like. So the record counts all problems and quotes the first.
func refusedEvent(inForce string, problems pdp.Problems) recorder.Event {
	texts := []string{}
	for n, room := 0, 2<<10; n < len(problems) && room > 0; n++ {
		text := problems[n].String()
		text = strings.ToValidUTF8(text[:min(len(text), room)], "")
		texts, room = append(texts, text), room-len(text)
	}
	return recorder.Event{
		Name:    decisionlog.EventBundleRefused,
		Details: map[string]any{"in_force": inForce, "count": len(problems), "problems": texts},
	}
}
