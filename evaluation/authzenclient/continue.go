package authzenclient

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// Continuation is a permit by an approval that has more than one round: the permitted call asks
// for input before it is done, and comes back with it, when the approval's use is spent. It is
// JSON, and permits nothing. The PDP takes each round once, from the caller that spent the approval, for
// the request that people approved, and as often and as long as they were shown.
type Continuation struct{ kept continued }

// continued is a Continuation as it is written.
type continued struct {
	Version  int    `json:"version"`
	PDP      string `json:"pdp"`
	Approval string `json:"approval"`
	// Decision spent the approval, and Round is how often it was gone on with since.
	Decision string `json:"decision"`
	Round    int    `json:"round"`
}

// continuationVersion goes up with whatever older programs would misread.
const continuationVersion = 1

// Continuation is the argument of [Client.Continue]. It is not ok where e permits nothing,
// rests on no approval, or on one that has no round left, or is of a PDP that does not name its
// decisions.
func (e Enforcement) Continuation() (k Continuation, ok bool) {
	k = e.of.by.next
	return k, e.Permitted() && e.of.by.rounds > 0 && k.whole()
}

// LastRound reports whether e permits by an approval from which nothing goes on, and names the
// obligation that the approval met, whose property rounds says so. If the permitted call asks for
// input before it is done, it is to be given up: asked anew, people would be asked anew.
func (e Enforcement) LastRound() (obligation string, is bool) {
	_, more := e.Continuation()
	return e.of.by.obligation, e.Permitted() && e.of.by.rests && !more
}

func (k Continuation) whole() bool {
	return k.kept.PDP != "" && k.kept.Approval != "" && k.kept.Decision != "" && k.kept.Round >= 0
}

// Continue asks for the next round of a call that was permitted by an approval, and declares as
// [Client.Decide] does. The request is the one that was permitted. It is sent again only where
// no connection was made: the PDP takes a round once.
func (c *Client) Continue(
	ctx context.Context, k Continuation, request evaluation.Request, types []string, options ...AskOption,
) Undischarged {
	if !k.whole() || k.kept.PDP != c.pdp() {
		return Undischarged{decision: denied("continue", notAsked("the continuation is of another PDP or tenant, or of none"))}
	}
	text, err := encode(struct {
		ID        string                  `json:"id"`
		Continues evaluation.Continuation `json:"continues"`
	}{k.kept.Approval, evaluation.Continuation{Decision: k.kept.Decision, Round: k.kept.Round + 1}})
	if err != nil {
		return Undischarged{decision: denied("continue", err)}
	}
	return c.Present(ctx, request, types, text, options...)
}

// String is for logs.
func (k Continuation) String() string {
	return "continuation of decision " + link.Printable(k.kept.Decision)
}

// MarshalJSON writes k; the zero Continuation cannot be.
func (k Continuation) MarshalJSON() ([]byte, error) {
	if !k.whole() {
		return nil, errors.New("authzen: a Continuation of nothing; keep the one of an Enforcement")
	}
	k.kept.Version = continuationVersion
	return json.Marshal(k.kept)
}

// UnmarshalJSON reads the JSON of MarshalJSON, and refuses members that it does not know.
func (k *Continuation) UnmarshalJSON(b []byte) error {
	var read Continuation
	err := json.Unmarshal(b, &read.kept, json.RejectUnknownMembers(true))
	if err != nil || read.kept.Version != continuationVersion || !read.whole() {
		return errors.New("authzen: the continuation is damaged, or of another version; ask anew")
	}
	*k = read
	return nil
}
