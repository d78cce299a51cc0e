package decisionlog

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/decisionlog/index"
)

// termsOf are the terms of a line as a decoder understands it.
func termsOf(line []byte) (terms []string, ok bool) {
	s, err := Parse(line)
	if err != nil {
		return nil, false
	}
	terms = []string{index.Term(index.TermTenant, s.Tenant)}
	add := func(letter byte, value string) {
		if value != "" {
			terms = append(terms, index.Term(letter, value))
		}
	}
	add(index.TermKind, s.Kind)
	add(index.TermEvent, s.Event)
	add(index.TermDecision, s.Answer())
	if s.Answer() == Waiting {
		add(index.TermDecision, Allow)
	}
	add(index.TermSubject, s.Names.Subject.ID)
	add(index.TermResource, s.Names.Resource.ID)
	add(index.TermAction, s.Names.Action.Name)
	add(index.TermOf, s.Receipt().Decision)
	for _, d := range s.Discharged {
		add(index.TermApproval, d.Approval)
	}
	var step struct {
		Approval string `json:"approval"`
	}
	if json.Unmarshal(s.Details, &step) == nil {
		add(index.TermApproval, step.Approval)
	}
	for _, policy := range s.Determining {
		add(index.TermPolicy, policy)
	}
	for _, policy := range s.Overruled {
		add(index.TermPolicy, policy)
	}
	for _, e := range s.Errors {
		add(index.TermPolicy, e.Policy)
	}
	return terms, true
}

// missed is a term that a decoder finds in a line and the index does not.
func missed(line []byte) string {
	got := index.Terms(line)
	if slices.Contains(got, index.TermOdd) {
		return ""
	}
	want, ok := termsOf(line)
	for _, term := range want {
		if ok && !slices.Contains(got, term) {
			return term
		}
	}
	return ""
}

// The index knows every term of every line that the log writes, and calls none odd.
func TestTermsOfLines(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 2000 {
		p, err := prepare(randomEntry(r), Options{}.withDefaults().Kinds)
		if err != nil {
			t.Fatal(err)
		}
		p.finish(uint64(n), time.Now(), n%2 == 0)
		terms := index.Terms(p.line)
		if term := missed(p.line); term != "" || terms[0] == index.TermOdd {
			t.Fatalf("%s: %q is missed", p.line, term)
		}
		if want, _ := termsOf(p.line); len(terms) != len(want) {
			t.Fatalf("%s: %q, want %q", p.line, terms, want)
		}
	}
}

// Whatever a line is, the index finds what a decoder finds in it, or calls it odd.
func FuzzTermsOfLines(f *testing.F) {
	for _, line := range []string{
		`{"sequence":1,"tenant":"acme","kind":"decision","request":{"subject":{"type":"user","id":"a\"\\u0000"},"action":{"name":"read"},"resource":{"id":"x","properties":{"id":"y"}}},"decision":true,"determining":["p","q"],"overruled":["o"],"errors":[{"policy":"r","position":"a:1:1"}]}`,
		`{"id":"b.0","kind":"decision","request":{"subject":{"type":"user","id":"a"}},"inherits":["subject","context"],"decision":true}`,
		`{"id":"b","kind":"batch","request":{"subject":{"properties":{"id":"x"}},"action":{"properties":{"name":"y"}},"context":{"id":"z"}}}`,
		`{"details":{"decision":"one","obligations":[]},"kind":"receipt"}`,
		`{"kind":"decision","decision":true,"obligations":[{"id":"l","type":"log"},{"id":"a","type":"approval_required"}]}`,
		`{"decision":true,"obligations":[{"type":"approval\u005frequired"}]}`, `{"obligations":[{"type":7}]}`, `{"obligations":null,"tenant":"b"}`,
		`{"tenant" :"acme"}`, `{"ten\u0061nt":"acme"}`, `{"decision":null,"request":null,"details":{}}`, `{}`, `{,}`, `{"a":1,}`, `[]`, `{"determining":[]}`, `{"kind":"a"`,
		`{"a":{"b":[1,"]",{}]},"tenant":"b"}`, `{"a":-1.5e3,"tenant":"b"}`, `{"tenant":"` + strings.Repeat("long", 100) + `"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if term := missed(line); term != "" {
			t.Errorf("%q: %q is missed", line, term)
		}
	})
}
