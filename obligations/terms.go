package obligations

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"policy-service/evaluation"
)

// Terms are the properties of an obligation of type [ApprovalRequired], which ask for an
// approval.
type Terms struct {
	// Template says which persons are asked, and how: policies distinguish approvers by it.
	Template string `json:"template"`
	// Quorum is how many people must approve.
	Quorum int `json:"quorum"`
	// Timeout is how long an approval request waits, ValidFor how long what was
	// approved may be used, Uses how often.
	Timeout  time.Duration `json:"timeout"`
	ValidFor time.Duration `json:"valid_for"`
	Uses     int           `json:"uses"`
	// Rounds is how many follow-up questions belong to one use of an approval, and
	// RoundsWithin how long after the use they may come; 0 if there are none.
	Rounds       int           `json:"rounds,omitzero"`
	RoundsWithin time.Duration `json:"rounds_within,omitzero"`
	// Material are the members of the request that the approval is bound to, besides
	// the types, ids and names that it is always bound to; sorted.
	Material []string `json:"material,omitzero"`
	// Message is shown to the approver.
	Message string `json:"message,omitzero"`
	// Delegable lets an approver name another in their place.
	Delegable bool `json:"delegable,omitzero"`
	// SameClient lets people vote through the very client that asks.
	SameClient bool `json:"same_client,omitzero"`
	// Review has an approver see each argument of a call as a field of its own. Otherwise the
	// approver is asked for yes or no.
	Review bool `json:"review,omitzero"`
}

// The forms that an obligation can have approvers shown.
const (
	FormApprove = "approve"
	FormReview  = "review"
)

// The terms of an obligation that does not say otherwise.
const (
	DefaultTimeout      = time.Hour
	DefaultValidFor     = 10 * time.Minute
	DefaultRoundsWithin = 15 * time.Minute
)

// DefaultMaterial is the whole request. A bundle whose context has volatile members lists less.
var DefaultMaterial = []string{"action", "context", "resource", "subject"}

// TermsOf reads the terms of an obligation. One without a template says nothing of
// who could approve, and has none; and neither has what no load would have let pass.
func TermsOf(o evaluation.Obligation) (t Terms, ok bool) {
	if o.Type != ApprovalRequired {
		return t, false
	}
	properties := o.Properties
	text := func(name string) string {
		v, _ := properties.Get(name)
		return v.Text()
	}
	t = Terms{Template: text("template"), Message: text("message"), Material: DefaultMaterial}
	if t.Template == "" {
		return t, false
	}
	var ok1, ok2, ok3, ok4, ok5, ok6 bool
	t.Quorum, ok1 = number(properties, "quorum", 1, 1, mostPeople)
	t.Uses, ok2 = number(properties, "uses", 1, 1, mostPeople)
	t.Rounds, ok5 = number(properties, "rounds", 0, 0, evaluation.MostRounds)
	t.Timeout, ok3 = span(text("timeout"), DefaultTimeout)
	t.ValidFor, ok4 = span(text("valid_for"), DefaultValidFor)
	if t.RoundsWithin, ok6 = span(text("rounds_within"), DefaultRoundsWithin); t.Rounds == 0 {
		t.RoundsWithin = 0
	}
	if v, given := properties.Get("material"); given {
		t.Material = nil
		for _, name := range v.Elements {
			t.Material = append(t.Material, name.Text())
		}
		slices.Sort(t.Material)
		t.Material = slices.Compact(t.Material)
	}
	delegable, _ := properties.Get("delegable")
	sameClient, _ := properties.Get("same_client")
	t.Delegable, t.SameClient = delegable.True(), sameClient.True()
	form := text("form")
	t.Review = form == FormReview
	return t, ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && (form == "" || form == FormApprove || t.Review)
}

// GrantTerms are the properties of obligations of type [CapabilityTerms]: what bounds a capability that is granted. What is 0
// bounds nothing.
type GrantTerms struct {
	MaxDuration time.Duration `json:"max_duration,omitzero"`
	MaxUses     int           `json:"max_uses,omitzero"`
	// Online has it verified by the service alone.
	Online bool `json:"online,omitzero"`
	// Session says that it has to be bound to a session.
	Session bool `json:"session,omitzero"`
	// Generations are how many capabilities there may be in a line that hands one on to the next, with the first: one more
	// than max_depth.
	Generations int `json:"generations,omitzero"`
}

// mostUses bounds the uses of a capability.
const mostUses = 1_000_000

// GrantTermsOf reads the terms of an obligation. One of another type has none. It reports false if they cannot be read.
func GrantTermsOf(o evaluation.Obligation) (t GrantTerms, ok bool) {
	if o.Type != CapabilityTerms {
		return t, true
	}
	duration, _ := o.Properties.Get("max_duration")
	t.MaxDuration, ok = span(duration.Text(), 0)
	uses, fits := number(o.Properties, "max_uses", 0, 1, mostUses)
	depth, within := number(o.Properties, "max_depth", -1, 0, mostDepth)
	channel, bound := o.Properties.Get("channel")
	offline, given := o.Properties.Get("offline")
	t.MaxUses, t.Session, t.Generations, t.Online = uses, bound, depth+1, given && !offline.True()
	return t, ok && fits && within && (!bound || channel.Text() == ChannelSession)
}

// mostDepth is how often a capability can be handed on in a row.
const mostDepth = 2

// ChannelSession is the only value of the property channel.
const ChannelSession = "session"

// Narrower are the terms that bound by both.
func (t GrantTerms) Narrower(other GrantTerms) GrantTerms {
	return GrantTerms{
		MaxDuration: least(t.MaxDuration, other.MaxDuration),
		MaxUses:     least(t.MaxUses, other.MaxUses),
		Online:      t.Online || other.Online,
		Session:     t.Session || other.Session,
		Generations: least(t.Generations, other.Generations),
	}
}

// least is the lesser of two bounds, of which 0 is none.
func least[T int | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// mostPeople bounds quorum and uses: more is a slip of the pen.
const mostPeople = 1000

// number reads a whole number within bounds.
func number(properties evaluation.Object, name string, absent, least, most int64) (int, bool) {
	v, given := properties.Get(name)
	if !given {
		return int(absent), true
	}
	n, ok := v.Scaled(0)
	if !ok || n < least || n > most {
		return int(least), false
	}
	return int(n), true
}

// longestSpan bounds how long anything here can wait, or hold.
const longestSpan = 366 * 24 * time.Hour

// span reads 90s, 10m or 1h.
func span(text string, absent time.Duration) (time.Duration, bool) {
	if text == "" {
		return absent, true
	}
	unit, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}[text[len(text)-1]]
	n, err := strconv.ParseInt(text[:len(text)-1], 10, 32)
	d := time.Duration(n) * unit
	return d, ok && err == nil && n >= 1 && time.Duration(n) <= longestSpan/unit
}

// IsMaterial reports whether a name in material means something: a part of the
// request, or one member of its context.
func IsMaterial(name string) bool {
	if slices.Contains(DefaultMaterial, name) {
		return true
	}
	member, ok := strings.CutPrefix(name, "context.")
	// Only the PDP sets context.pdp and context.action, so no approval is bound to them.
	return ok && member != "" && member != "pdp" && member != "action" && !evaluation.Protocol(member)
}
