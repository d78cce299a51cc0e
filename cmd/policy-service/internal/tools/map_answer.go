package tools

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/evaluation"
	"policy-service/pdp/mcp"
)

// mapJSON is what map prints. Programs read it: members may be added, never renamed.
type mapJSON struct {
	// Mapping is that of the question that is asked last: the trusted one, if there is one.
	Mapping   *mappingJSON   `json:"mapping,omitzero"`
	Questions []questionJSON `json:"questions"`
	Verdict   *verdictJSON   `json:"verdict,omitzero"`
	Missing   *approvalJSON  `json:"missing_approval,omitzero"`
	Refused   *refusedJSON   `json:"refused,omitzero"`
}

type mappingJSON struct {
	Author string         `json:"author"`
	Digest string         `json:"digest,omitzero"`
	Text   jsontext.Value `json:"text,omitzero"`
}

type questionJSON struct {
	// Mapping is that of this question, if it is not the one above.
	Mapping *mappingJSON   `json:"mapping,omitzero"`
	API     string         `json:"api"`
	Path    string         `json:"path"`
	Body    jsontext.Value `json:"body"`
	// Decisions are the verdicts about each request in the body, as far as they were wanted.
	Decisions []verdictJSON `json:"decisions,omitzero"`
}

// verdictJSON is what was decided. About a message it is the first deny; otherwise the last allow.
type verdictJSON struct {
	Decision    bool                     `json:"decision"`
	Reason      string                   `json:"reason,omitzero"`
	ReasonUser  string                   `json:"reason_user,omitzero"`
	Determining []string                 `json:"determining,omitzero"`
	Overruled   []string                 `json:"overruled,omitzero"`
	Errors      []evaluation.PolicyError `json:"errors,omitzero"`
	Mismatch    []evaluation.Mismatch    `json:"mismatch,omitzero"`
	Obligations []evaluation.Obligation  `json:"obligations,omitzero"`
	Required    []string                 `json:"required_obligations,omitzero"`
	// Positions are those of the policies that are named above.
	Positions map[string]string `json:"positions,omitempty"`
	Bundle    string            `json:"bundle,omitzero"`
	Record    string            `json:"record,omitzero"` // the id of the decision, if a PDP was asked
}

// approvalJSON is what is missing if the request waits for a person.
type approvalJSON struct {
	Obligation string   `json:"obligation,omitzero"`
	Policies   []string `json:"policies,omitzero"`
	Template   string   `json:"template,omitzero"`
	Message    string   `json:"message,omitzero"`
	Quorum     int      `json:"quorum,omitzero"`
	Timeout    string   `json:"timeout,omitzero"`
	ValidFor   string   `json:"valid_for,omitzero"`
	Uses       int      `json:"uses,omitzero"`
	Rounds     int      `json:"rounds,omitzero"`
	Within     string   `json:"rounds_within,omitzero"`
	// Asked says who is asked, and TakesPart who asks.
	Asked     string   `json:"asked,omitzero"`
	TakesPart []string `json:"takes_part,omitzero"`
	// Try is set if nobody can be asked.
	Try string `json:"try,omitzero"`
}

type refusedJSON struct {
	Kind    string `json:"kind"`
	Code    int    `json:"code,omitzero"`
	Message string `json:"message"`
	// At is the place in a file, as file:line:column. In says what the pointer is into: message, mapping or definition.
	At         string `json:"at,omitzero"`
	In         string `json:"in,omitzero"`
	Pointer    string `json:"pointer,omitzero"`
	Expression string `json:"expression,omitzero"`
	Offset     int    `json:"offset,omitzero"`
	Try        string `json:"try"`
}

func explained(x mcp.Explanation) *mapJSON {
	out := &mapJSON{Questions: []questionJSON{}}
	if r := x.Refused; r != nil {
		out.Refused = &refusedJSON{Kind: r.Kind, Code: r.Code, Message: r.Message, In: string(r.In), Pointer: r.Pointer, Expression: r.Expression, Offset: r.Offset, Try: r.Try}
	}
	for n, q := range x.Questions {
		m := &mappingJSON{q.Mapping.Author, q.Mapping.Digest, q.Mapping.Text}
		one := questionJSON{API: string(q.API), Path: q.Path, Body: q.Body}
		if n == len(x.Questions)-1 {
			out.Mapping = m
		} else {
			one.Mapping = m
		}
		out.Questions = append(out.Questions, one)
	}
	return out
}

// decided takes the verdicts about a question. What is decided about the message is the first deny.
func (o *mapJSON) decided(n int, all []verdictJSON) (deny *verdictJSON) {
	if len(o.Questions) > 1 || len(all) > 1 { // otherwise it is the verdict
		o.Questions[n].Decisions = all
	}
	for i := range all {
		if o.Verdict == nil || o.Verdict.Decision {
			if o.Verdict = &all[i]; !all[i].Decision {
				return o.Verdict
			}
		}
	}
	return nil
}

// byAnswers takes the verdicts of the PDP that was asked.
func (o *mapJSON) byAnswers(x mcp.Explanation) error {
	for n, q := range x.Questions {
		all := make([]verdictJSON, len(q.Answers))
		for i, a := range q.Answers {
			if a.Err != nil && a.Reason == "" {
				return fmt.Errorf("the PDP gives no answer: %w; check pdp in the configuration, and policy-service mcp-gateway doctor", a.Err)
			}
			all[i] = verdictJSON{Decision: !a.Denied, Reason: a.Reason, ReasonUser: a.ReasonUser, Obligations: a.Obligations, Record: a.Record}
		}
		if deny := o.decided(n, all); deny != nil && deny.Reason == string(evaluation.ApprovalRequired) {
			o.Missing = &approvalJSON{Asked: "the PDP that was asked says it in its record, and its policies by which template"}
			o.Missing.unlessWhole(x, n)
		}
	}
	return nil
}

// unlessWhole says so if nobody can be asked, because people approve whole calls, in the gateway's own words.
func (a *approvalJSON) unlessWhole(x mcp.Explanation, n int) {
	if !x.Questions[n].Whole {
		a.Asked, a.TakesPart = "nobody: a mapping makes the question, or strict leaves the arguments out, and people approve whole calls in the gateway's own words", nil
		a.Try = "demand the approval of what the gateway asks without a mapping, strict and declared: instead"
	}
}

// print writes it for people and programs: indented, and nothing in it acts on a terminal.
func (o *mapJSON) print(s cli.Streams) error {
	text, err := json.Marshal(o, json.Deterministic(true), jsontext.WithIndent("  "), jsontext.PreserveRawStrings(true))
	if err != nil {
		return fmt.Errorf("cannot write the answer as JSON: %w; try another message", err)
	}
	s.Print("%s", cli.Lines(text))
	return nil
}
