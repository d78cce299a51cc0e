package bundle

import (
	"bytes"
	"fmt"
	"slices"
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
		use.pace.step()
		at := entityPlace{file, c.Position().Line, c.Position().Column}
		p := newPolicy(c, fmt.Sprintf("%s#%d", file, n), use.owner, at)
		if p.Id == "" {
			problems.Add(file, at.line, at.column, "empty_id", "the policy's @id is empty",
				"give it a name, or leave the annotation out")
		}
		policies = append(policies, p)
	}
	return policies
}

// newPolicy is a policy at a place in a tenant's files. The id is that of its annotation, if it
// has one.
func newPolicy(c *cedar.Policy, id, tenant string, at entityPlace) *Policy {
	p := &Policy{
		Id:       id,
		Cedar:    c,
		Tenant:   tenant,
		File:     at.file,
		Line:     at.line,
		Column:   at.column,
		Position: fmt.Sprintf("%s:%d:%d", at.file, at.line, at.column),
		Facts:    factsOf(c),
	}
	annotations := c.Annotations()
	if id, ok := annotations["id"]; ok {
		p.Id, p.Named = string(id), true
	}
	if names, ok := annotations["obligation"]; ok {
		p.Obligation = (*string)(&names)
	}
	p.CedarID, p.ReasonUser = cedar.PolicyID(p.Id), string(annotations["reason_user"])
	return p
}

// SamePolicies reports whether policies have the same trees, in the same order. Where they stand counts for nothing.
func SamePolicies(some, others []*Policy) bool {
	return slices.EqualFunc(some, others, func(one, other *Policy) bool {
		text, err := one.Cedar.MarshalJSON()
		same, failed := other.Cedar.MarshalJSON()
		return err == nil && failed == nil && bytes.Equal(text, same)
	})
}

// Quote quotes a name for a message.
func Quote(s string) string { return strconv.Quote(s) }
