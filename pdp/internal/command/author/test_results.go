package author

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/visible"
)

// print shows each test that failed, and how to ask its question again. It counts the tests that passed.
func (r *results) print(s cli.Streams) error {
	for _, c := range r.cases {
		if len(c.differs) == 0 {
			continue
		}
		s.Print("%s %s: %s", s.Colour(cli.Red, "FAIL"), c.Position(), c.Name)
		for _, d := range c.differs {
			s.Print("    %s", cli.Quoted(d))
		}
		s.Print("    try: %s", cli.Quoted(c.reproduce(r.dir)))
	}
	uncovered := r.uncovered()
	for _, p := range uncovered {
		s.Print("%s %s: no test satisfies %s %s", s.Colour(cli.Yellow, "uncovered"), p.Position, p.Effect, p.ID)
	}
	verdict := s.Colour(cli.Green, "ok")
	if r.failed() > 0 {
		verdict = s.Colour(cli.Red, "FAIL")
	}
	summary := fmt.Sprintf("%d passed, %d failed", len(r.cases)-r.failed(), r.failed())
	if r.coverage {
		all := len(r.bundle.Policies())
		summary += fmt.Sprintf("; %d of %d policies satisfied", all-len(uncovered), all)
	}
	s.Print("%s %s: %s", verdict, r.dir, summary)
	return nil
}

// reproduce is a command that asks the same question and says why it is
// answered so. A caller, and a capability of a certain id, cannot be given on the command line.
func (c result) reproduce(dir string) string {
	command := "policy-service eval --explain --policies " + cli.Shell(dir)
	if tenant := c.Call.Request.Tenant; tenant != "default" {
		command += " --tenant " + cli.Shell(tenant)
	}
	if !c.Call.Now.IsZero() {
		command += " --now " + c.Call.Now.Format(time.RFC3339)
	}
	if c.Call.Capability == pdp.HeldInTest {
		command += " --held"
	}
	command = "printf %s " + cli.Shell(string(c.Body)) + " | " + command + " -"
	var without []string
	if c.Call.Asker.Name != "" {
		without = append(without, "the caller")
	}
	if c.Call.Capability.Held && c.Call.Capability != pdp.HeldInTest {
		without = append(without, "the capability")
	}
	if len(without) > 0 {
		command += " # but without " + strings.Join(without, " and ")
	}
	return command
}

// testJSON is the output of test --json. Programs read it: members may be added,
// never renamed.
type testJSON struct {
	Bundle    string           `json:"bundle"`
	Passed    int              `json:"passed"`
	Failed    int              `json:"failed"`
	Tests     []testCaseJSON   `json:"tests"`
	Uncovered []pdp.PolicyInfo `json:"uncovered,omitzero"`
}

type testCaseJSON struct {
	Name   string   `json:"name"`
	File   string   `json:"file"`
	Line   int      `json:"line"`
	Column int      `json:"column"`
	Tenant string   `json:"tenant"`
	Passed bool     `json:"passed"`
	Differ []string `json:"differences"`
}

func (r *results) json() testJSON {
	out := testJSON{Bundle: r.bundle.Digest(), Passed: len(r.cases) - r.failed(), Failed: r.failed()}
	for _, c := range r.cases {
		out.Tests = append(out.Tests, testCaseJSON{
			Name:   c.Name,
			File:   c.File,
			Line:   c.Line,
			Column: c.Column,
			Tenant: c.Call.Request.Tenant,
			Passed: len(c.differs) == 0,
			Differ: c.differs,
		})
	}
	if r.coverage {
		out.Uncovered = append([]pdp.PolicyInfo{}, r.uncovered()...)
	}
	return out
}

// junitSuite is the part of JUnit's XML that every reader of it knows. Its texts are
// visible: XML has no way to write some characters at all.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (r *results) junit() []byte {
	suite := junitSuite{
		Name:     visible.Text(r.dir),
		Tests:    len(r.cases),
		Failures: r.failed(),
		Time:     fmt.Sprintf("%.3f", r.took.Seconds()),
	}
	for _, c := range r.cases {
		line := junitCase{
			Class: visible.Text(c.File),
			Name:  visible.Text(c.Name),
			File:  visible.Text(c.File),
			Line:  c.Line,
		}
		if len(c.differs) > 0 {
			line.Failure = &junitFailure{visible.Quoted(c.differs[0]), c.text(r.dir)}
		}
		suite.Cases = append(suite.Cases, line)
	}
	var b bytes.Buffer
	b.WriteString(xml.Header)
	e := xml.NewEncoder(&b)
	e.Indent("", "  ")
	_ = e.Encode(suite) // neither a buffer nor these types can fail
	b.WriteByte('\n')
	return b.Bytes()
}

func (c result) text(dir string) string {
	var b bytes.Buffer
	for _, d := range c.differs {
		fmt.Fprintln(&b, visible.Quoted(d))
	}
	fmt.Fprint(&b, "try: ", visible.Quoted(c.reproduce(dir)))
	return b.String()
}
