package broker_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
	"policy-service/pdp/internal/ledger/ledgertest"
)

// key seals the approvals of replicas.
var key = bytes.Repeat([]byte{7}, 32)

// replicas are two brokers on one state, each with a log of its own. Each knows the other's key.
func replicas(t *testing.T) (here, there *world, engine ledger.Engine) {
	t.Helper()
	engine = bolt.New(bolt.Options{Path: filepath.Join(t.TempDir(), "values"), Errors: ledger.Errors{
		Unavailable: approval.ErrUnavailable, Closed: approval.ErrClosed, Locked: approval.ErrLocked,
		Damaged: approval.ErrDamaged, NotFound: approval.ErrNotFound,
	}})
	cluster := &ledgertest.Cluster{Below: engine}
	keys := map[string][]string{}
	one := func(o *broker.Options) {
		o.Store.Key, o.Store.Engine, o.Store.Origin = key, cluster.Process(), o.Log.Origin()
		o.KeyOf = func(origin string) ([]string, error) { return keys[origin], nil }
		known, err := segment.VerifierKeys(o.Data)
		if err != nil {
			t.Fatal(err)
		}
		keys[o.Log.Origin()] = known
	}
	here, there = open(t, one), open(t, one)
	there.n.Store(1000) // ids differ
	return here, there, engine
}

// approved is an approval that was filed and approved at a replica.
func (w *world) approved(resource string) approval.Approval {
	w.Helper()
	seen, err := w.See(w.Context(), person("mia"), w.asks("bot", resource, "").Approval.ID)
	w.must(err)
	a, err := seen.Decide(w.Context(), evaluation.Ruling{Decision: "approve", Reason: "fine"})
	w.must(err)
	return a
}

// TestAVoteBringsItsProof: what was approved at one replica is used at another by the proof of its log, once.
func TestAVoteBringsItsProof(t *testing.T) {
	t.Parallel()
	here, there, engine := replicas(t)
	a := here.approved("plan")
	if n := len(proofsIn(t, engine, a.ID)); n != 2 {
		t.Fatalf("there are %d proofs, of a vote and of what it brought about", n)
	}
	news := there.Store.News(nil)
	defer news.Close()
	if d := there.asks("bot", "plan", a.ID); !d.Allow || d.Approval != nil {
		t.Fatalf("with the approval: %+v", d)
	}
	for { // the answer does not wait for the record of the use
		_, _, err := here.Store.Get(t.Context(), a.ID)
		if !errors.Is(err, approval.ErrUnrecorded) {
			break
		}
		<-news.C
	}
	if d := here.asks("bot", "plan", a.ID); d.Allow && d.Approval == nil {
		t.Errorf("the approval counts twice: %+v", d)
	}
	if got, _, err := here.Store.Get(t.Context(), a.ID); err != nil || got.Status != approval.UsedUp {
		t.Errorf("it is %+v, %v", got, err)
	}
}

// proofsIn are the keys of the proofs of an approval.
func proofsIn(t *testing.T, engine ledger.Engine, id string) (keys []string) {
	t.Helper()
	prefix := "p/a/" + id + "/"
	err := engine.View(func(s ledger.State) error {
		return s.Range(prefix, prefix+"~", false, func(key string, _ []byte, _ ledger.Meta) bool {
			keys = append(keys, key)
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestABadProof is no yes, and takes no vote away: nothing follows from it. Its writer has the key of approvals, and not that
// of the log.
func TestABadProof(t *testing.T) {
	t.Parallel()
	here, there, engine := replicas(t)
	a, other := here.approved("plan"), here.approved("other")
	theirs := there.approved("theirs")
	values := ledger.NewValues(engine, ledger.Form{
		Items: "approvals", Kind: "a", Key: ledger.DeriveKey(key, "policy-service approvals file"), Version: approval.FormatVersion,
	})
	at := func(a approval.Approval, record string) string { return "p/a/" + a.ID + "/" + record }
	read := func(key string) (p ledger.Proof) {
		here.must(values.View(func(tx *ledger.Tx) { tx.Get(key, &p) }))
		return p
	}
	write := func(key string, p *ledger.Proof) {
		here.must(values.Update(t.Context(), func(c *ledger.ValuesChange) {
			if p == nil {
				c.Delete(key)
			} else {
				c.Put(key, p)
			}
		}))
	}
	flip := func(text []byte, n int) []byte {
		text = bytes.Clone(text)
		text[n] ^= 1
		return text
	}
	behind := func(text []byte, words ...string) (n int) {
		for _, word := range words {
			at := bytes.Index(text[n:], []byte(word))
			if at < 0 {
				t.Fatalf("%q is not in %s", words, text)
			}
			n += at + len(word)
		}
		return n
	}
	vote, agreed := at(a, a.Votes[0].Step), at(a, a.Agreed)
	good := map[string]ledger.Proof{vote: read(vote), agreed: read(agreed)}
	for name, bad := range map[string]func(p ledger.Proof) *ledger.Proof{
		"no proof": func(ledger.Proof) *ledger.Proof { return nil },
		"a bit of the line": func(p ledger.Proof) *ledger.Proof {
			p.Line = flip(p.Line, behind(p.Line, `"approval":"`))
			return &p
		},
		"a bit of a hash": func(p ledger.Proof) *ledger.Proof {
			p.Proof = flip(p.Proof, behind(p.Proof, "\nindex ", "\n"))
			return &p
		},
		"another place": func(p ledger.Proof) *ledger.Proof {
			p.Proof = flip(p.Proof, behind(p.Proof, "\nindex "))
			return &p
		},
		"a bit of the checkpoint": func(p ledger.Proof) *ledger.Proof {
			p.Proof = flip(p.Proof, behind(p.Proof, "\n\n", "\n", "\n"))
			return &p
		},
		"a bit of its signature": func(p ledger.Proof) *ledger.Proof { p.Proof = flip(p.Proof, len(p.Proof)-20); return &p },
		"cut off":                func(p ledger.Proof) *ledger.Proof { p.Proof = p.Proof[:len(p.Proof)/2]; return &p },
		"of another log": func(ledger.Proof) *ledger.Proof {
			p := read(at(theirs, theirs.Votes[0].Step))
			return &p
		},
		"of another log, and named as this one": func(own ledger.Proof) *ledger.Proof {
			p := read(at(theirs, theirs.Votes[0].Step))
			p.Origin = own.Origin
			return &p
		},
		"of a log whose key is not known": func(p ledger.Proof) *ledger.Proof { p.Origin = "elsewhere.example"; return &p },
		"of another approval": func(ledger.Proof) *ledger.Proof {
			p := read(at(other, other.Votes[0].Step))
			return &p
		},
		"of the other step": func(p ledger.Proof) *ledger.Proof {
			for _, one := range good {
				if !bytes.Equal(one.Line, p.Line) {
					return &one
				}
			}
			return nil
		},
	} {
		for key, p := range good {
			write(key, bad(p))
			if r, err := there.Store.Reserve(t.Context(), a.ID, a.Digest, "stolen"); r != nil || !errors.Is(err, approval.ErrUnavailable) {
				t.Fatalf("%s: reserved is %v, %v", name, r != nil, err)
			}
			if got, _, err := there.Store.Get(t.Context(), a.ID); err != nil || got.Status != approval.Approved || len(got.Votes) != 1 {
				t.Errorf("%s: the approval is %+v, %v", name, got, err)
			}
			write(key, &p)
		}
	}
	if r, err := there.Store.Reserve(t.Context(), a.ID, a.Digest, "d"); r == nil || err != nil {
		t.Fatalf("with the proofs as they were: %v", err)
	} else {
		r.InDoubt()
	}
}

// TestOnlyItsOwnLogTakesAVoteAway: a vote whose record is gone lapses at the origin of the vote. Elsewhere its proof stands
// until then.
func TestOnlyItsOwnLogTakesAVoteAway(t *testing.T) {
	t.Parallel()
	here, there, engine := replicas(t)
	a := here.approved("plan")
	here.must(here.log.Redact(t.Context(), "key:auditor", a.Votes[0].Step, "gone"))
	if r, err := here.Store.Reserve(t.Context(), a.ID, a.Digest, "d"); r != nil || err != nil {
		t.Fatalf("%v, %v", r, err)
	}
	if got, _, err := there.Store.Get(t.Context(), a.ID); err != nil || got.Status != approval.Pending || len(got.Votes) != 0 {
		t.Errorf("it is %+v, %v", got, err)
	}
	if keys := proofsIn(t, engine, a.ID); len(keys) != 0 {
		t.Errorf("the proofs of votes that lapsed are there: %q", keys)
	}
}

// TestARedactionTakesTheProofs, which have the words of the request.
func TestARedactionTakesTheProofs(t *testing.T) {
	t.Parallel()
	here, there, engine := replicas(t)
	a := here.approved("plan")
	if len(proofsIn(t, engine, a.ID)) == 0 {
		t.Fatal("there is no proof")
	}
	done, err := there.Redact(t.Context(), person("ida"), broker.Redaction{Approval: a.ID, Reason: "a name", End: true})
	there.must(err)
	if keys := proofsIn(t, engine, a.ID); len(keys) != 0 {
		t.Errorf("there are %q", keys)
	}
	if len(done.Elsewhere) == 0 || !strings.Contains(done.Elsewhere[0], "other replicas") {
		t.Errorf("it says nothing of the logs of others: %q", done.Elsewhere)
	}
	again, err := here.Redact(t.Context(), person("ida"), broker.Redaction{Approval: a.ID, Reason: "a name", End: true})
	if err != nil || again.Records == 0 {
		t.Errorf("asked at the other one it is %+v, %v", again, err)
	}
}

// TestRevokedUnderWay: an approval is revoked while another replica has a use of it, and its revoker learns which.
func TestRevokedUnderWay(t *testing.T) {
	t.Parallel()
	here, there, _ := replicas(t)
	a := here.approved("plan")
	use, err := there.Store.Reserve(t.Context(), a.ID, a.Digest, "d")
	there.must(err)
	seen, err := here.See(t.Context(), person("mia"), a.ID)
	here.must(err)
	if got := seen.ViewOf(t.Context(), seen.Approval).InFlight; len(got) != 1 || got[0].Decision != "d" || got[0].Origin != there.log.Origin() || got[0].Since.IsZero() {
		t.Errorf("in doubt is %+v", got)
	}
	revoked, err := seen.Revoke(t.Context(), evaluation.Ruling{Reason: "no"})
	here.must(err)
	if got := seen.ViewOf(t.Context(), revoked).InFlight; revoked.Status != approval.Revoked || len(got) != 1 || got[0].Decision != "d" {
		t.Errorf("it is %s, and under way was %+v", revoked.Status, got)
	}
	there.must(use.Spent(t.Context()))
	if got, _, err := here.Store.Get(t.Context(), a.ID); err != nil || got.Status != approval.Revoked || len(got.Used) != 1 || got.InFlight() != nil {
		t.Errorf("it is %+v, %v", got, err)
	}
}

// TestARoundElsewhere goes on from a use by the proof of the decision, and from none before that was settled.
func TestARoundElsewhere(t *testing.T) {
	t.Parallel()
	here, there, engine := replicas(t)
	a := here.approved("plan")
	next := func(decision string, round int) evaluation.Continuation {
		return evaluation.Continuation{Decision: decision, Round: round}
	}
	if d := here.asks("bot", "plan", a.ID); !d.Allow || d.Approval != nil {
		t.Fatalf("with the approval: %+v", d)
	}
	for late := time.After(time.Minute); len(proofsIn(t, engine, a.ID)) < 3; { // the answer does not wait for that of the use
		select {
		case <-late:
			t.Fatalf("there are the proofs %q", proofsIn(t, engine, a.ID))
		case <-time.After(time.Millisecond):
		}
	}
	got, _, err := here.Store.Get(t.Context(), a.ID)
	here.must(err)
	if len(got.Used) != 1 {
		t.Fatalf("it is %+v", got)
	}
	r, err := there.Store.Continue(t.Context(), a.ID, a.Digest, next(got.Used[0], 1), "round")
	if r == nil || err != nil {
		t.Fatalf("it does not go on: %v", err)
	}
	r.InDoubt()
	here.must(here.log.Redact(t.Context(), "key:auditor", got.Used[0], "gone"))
	if r, err := here.Store.Continue(t.Context(), a.ID, a.Digest, next(got.Used[0], 2), "another"); r != nil || err != nil {
		t.Errorf("it goes on from what its own log does not vouch for: %v, %v", r != nil, err)
	}
}
