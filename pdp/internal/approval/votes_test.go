package approval_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
)

// byForm is the vote of a person whose token a gateway brought.
func byForm(name string) approval.Vote {
	v := by(name)
	v.Via, v.Gateway = evaluation.ViaForm, "key:gw"
	return v
}

// The way of a vote is on record, and no other way can be put in its place: not in the log without the key, and not by a
// file that is older than the log.
func TestWayOfAVoteIsSealed(t *testing.T) {
	t.Parallel()
	own := by("mia")
	own.Via = evaluation.ViaAPI
	through := byForm("mia")
	through.Client = evaluation.Ref{Type: "agent", ID: "desk"}
	for _, v := range []approval.Vote{byForm("mia"), own, through} {
		testSealed(t, v)
	}
}

func testSealed(t *testing.T, v approval.Vote) {
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	q := question("a")
	a := mustFile(t, s, q)
	must(t, s.Close())
	old, err := os.ReadFile(filepath.Join(data, approval.FileName))
	must(t, err)
	s = mustOpen(t, data, r.options())
	got, want := mustDecide(t, s, a.ID, v), evaluation.Way{Via: v.Via, Gateway: v.Gateway, Client: v.Client}
	if got.Votes[0].Way() != want {
		t.Errorf("the vote came by %+v", got.Votes[0].Way())
	}
	step := r.Steps[len(r.Steps)-2]
	if step.Name != approval.StepApprove || step.Via != v.Via || step.Gateway != v.Gateway || step.Client != v.Client {
		t.Errorf("on record is %+v", step)
	}
	must(t, s.Close())
	for name, change := range map[string]func(*approval.Step){
		"as it was":       func(*approval.Step) {},
		"another way":     func(s *approval.Step) { s.Via = evaluation.ViaConsole },
		"no way":          func(s *approval.Step) { s.Via, s.Gateway = "", "" },
		"another gateway": func(s *approval.Step) { s.Gateway = "key:other" },
		"no gateway":      func(s *approval.Step) { s.Gateway = "" },
		"another client":  func(s *approval.Step) { s.Client.ID = "other" },
		"no client":       func(s *approval.Step) { s.Client = evaluation.Ref{} },
	} {
		changed := step
		change(&changed)
		same := changed.Via == step.Via && changed.Gateway == step.Gateway && changed.Client == step.Client
		for file, content := range map[string][]byte{"the file as it is": nil, "an older file": old} {
			dir, r := quick(t), r.copy()
			whole, err := os.ReadFile(filepath.Join(data, approval.FileName))
			must(t, err)
			if content != nil {
				whole = content
			}
			must(t, os.WriteFile(filepath.Join(dir, approval.FileName), whole, 0o600))
			r.Steps = slices.Clone(r.Steps)
			change(&r.Steps[len(r.Steps)-2])
			s := mustOpen(t, dir, r.options())
			spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d"))
			if spent != same || err != nil {
				t.Errorf("%s, %s, %s: spent %t, %v", v.Via, name, file, spent, err)
			}
			if got, _, _ := s.Get(t.Context(), a.ID); same && got.Votes[0].Way() != want {
				t.Errorf("%s: the vote came by %+v", file, got.Votes[0].Way())
			}
		}
	}
}

// A file that says another way of a vote than the log does is not believed, though it was written with the key.
func TestWayInTheFile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"as it was":       {`"via":"form"`, `"via":"form"`},
		"another way":     {`"via":"form"`, `"via":"console"`},
		"another gateway": {`"gateway":"key:gw"`, `"gateway":"key:other"`},
		"no way":          {`"via":"form","gateway":"key:gw"`, `"via":"mcp"`},
	} {
		r, data := newRecord(), quick(t)
		s := mustOpen(t, data, r.options())
		a := mustFile(t, s, question("a"))
		mustDecide(t, s, a.ID, byForm("mia"))
		must(t, s.Close())
		edit(t, data, func(tx *bbolt.Tx) error {
			return approval.EditApproval(tx, key, a.ID, func(text string) string {
				if strings.Count(text, change[0]) != 1 {
					t.Errorf("it is stored as %s", text)
				}
				return strings.Replace(text, change[0], change[1], 1)
			})
		})
		s = mustOpen(t, data, r.options())
		if spent, err := spend(t.Context(), s, a.ID, a.Digest, "d", r.decide("d")); spent != (name == "as it was") || err != nil {
			t.Errorf("%s: spent %t, %v", name, spent, err)
		}
	}
}

// A credential has one holder, whatever names its tokens gave: votes by it are those of one person.
func TestOneCredentialIsOnePerson(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	a := mustFile(t, s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Quorum, q.Terms.Delegable = 2, true }))
	named := func(name, caller string) approval.Vote {
		return approval.Vote{Statement: approval.Statement{By: name}, Caller: caller, Kind: approval.Approve}
	}
	mustDecide(t, s, a.ID, named("mia", "jwt:i#1"))
	if _, err := s.Decide(t.Context(), a.ID, 0, named("mia.admin", "jwt:i#1"), all, equal); !errors.Is(err, approval.ErrVoted) {
		t.Errorf("by another name: %v", err)
	}
	if _, err := s.Decide(t.Context(), a.ID, 0, named("mia", "jwt:other#1"), all, equal); !errors.Is(err, approval.ErrVoted) {
		t.Errorf("by another credential: %v", err)
	}
	if got := mustDecide(t, s, a.ID, named("ben", "jwt:i#2")); got.Status != approval.Approved {
		t.Errorf("another person: %+v", got)
	}
}

// What a gateway brought counts as long as the gateway may bring it.
func TestRevokedGatewayDoesNotCount(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o, gone := r.options(), false
	o.InForce = func(_, caller, gateway string) bool { return gateway == "" || gateway == "key:gw" && !gone }
	s := mustOpen(t, quick(t), o)
	a := mustFile(t, s, question("a"))
	mustDecide(t, s, a.ID, byForm("mia"))
	gone = true
	r.refuses(t, "what a revoked gateway brought is used", s, a.ID, a.Digest, "d")
	if got, _, _ := s.Get(t.Context(), a.ID); got.Status != approval.Pending || len(got.Votes) != 0 {
		t.Errorf("it is %+v", got)
	}
	if got := mustDecide(t, s, a.ID, by("mia")); got.Status != approval.Approved {
		t.Errorf("she may not say it herself: %+v", got)
	}
}

// What is offered is on record, and changes nothing.
func TestOffer(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	q := question("a", func(q *approval.ApprovalRequest) { q.Terms.Quorum = 2 })
	a := mustFile(t, s, q)
	must(t, s.Offer(t.Context(), a.ID, byForm("mia"), equal))
	mustDecide(t, s, a.ID, byForm("mia"))
	must(t, s.Offer(t.Context(), a.ID, byForm("ben"), equal))
	must(t, s.Offer(t.Context(), a.ID, byForm("ben"), equal))
	got, _, _ := s.Get(t.Context(), a.ID)
	if want := []string{"filed", "offered", "approve", "offered", "offered"}; !slices.Equal(r.names(a.ID), want) || got.Version != 2 || len(got.Votes) != 1 {
		t.Errorf("on record is %v, and it is %+v", r.names(a.ID), got)
	}
	last := r.Steps[len(r.Steps)-1]
	if last.By != "ben" || last.Caller != "key:ben" || last.Via != evaluation.ViaForm || last.Gateway != "key:gw" || last.Approval.Version != 2 || last.Seal == "" {
		t.Errorf("on record is %+v", last)
	}
	// A file that a crash left behind what was offered is not behind the log by that.
	must(t, s.Close())
	s = mustOpen(t, data, r.options())
	if names := r.names(a.ID); slices.Contains(names, approval.StepCaughtUp) {
		t.Errorf("on record is %v", names)
	}
	r.Set(true, false, false)
	if err := s.Offer(t.Context(), a.ID, byForm("ben"), equal); !errors.Is(err, approval.ErrUnrecorded) {
		t.Errorf("what cannot be recorded is offered: %v", err)
	}
	r.Set(false, false, false)
	if got := mustDecide(t, s, a.ID, byForm("ben")); got.Status != approval.Approved {
		t.Errorf("it is %+v", got)
	}
	var state *approval.StateError
	if err := s.Offer(t.Context(), a.ID, byForm("zoe"), equal); !errors.As(err, &state) || state.Status != approval.Approved {
		t.Errorf("what is approved is offered: %v", err)
	}
	late := mustFile(t, s, question("b"))
	r.Pass(2 * time.Hour)
	if err := s.Offer(t.Context(), late.ID, byForm("zoe"), equal); !errors.As(err, &state) || state.Status != approval.Expired {
		t.Errorf("what is expired is offered: %v", err)
	}
	if err := s.Offer(t.Context(), "none", byForm("zoe"), equal); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("what is not there is offered: %v", err)
	}
}

// Whoever has voted is offered no form, by another name or credential either; and is again once that vote does not count.
func TestOfferedToWhoHasVoted(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o, gone := r.options(), false
	o.InForce = func(_, _, gateway string) bool { return !gone || gateway != "key:gw" }
	s := mustOpen(t, quick(t), o)
	a := mustFile(t, s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Quorum = 2 }))
	mustDecide(t, s, a.ID, byForm("mia"))
	same := func(a, b string) bool { return a == b || a+"@home" == b }
	again := func(by, caller string) error {
		return s.Offer(t.Context(), a.ID, approval.Vote{Statement: approval.Statement{By: by, Via: evaluation.ViaForm, Gateway: "key:other"}, Caller: caller}, same)
	}
	for name, err := range map[string]error{
		"she herself":            again("mia", "key:mia"),
		"by another credential":  again("mia", "jwt:i#mia"),
		"by another name":        again("mia@home", "jwt:i#mia"),
		"by a name nobody knows": again("m.", "key:mia"),
	} {
		if !errors.Is(err, approval.ErrVoted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone = true
	must(t, again("mia", "key:mia"))
	if want := []string{"filed", "approve", "offered"}; !slices.Equal(r.names(a.ID), want) {
		t.Errorf("on record is %v", r.names(a.ID))
	}
}

// What a person says in another's place counts as long as what named them does: the gateway that brought that included.
func TestDelegateOfARevokedGateway(t *testing.T) {
	t.Parallel()
	r := newRecord()
	o, gone := r.options(), false
	o.InForce = func(_, _, gateway string) bool { return !gone || gateway != "key:gw" }
	s := mustOpen(t, quick(t), o)
	a := mustFile(t, s, question("a", func(q *approval.ApprovalRequest) { q.Terms.Quorum, q.Terms.Delegable = 2, true }))
	names := byForm("mia")
	names.Kind, names.To = approval.Delegate, "lena"
	mustDecide(t, s, a.ID, names)
	stands := by("lena")
	stands.From = "mia"
	mustDecide(t, s, a.ID, stands)
	gone = true
	if got := mustDecide(t, s, a.ID, by("ben")); got.Status != approval.Pending || len(got.Votes) != 1 {
		t.Errorf("it is %+v", got)
	}
	if want := []string{"filed", "delegate", "approve", "lapsed", "lapsed", "approve"}; !slices.Equal(r.names(a.ID), want) {
		t.Errorf("on record is %v", r.names(a.ID))
	}
}
