package server

import (
	"strings"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
)

// noticing returns what compares keys with those of the last time, and records what
// changed: other processes add, revoke and rotate them. The first time it records
// what there is, because much may have happened while nobody looked.
func (s *Server) noticing() func() {
	keys := map[string]auth.KeyInfo{}
	kid, first := "", true
	return func() {
		if known, ok := s.live.Load().callers.(*auth.Authenticator); ok && known.Keys != nil && known.Keys.Err() == nil {
			all := known.Keys.List()
			if first && len(all) > 0 {
				s.events.soon(event{decisionlog.EventAPIKeys, map[string]any{"keys": all}})
			}
			for _, key := range all {
				s.noticeKey(keys, key, first)
			}
		}
		if now := s.signing.Current().KeyID(); now != kid {
			name := decisionlog.EventSigningKeyChanged
			if first {
				name = decisionlog.EventSigningKey
			}
			s.events.soon(event{name, map[string]any{"kid": now}})
			kid = now
		}
		first = false
	}
}

func (s *Server) noticeKey(seen map[string]auth.KeyInfo, key auth.KeyInfo, first bool) {
	before, known := seen[key.ID]
	seen[key.ID] = key
	switch {
	case first: // told with the others
	case !known:
		s.events.soon(event{decisionlog.EventAPIKeyAdded, key})
	case before.Revoked.IsZero() && !key.Revoked.IsZero():
		s.events.soon(event{decisionlog.EventAPIKeyRevoked, key})
	}
}

// refusedEvent is a bundle that was not taken. One mistake can make thousands of problems,
// and who edits a tenant's policies makes such a record as often as they like: all are
// counted, and the first are said.
func refusedEvent(inForce string, problems pdp.Problems) event {
	texts := []string{}
	for n, room := 0, 2<<10; n < len(problems) && room > 0; n++ {
		text := problems[n].String()
		text = strings.ToValidUTF8(text[:min(len(text), room)], "")
		texts, room = append(texts, text), room-len(text)
	}
	return event{decisionlog.EventBundleRefused, map[string]any{"in_force": inForce, "count": len(problems), "problems": texts}}
}
