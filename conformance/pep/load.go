package pep

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"policy-service/conformance"
	"policy-service/conformance/internal/casefile"
)

// Plans returns the plans that a PEP can be held to.
func Plans() []conformance.Plan {
	return []conformance.Plan{
		{Name: "coaz", Title: "COAZ: the framework and its binding for MCP, Draft 1", Spec: true},
		{Name: "coaz-sep", Title: "COAZ: the dialect of February 2026 (coaz and x-coaz-mapping)", Spec: true},
	}
}

func planNames() (names []string) {
	for _, p := range Plans() {
		names = append(names, p.Name)
	}
	return names
}

// calls are the messages of cases/requests.yaml, by name.
var calls = sync.OnceValues(func() (c map[string]call, err error) {
	return c, casefile.Read(files, "cases/"+requestsFile, &c)
})

const requestsFile = "requests.yaml"

// order is the order of the files: cases that make the PDP fail come last, because a PEP may need a while to trust it again.
var order = []string{"defaults.yaml", "declared.yaml", "mapping-errors.yaml", "denials.yaml", "messages.yaml", "tokens.yaml", "pdp.yaml", "sep.yaml"}

// load reads all cases, and refuses one that would not be asked or not be found.
var load = sync.OnceValues(func() ([]Case, error) {
	entries, err := files.ReadDir("cases")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() != toolsFile && e.Name() != requestsFile && !slices.Contains(order, e.Name()) {
			return nil, fmt.Errorf("%s would not be asked", e.Name())
		}
	}
	var all []Case
	seen := map[string]bool{}
	for _, name := range order {
		var file caseFile
		if err := casefile.Read(files, "cases/"+name, &file); err != nil {
			return nil, err
		}
		for n := range file.Cases {
			cases, err := expand(&file.Cases[n], file.Plan)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, cases...)
		}
	}
	for _, c := range all {
		if seen[c.ID] {
			return nil, fmt.Errorf("two cases are called %s", c.ID)
		}
		if seen[c.ID] = true; !slices.Contains(planNames(), c.Plan) {
			return nil, fmt.Errorf("case %s: %w: %s", c.ID, conformance.ErrUnknownPlan, c.Plan)
		}
	}
	return all, nil
})

// Cases returns the cases of the named plans; none named means coaz alone.
func Cases(plans ...string) ([]Case, error) {
	if len(plans) == 0 {
		plans = []string{"coaz"}
	}
	for _, name := range plans {
		if !slices.Contains(planNames(), name) {
			return nil, fmt.Errorf("%q: %w for a PEP; try one of %s", name, conformance.ErrUnknownPlan, strings.Join(planNames(), ", "))
		}
	}
	all, err := load()
	return slices.DeleteFunc(slices.Clone(all), func(c Case) bool { return !slices.Contains(plans, c.Plan) }), err
}

// never is a clock for tokens that are not sent.
func never() time.Time { return time.Time{} }
