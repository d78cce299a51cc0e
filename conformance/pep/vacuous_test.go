package pep

import (
	"slices"
	"strings"
	"testing"

	"policy-service/conformance"
)

// gross are PEPs that are wrong about nearly everything, each in its way.
var gross = []struct {
	as    shape
	wrong []string
}{
	{gateway, []string{"knows nobody", "asks nobody", "reads JSON laxly", "takes a call without id for a notification", "does not look at headers", "forwards what it does not recognise", "lets unknown methods through"}},
	{server, []string{"knows nobody", "asks nobody", "errors without an id"}},
	{gateway, []string{"asks about pings and notifications", "asks whatever comes out", "adds the arguments", "hides mappings from clients", "reads ids as floats"}},
}

// No case is passed by everybody: each is failed by one of the gross PEPs, or by one of the faults.
func TestEveryCaseCanFail(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string]bool{}
	for _, f := range faults {
		for name := range strings.FieldsSeq(f.caught) {
			failed[name] = true
		}
	}
	for _, g := range gross {
		left := slices.DeleteFunc(slices.Clone(all), func(c Case) bool { return failed[c.ID] })
		r, err := judgeStub(t, g.as, left, g.wrong...)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range r.Results {
			if one.Outcome == conformance.Failed || one.Outcome == conformance.Advised {
				failed[one.ID] = true
			}
		}
	}
	for _, c := range all {
		if !failed[c.ID] && !strings.HasSuffix(c.ID, "nothing-late") { // TestLate
			t.Errorf("%s has never failed: %s", c.ID, c.Title)
		}
	}
}

// What is executed after its message was answered is found, whenever it comes.
func TestLate(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for denied, late := range map[string]string{"denied-tools-call": "nothing-late", "sep-denied": "sep-nothing-late"} {
		chosen := slices.DeleteFunc(slices.Clone(all), func(c Case) bool { return c.ID != denied && c.ID != late })
		r, err := judgeStub(t, gateway, chosen, "executes after it refused")
		if err != nil {
			t.Fatal(err)
		}
		if r.OK() {
			t.Error(report(t, r))
		}
	}
	b := &book{}
	b.begin()
	b.end()
	b.execute(executed{method: "tools/call"})
	b.begin()
	if len(b.tooLate()) != 1 || len(b.end().executed) != 0 {
		t.Error("what comes between two messages is one's of them")
	}
}
