package author

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/plainfile"
)

// Test runs the tests of a bundle.
type Test struct {
	Dir      string `arg:"" optional:"" help:"The directory of the bundle. Without it, the one in $$POLICY_SERVICE_POLICIES, or this directory."`
	Match    string `name:"run" placeholder:"RE" help:"Run only the tests whose name matches this regular expression."`
	JUnit    string `name:"junit" placeholder:"FILE" help:"Also write the results to this file, as JUnit XML."`
	Coverage bool   `help:"List the policies that no test satisfied. policy-service coverage also says which ones had a part in decisions."`
	JSON     bool   `name:"json" help:"Print JSON, for programs."`
}

// Help ends the command's help.
func (Test) Help() string {
	return "Exit codes: 0 if all tests pass, 1 if one fails, 2 if the bundle does not load or there is no test to run."
}

// Run runs the tests of a bundle.
func (c Test) Run(s cli.Streams) (err error) {
	started := time.Now()
	if c.Dir, err = bundledir.Or(c.Dir); err != nil {
		return err
	}
	bundle, err := bundledir.Load(c.Dir, s)
	if err != nil {
		return err
	}
	examples, err := c.examples(s)
	if err != nil {
		return err
	}
	r := results{bundle: bundle, dir: c.Dir, coverage: c.Coverage}
	decider := pdp.Of(bundle, pdp.Options{})
	for _, e := range examples {
		r.run(decider, e)
	}
	r.took = time.Since(started)
	if c.JUnit != "" {
		if err := plainfile.Publish(c.JUnit, r.junit()); err != nil {
			return fmt.Errorf("cannot write the results: %w; try another --junit", err)
		}
	}
	return s.Answer(c.JSON, r.json(), func() error { return r.print(s) }, r.failed() > 0)
}

// examples are the tests to run. No test at all is an error, because a person that runs tests believes that there are
// some.
func (c Test) examples(s cli.Streams) ([]pdp.Example, error) {
	match, err := regexp.Compile(c.Match)
	if err != nil {
		return nil, fmt.Errorf("--run is not a regular expression: %w; try a part of a test's name", err)
	}
	examples, problems := pdp.Examples(pdp.Dir(c.Dir))
	if problems.Refuse() {
		s.Tell("%s", cli.Lines(bundledir.Placed(c.Dir, problems).Error()))
		return nil, fmt.Errorf("the tests in %s cannot be read; mend what is listed above and try again", c.Dir)
	}
	if len(examples) == 0 {
		return nil, fmt.Errorf("there is no test in %s; write one in tests/, such as\n%s", c.Dir, firstTest)
	}
	examples = slices.DeleteFunc(examples, func(e pdp.Example) bool { return !match.MatchString(e.Name) })
	if len(examples) == 0 {
		return nil, fmt.Errorf("no test's name matches %q; try a part of a name, or leave --run out", c.Match)
	}
	return examples, nil
}

// firstTest is a test to begin with.
const firstTest = `- name: what it shows
  request: {subject: {type: user, id: alice}, action: {name: read}, resource: {type: file, id: plan}}
  decision: allow`

// results are the outcomes of all tests that ran.
type results struct {
	bundle   *pdp.Bundle
	dir      string
	coverage bool
	took     time.Duration
	cases    []result
	covered  pdp.Coverage
}

// result is the outcome of one test; it passed if nothing differs.
type result struct {
	pdp.Example
	differs []string
}

func (r *results) failed() int {
	n := 0
	for _, c := range r.cases {
		if len(c.differs) > 0 {
			n++
		}
	}
	return n
}

func (r *results) run(decider *pdp.PDP, e pdp.Example) {
	e.Call.Explain = r.coverage
	decision, err := decider.Evaluate(context.Background(), e.Call)
	if err != nil {
		r.cases = append(r.cases, result{e, []string{notDecided(err, e)}})
		return
	}
	r.covered.Add(e.Call.Request.Tenant, decision)
	r.cases = append(r.cases, result{e, e.Differences(decision)})
}

func notDecided(err error, e pdp.Example) string {
	var bad *evaluation.Error
	if errors.As(err, &bad) {
		return "expected a decision, got 400: " + undecided(err, e.Call.Request).Error()
	}
	return "expected a decision, got none: " + undecided(err, e.Call.Request).Error()
}

// word is the decision, obligations aside.
func word(d evaluation.Decision) string {
	d.Obligations = nil
	return recorder.AnswerOf(d)
}

// uncovered are the policies that no test satisfied.
func (r *results) uncovered() []pdp.PolicyInfo {
	var none []pdp.PolicyInfo
	if !r.coverage {
		return none
	}
	for _, p := range r.bundle.Policies() {
		if !r.covered.Has(p) {
			none = append(none, p)
		}
	}
	return none
}
