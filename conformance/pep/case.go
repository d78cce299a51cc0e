package pep

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"policy-service/conformance/internal/casefile"
)

// Case is one thing that a PEP must do: one exchange or several, judged together.
type Case struct {
	// ID is unique, and stable: REQUIREMENTS.md names it.
	ID string `yaml:"id"`
	// Plan is the plan that the case belongs to.
	Plan  string `yaml:"plan"`
	Title string `yaml:"title"`
	// Advisory cases show a SHOULD: failing one is said, and is no failure.
	Advisory bool `yaml:"advisory"`
	// Needs is the kind of PEP for which the case makes sense: gateway or server. Any will do if it is empty.
	Needs shape `yaml:"needs"`
	// Era is the only era of MCP in which the case makes sense; both if it is empty.
	Era   Era    `yaml:"era"`
	Steps []Step `yaml:"steps"`
}

// Step is one message, how the PDP answers meanwhile, and its expected outcome.
type Step struct {
	// Call is the name of a tool, and Arguments are its arguments; Ask is one of cases/requests.yaml instead.
	Call      string        `yaml:"call"`
	Arguments casefile.Text `yaml:"arguments"`
	Ask       string        `yaml:"ask"`
	// Method and Params are a message of another method.
	Method string        `yaml:"method"`
	Params casefile.Text `yaml:"params"`
	// Message is the whole message instead, as text; Call or Method then says which headers go with it.
	Message string `yaml:"message"`
	// MessageID is the message's id, as JSON; the suite counts otherwise.
	MessageID string `yaml:"message_id"`
	// Header is sent besides; a header with an empty value is not sent at all.
	Header map[string]string `yaml:"header"`
	// Token is the kind of token; good if it is empty. InQuery sends it in the query string.
	Token   string `yaml:"token"`
	InQuery bool   `yaml:"in_query"`
	// Optional is set for a method that a server may not have, as in a request of cases/requests.yaml.
	Optional bool `yaml:"optional"`
	// PDP is how the PDP answers; permit if it is empty.
	PDP string `yaml:"pdp"`
	// Repeat sends the same so many times; each answer is judged.
	Repeat int `yaml:"repeat"`

	Expectation `yaml:",inline"`
}

// Expectation is the expected outcome of a message.
type Expectation struct {
	// Want is an outcome of outcomes; several are separated by "or", and any of them will do.
	Want string `yaml:"want"`
	// Asked are the questions that the PDP must have got, each complete, in this order, and no others.
	Asked *[]casefile.Text `yaml:"asked"`
	// MayAsk is the same for an outcome that comes without a question, too.
	MayAsk *[]casefile.Text `yaml:"may_ask"`
	// At is evaluation where the question must have been asked there.
	At string `yaml:"at"`
	// Mentions and Hides are texts of which the error must have one, and which it must not have.
	Mentions []string `yaml:"mentions"`
	Hides    []string `yaml:"hides"`
	// TokenHiddenFrom is the side that may not have got a token, up to now: the upstream, or the pdp.
	TokenHiddenFrom string `yaml:"token_hidden_from"`
	// NothingLate is set where nothing may have been executed, up to now, after its message had been answered.
	NothingLate bool `yaml:"nothing_late"`
}

// call is a message of cases/requests.yaml.
type call struct {
	Era    Era           `yaml:"era"`
	Method string        `yaml:"method"`
	Params casefile.Text `yaml:"params"`
	// Optional methods are ones that a server may not have; Tasks ones that it has if it advertises tasks.
	Optional     bool `yaml:"optional"`
	Tasks        bool `yaml:"tasks"`
	Notification bool `yaml:"notification"`
}

// caseFile is one file of cases.
type caseFile struct {
	Plan  string      `yaml:"plan"`
	Cases []yaml.Node `yaml:"cases"`
}

// caseEntry is a case as it is written: of one step, which then stands in the case itself, or of several; for one value,
// or for each of several, which replace <on> in all of its texts.
type caseEntry struct {
	Case `yaml:",inline"`
	On   []string `yaml:"on"`
	Step `yaml:",inline"`
}

// expand makes the cases of an entry.
func expand(node *yaml.Node, plan string) ([]Case, error) {
	var first caseEntry
	if err := casefile.Strictly(node, &first); err != nil {
		return nil, err
	}
	if len(first.On) == 0 {
		c, err := first.one(plan)
		return []Case{c}, err
	}
	var all []Case
	for _, value := range first.On {
		var e caseEntry
		if err := casefile.Strictly(filled(node, value), &e); err != nil {
			return nil, err
		}
		c, err := e.one(plan)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// filled is a copy of a node with <on> replaced.
func filled(node *yaml.Node, value string) *yaml.Node {
	same := *node
	same.Value = strings.ReplaceAll(node.Value, "<on>", value)
	same.Content = nil
	for _, inner := range node.Content {
		same.Content = append(same.Content, filled(inner, value))
	}
	return &same
}

// notInID are characters of values that replace <on>, which an id may not have.
var notInID = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// one is the case of an entry.
func (e caseEntry) one(plan string) (Case, error) {
	c := e.Case
	c.ID = notInID.ReplaceAllString(c.ID, "-")
	c.Plan = cmp.Or(c.Plan, plan)
	if len(c.Steps) == 0 {
		c.Steps = []Step{e.Step}
	}
	if c.ID == "" || c.Title == "" || c.Plan == "" {
		return c, errors.New("a case needs an id, a title and a plan")
	}
	if c.Needs != "" && c.Needs != gateway && c.Needs != server {
		return c, fmt.Errorf("case %s needs %q, which no PEP is", c.ID, c.Needs)
	}
	if c.Era != "" && !slices.Contains(eras, c.Era) {
		return c, fmt.Errorf("case %s: there is no era %q", c.ID, c.Era)
	}
	for n, s := range c.Steps {
		if err := s.check(); err != nil {
			return c, fmt.Errorf("case %s, step %d: %w", c.ID, n+1, err)
		}
	}
	return c, nil
}

// check refuses a step that expects nothing, or something that does not exist.
func (s Step) check() error {
	known, err := calls()
	if err != nil {
		return err
	}
	if _, ok := known[s.Ask]; s.Ask != "" && !ok {
		return fmt.Errorf("there is no request %q", s.Ask)
	}
	if s.Ask == "" && s.Call == "" && s.Method == "" {
		return errors.New("it sends nothing")
	}
	if _, ok := replies()[cmp.Or(s.PDP, "permit")]; !ok {
		return fmt.Errorf("the PDP cannot %q", s.PDP)
	}
	if _, ok := (caller{now: never}).kinds()[cmp.Or(s.Token, "good")]; !ok {
		return fmt.Errorf("there is no token %q", s.Token)
	}
	if s.At != "" && s.At != "evaluation" {
		return fmt.Errorf("nothing is held to %q: several questions may be asked at once or one by one", s.At)
	}
	if who := s.TokenHiddenFrom; who != "" && who != "upstream" && who != "pdp" {
		return fmt.Errorf("nobody is called %q", who)
	}
	for want := range strings.SplitSeq(s.Want, " or ") {
		if outcomes[want] == nil {
			return fmt.Errorf("there is no outcome %q", want)
		}
	}
	return nil
}
