package conformance

import (
	"cmp"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"policy-service/conformance/internal/casefile"
)

// Case is one thing a PDP must do: one exchange or several, judged together.
type Case struct {
	// ID is unique, and stable: REQUIREMENTS.md names it. Those that begin with
	// c- and a digit are section numbers of the certification document.
	ID string
	// Plan is the plan that the case belongs to.
	Plan  string
	Title string
	// Advisory cases show a SHOULD: failing one is said, and is no failure.
	Advisory bool
	// Needs is "credential" where the case makes sense only against a PDP that
	// was given with one.
	Needs string
	Steps []Step
}

// Text is JSON text. A case file may have it as text, or as the value itself in YAML.
type Text = casefile.Text

// Step is one request, and the demands on its answer.
type Step struct {
	// Ask is an endpoint or a question of cases/questions.yaml, or a path.
	Ask    string `yaml:"ask"`
	Method string `yaml:"method"`
	// Header is sent besides; a header with an empty value is not sent at all.
	Header map[string]string `yaml:"header"`
	// Anonymous leaves out the credential.
	Anonymous bool `yaml:"anonymous"`
	// Body is the body, a template that [casefile.Fill] fills; without one it is that of the question.
	Body *Text `yaml:"body"`
	// Remove and Set edit the body, by JSON Pointer.
	Remove []string `yaml:"remove"`
	Set    edits    `yaml:"set"`
	// Repeat sends the same so many times; each answer is judged.
	Repeat int `yaml:"repeat"`
	// If names a captured value: where it is empty or was never captured, the
	// case ends here, and the steps before are its outcome.
	If string `yaml:"if"`
	// Walk follows the pages of a search to the end, at most so many, and judges
	// all their results as one.
	Walk int `yaml:"walk"`

	Want `yaml:",inline"`
}

// Want are the demands on an answer. Status is 200 unless given, and an answer
// with 200 must be JSON.
type Want struct {
	Status statuses `yaml:"status"`
	// Headers holds exact values; Present and Absent only names.
	Headers map[string]string `yaml:"headers"`
	Present []string          `yaml:"present"`
	Absent  []string          `yaml:"absent"`
	// Bytes is the body, byte for byte.
	Bytes string `yaml:"bytes"`
	// Exact is the whole body as JSON; Has is a part of it.
	Exact any `yaml:"exact"`
	Has   any `yaml:"has"`
	// Results are all of /results in any order; Ordered the same in this order;
	// Includes are some of them; Excludes are none of them.
	Results  []any `yaml:"results"`
	Ordered  []any `yaml:"ordered"`
	Includes []any `yaml:"includes"`
	Excludes []any `yaml:"excludes"`
	// Each is what every one of /results has.
	Each any `yaml:"each"`
	// AtMost bounds the number of /results.
	AtMost *int `yaml:"at_most"`
	// Lacks are JSON Pointers at which nothing may be.
	Lacks []string `yaml:"lacks"`
	// First is the member that comes first, where the body has it at all.
	First string `yaml:"first"`
	// Signed is set where a signed_metadata must hold, if there is one.
	Signed bool `yaml:"signed"`
	// Capture keeps something of the answer for later steps: a string of the body
	// by JSON Pointer, "header:NAME", or "body".
	Capture map[string]string `yaml:"capture"`
}

// caseFile is one file of cases.
type caseFile struct {
	Plan  string
	Cases []caseEntry
}

// caseEntry is a case as it is written: of one step, which then stands in the
// case itself, or of several; for one question, or for several at once.
type caseEntry struct {
	Case `yaml:",inline"`
	// On makes a case of each of these questions, its id prefixed with the name.
	On   []string `yaml:"on"`
	Step `yaml:",inline"`
}

// statuses is one status code or a list, any of which will do.
type statuses []int

// UnmarshalYAML reads a number or a list.
func (s *statuses) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*s = make(statuses, 1)
		return node.Decode(&(*s)[0])
	}
	return node.Decode((*[]int)(s))
}

// expand makes the cases of an entry.
func (e caseEntry) expand(plan string) ([]Case, error) {
	c := e.Case
	c.Plan = cmp.Or(c.Plan, plan)
	if len(c.Steps) == 0 {
		c.Steps = []Step{e.Step}
	}
	if len(e.On) == 0 {
		return []Case{c}, c.check()
	}
	var all []Case
	for _, question := range e.On {
		one := c
		one.ID = question + "-" + e.ID
		one.Steps = nil
		for _, s := range c.Steps {
			s.Ask = question
			one.Steps = append(one.Steps, s)
		}
		if err := one.check(); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func (c Case) check() error {
	if c.ID == "" || c.Title == "" || c.Plan == "" {
		return errors.New("a case needs an id, a title and a plan")
	}
	if c.Needs != "" && c.Needs != "credential" {
		return fmt.Errorf("case %s needs %q, which nobody can give", c.ID, c.Needs)
	}
	for n, s := range c.Steps {
		if s.Ask == "" {
			return fmt.Errorf("case %s, step %d: asks nothing", c.ID, n)
		}
	}
	return nil
}
