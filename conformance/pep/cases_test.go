package pep

import "testing"

func TestCases(t *testing.T) {
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	o, err := offers()
	if err != nil {
		t.Fatal(err)
	}
	tools, err := parse([]byte(o.Tools))
	if err != nil {
		t.Fatal(err)
	}
	_ = tools
	for _, c := range all {
		t.Log(c.ID, c.Plan)
	}
}
