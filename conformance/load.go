package conformance

import (
	"embed"
	"fmt"
	"slices"
	"sync"

	"policy-service/conformance/internal/casefile"
)

//go:embed cases/*.yaml cases/vectors/*.json
var files embed.FS

// question is a request that is right, for cases to change.
type question struct {
	Ask  string
	Body casefile.Text
}

// questions are the questions of cases/questions.yaml, by name.
var questions = sync.OnceValues(func() (map[string]question, error) {
	var q map[string]question
	return q, read("questions.yaml", &q)
})

// load reads all cases, and refuses one that would not be asked or not be
// found: an unknown key, plan or question, and an id that occurs twice.
var load = sync.OnceValues(func() ([]Case, error) {
	var all []Case
	for _, source := range []func() ([]Case, error){written, todoCases, tableCases} {
		cases, err := source()
		if err != nil {
			return nil, err
		}
		all = append(all, cases...)
	}
	plans, seen := planNames(), map[string]bool{}
	for _, c := range all {
		if seen[c.ID] {
			return nil, fmt.Errorf("two cases are called %s", c.ID)
		}
		if seen[c.ID] = true; !slices.Contains(plans, c.Plan) {
			return nil, fmt.Errorf("case %s: %w: %s", c.ID, ErrUnknownPlan, c.Plan)
		}
	}
	return all, nil
})

// notCases are the files that hold something else.
var notCases = []string{"questions.yaml", "search-interop.yaml"}

// written are the cases that are written out.
func written() ([]Case, error) {
	entries, err := files.ReadDir("cases")
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, entry := range entries {
		if entry.IsDir() || slices.Contains(notCases, entry.Name()) {
			continue
		}
		var file caseFile
		if err := read(entry.Name(), &file); err != nil {
			return nil, err
		}
		for _, e := range file.Cases {
			cases, err := e.expand(file.Plan)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", entry.Name(), err)
			}
			all = append(all, cases...)
		}
	}
	return all, nil
}

// read reads a file of cases/.
func read(name string, into any) error { return casefile.Read(files, "cases/"+name, into) }
