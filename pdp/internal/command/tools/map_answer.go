package tools

import (
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp"
)

// mapJSON is the output of map. Programs read it: members may be added, never renamed.
type mapJSON struct {
	Questions []questionJSON `json:"questions"`
	Verdict   *verdictJSON   `json:"verdict,omitzero"`
	Missing   *approvalJSON  `json:"missing_approval,omitzero"`
	Refused   *refusedJSON   `json:"refused,omitzero"`
}

type questionJSON struct {
	Mapping struct {
		Author string `json:"author"`
		Digest string `json:"digest,omitzero"`
	} `json:"mapping"`
	API  string         `json:"api"`
	Path string         `json:"path"`
	Body jsontext.Value `json:"body"`
	// Decisions are the verdicts about each request in the body, unless there is one in all.
	Decisions []verdictJSON `json:"decisions,omitzero"`
}

// verdictJSON is a decision. That about a message is the first deny, or else the first allow.
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
}

// approvalJSON is the approval that a request waits for. Its terms stand in obligations.yaml.
type approvalJSON struct {
	Obligation string   `json:"obligation,omitzero"`
	Policies   []string `json:"policies,omitzero"`
	Template   string   `json:"template,omitzero"`
	Message    string   `json:"message,omitzero"`
	Quorum     int      `json:"quorum,omitzero"`
	Asked      string   `json:"asked,omitzero"`
	TakesPart  []string `json:"takes_part,omitzero"`
	// Try is set if no person can be asked.
	Try string `json:"try,omitzero"`
}

type refusedJSON struct {
	Kind    string `json:"kind"`
	Code    int    `json:"code,omitzero"`
	Message string `json:"message"`
	// In is the text that the pointer leads into: message, mapping or definition.
	In         string `json:"in,omitzero"`
	Pointer    string `json:"pointer,omitzero"`
	Expression string `json:"expression,omitzero"`
	Try        string `json:"try"`
}

func explained(x mcp.Explanation) *mapJSON {
	out := &mapJSON{Questions: []questionJSON{}}
	if r := x.Refused; r != nil {
		out.Refused = &refusedJSON{r.Kind, r.Code, r.Message, r.In, r.Pointer, r.Expression, r.Try}
	} else if len(x.Questions) == 0 {
		out.Verdict = &verdictJSON{Decision: true, Reason: "no question is asked about this method"}
	}
	for _, q := range x.Questions {
		one := questionJSON{API: string(q.API), Path: q.Path, Body: q.Body}
		one.Mapping.Author, one.Mapping.Digest = q.Author, q.Digest
		out.Questions = append(out.Questions, one)
	}
	return out
}

// decided takes the verdicts about a question. It returns the number of the deny that decides about the message, or -1.
func (o *mapJSON) decided(n int, all []verdictJSON) int {
	if len(o.Questions) > 1 || len(all) > 1 { // otherwise it is the verdict
		o.Questions[n].Decisions = all
	}
	for i := range all {
		if o.Verdict == nil || o.Verdict.Decision {
			if o.Verdict = &all[i]; !all[i].Decision {
				return i
			}
		}
	}
	return -1
}
