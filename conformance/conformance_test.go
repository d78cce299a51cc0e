package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCasesLoad(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, c := range all {
		n[c.Plan]++
	}
	for _, p := range Plans() {
		if n[p.Name] == 0 {
			t.Errorf("the plan %s has no cases", p.Name)
		}
	}
}

// Every body can be made: a pointer that is spelt wrong would be found only by
// the PDP that is asked.
func TestRequestsCanBeMade(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPeer(Target{URL: "http://pdp.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		r := &running{peer: p, values: p.values()}
		for _, s := range c.Steps {
			for name := range s.Capture {
				r.values[name] = "0123456789"
			}
			if _, err := r.request(s); err != nil {
				t.Errorf("%s: %v", c.ID, err)
			}
		}
	}
}

func TestPlansAreChosenByName(t *testing.T) {
	t.Parallel()
	some, err := Cases("todo", "basic-core")
	if err != nil {
		t.Fatal(err)
	}
	if some[0].Plan != "basic-core" || some[len(some)-1].Plan != "todo" {
		t.Errorf("got plans from %s to %s", some[0].Plan, some[len(some)-1].Plan)
	}
	if _, err := Cases("basic"); !errors.Is(err, ErrUnknownPlan) {
		t.Errorf("got %v", err)
	}
	spec, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range spec {
		if c.Plan == "strict" || c.Plan == "native" {
			t.Fatalf("%s is asked of everybody", c.ID)
		}
	}
}

// The table of the search scenario is what its rules and its data give.
func TestSearchTable(t *testing.T) {
	t.Parallel()
	var got table
	if err := read("search-interop.yaml", &got); err != nil {
		t.Fatal(err)
	}
	users, records := readPublished[publishedUser](t, "search-users.json"), readPublished[publishedRecord](t, "search-records.json")
	want := table{Plan: got.Plan, Subject: "user", Resource: "record", Actions: []string{"view", "edit", "delete"}, Allowed: map[string]map[string][]string{}}
	for _, r := range records {
		want.Resources = append(want.Resources, r.name())
	}
	for _, u := range users {
		want.Subjects = append(want.Subjects, u.ID)
		allowed := map[string][]string{"view": {}, "edit": {}, "delete": {}}
		for _, r := range records {
			owner, near, manager := r.Owner == u.ID, r.Department == u.Department, u.Role == "manager"
			for action, ok := range map[string]bool{"view": owner || near || manager, "edit": owner || near && manager, "delete": owner} {
				if ok {
					allowed[action] = append(allowed[action], r.name())
				}
			}
		}
		want.Allowed[u.ID] = allowed
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

type publishedUser struct{ ID, Role, Department string }

type publishedRecord struct {
	ID                int
	Department, Owner string
}

func (r publishedRecord) name() string { return strconv.Itoa(r.ID) }

// readPublished reads a file of the published data.
func readPublished[T any](t *testing.T, name string) (all []T) {
	t.Helper()
	text, err := os.ReadFile("cases/vectors/" + name)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestBodyEdits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		body   string
		remove []string
		set    edits
		want   string
	}{
		{`{"a":1,"b":2}`, []string{"/a"}, nil, `{"b":2}`},
		{`{"a":{"b":[1,2]}}`, nil, edits{{"/a/b/1", "{}"}, {"/a/c", "null"}}, `{"a":{"b":[1,{}],"c":null}}`},
		{`{"a":1}`, nil, edits{{"/b", `1,"b":2`}}, `{"a":1,"b":1,"b":2}`},
		{`{"a":1}`, nil, edits{{"/x~1y~0", "1"}}, `{"a":1,"x/y~":1}`},
		{`{"a":1}`, []string{"/b"}, nil, "error"},
		{`{"a":1}`, nil, edits{{"/a/b", "1"}}, "error"},
	} {
		got, err := withEdits(test.body, test.remove, test.set)
		if err != nil {
			got = "error"
		}
		if got != test.want {
			t.Errorf("%s without %v with %v: got %s, %v", test.body, test.remove, test.set, got, err)
		}
	}
}

// Where the metadata of a base URL stands.
func TestWellKnown(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, base := range []string{"https://h", "https://h/", "https://h:1/tenants/a", "https://h/a%2Fb"} {
		p, err := newPeer(Target{URL: base})
		if err != nil {
			t.Fatal(err)
		}
		got[base] = p.wellKnown()
	}
	if want := map[string]string{
		"https://h": "https://h/.well-known/authzen-configuration", "https://h/": "https://h/.well-known/authzen-configuration",
		"https://h:1/tenants/a": "https://h:1/.well-known/authzen-configuration/tenants/a", "https://h/a%2Fb": "https://h/.well-known/authzen-configuration/a%2Fb",
	}; !maps.Equal(got, want) {
		t.Error(got)
	}
	for _, bad := range []string{"", "h", "ftp://h", "http://", "http://h?x=1", "http://h#x", ":"} {
		if _, err := newPeer(Target{URL: bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// caseIDs are all ids, for the test of REQUIREMENTS.md.
func caseIDs(t *testing.T) []string {
	t.Helper()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.ID)
	}
	slices.Sort(names)
	return names
}

func ExamplePlans() {
	for _, p := range Plans()[:2] {
		fmt.Println(p.Name)
	}
	// Output:
	// basic-core
	// basic-properties
}
