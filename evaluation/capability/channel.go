package capability

import "policy-service/evaluation"

// Channel is the connection of a call, as an enforcement point observed it.
type Channel struct {
	// Session is the id of the session, as the enforcement point gave it: one that cannot be guessed. A token has its hash
	// alone.
	Session string
}

// Hash is the form of a channel in a token, "" of none.
func (c Channel) Hash() string {
	if c.Session == "" {
		return ""
	}
	return digest([]byte(c.Session))
}

// sessionClaim is the claim of a token that is bound to a session.
func sessionClaim(hash string) map[string]any { return map[string]any{"session": hash} }

// channel is the member "channel", whose session is a text of at most most bytes. A member that is not known here could be a
// restriction, too.
func (r *reader) channel(o evaluation.Object, most int) (session string) {
	if _, there := o.Lookup("channel"); !there {
		return ""
	}
	o = r.object(o, false, "channel")
	r.only(o, []string{"channel"}, "session")
	return r.text(o, most, false, "channel", "session")
}
