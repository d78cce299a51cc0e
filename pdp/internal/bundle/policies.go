package bundle

import (
	"fmt"
	"strconv"

	"github.com/cedar-policy/cedar-go"
)

// ParsePolicies reads the policies of one file.
func ParsePolicies(file string, use *Usage, text []byte, problems *Problems) []*Policy {
	if use.exceeded || !checkText(file, text, use, problems) {
		return nil
	}
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		line, column := positionIn(err.Error())
		problems.Add(file, line, column, "policy_syntax", "this is not Cedar"+expectation(err.Error()),
			"check the syntax at this place; a policy ends with a semicolon")
		return nil
	}
	policies := make([]*Policy, 0, len(list))
	for n, c := range list {
		at := c.Position()
		p := &Policy{
			Id:       fmt.Sprintf("%s#%d", file, n),
			Cedar:    c,
			Tenant:   use.owner,
			File:     file,
			Line:     at.Line,
			Column:   at.Column,
			Position: fmt.Sprintf("%s:%d:%d", file, at.Line, at.Column),
			Facts:    factsOf(c),
		}
		annotations := c.Annotations()
		if id, ok := annotations["id"]; ok {
			p.Id, p.Named = string(id), true
		}
		if p.Id == "" {
			problems.Add(file, at.Line, at.Column, "empty_id", "the policy's @id is empty",
				"give it a name, or leave the annotation out")
		}
		if names, ok := annotations["obligation"]; ok {
			p.Obligation = (*string)(&names)
		}
		p.CedarID, p.ReasonUser = cedar.PolicyID(p.Id), string(annotations["reason_user"])
		policies = append(policies, p)
	}
	return policies
}

// Quote quotes a name for a message.
func Quote(s string) string { return strconv.Quote(s) }
