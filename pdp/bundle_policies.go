package pdp

import (
	"fmt"
	"strconv"

	"github.com/cedar-policy/cedar-go"
)

// parsePolicies reads the policies of one file.
func parsePolicies(file string, use *usage, text []byte, problems *Problems) []*policy {
	if use.over || !checkText(file, text, use, problems) {
		return nil
	}
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		line, column := positionIn(err.Error())
		problems.add(file, line, column, "policy_syntax", "this is not Cedar"+expectation(err.Error()), "check the syntax at this place; a policy ends with a semicolon")
		return nil
	}
	policies := make([]*policy, 0, len(list))
	for n, c := range list {
		at := c.Position()
		p := &policy{
			id: fmt.Sprintf("%s#%d", file, n), cedar: c, tenant: use.owner, file: file, line: at.Line, column: at.Column,
			position: fmt.Sprintf("%s:%d:%d", file, at.Line, at.Column), facts: factsOf(c),
		}
		annotations := c.Annotations()
		if id, ok := annotations["id"]; ok {
			p.id, p.named = string(id), true
		}
		if p.id == "" {
			problems.add(file, at.Line, at.Column, "empty_id", "the policy's @id is empty", "give it a name, or leave the annotation out")
		}
		if names, ok := annotations["obligation"]; ok {
			p.obligation = (*string)(&names)
		}
		p.cedarID, p.reasonUser = cedar.PolicyID(p.id), string(annotations["reason_user"])
		policies = append(policies, p)
	}
	return policies
}

func quote(s string) string { return strconv.Quote(s) }
