package pdp

import (
	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/cedartext"
	"policy-service/pdp/internal/source"
)

// Format lays out the policies of one file, as [cedartext.Format] does. It changes nothing of what they mean: cedar-go must
// read the same from both texts, or the problems say why the text has to stay as it is. It is held to the limits of a
// policy file, because cedar-go is not safe with more.
func Format(file string, text []byte) ([]byte, Problems) {
	var problems Problems
	if len(text) > source.MaxPolicyFile {
		problems.Add(file, 0, 0, "too_large", "the file has more than 256 KiB", "make several of it")
		return nil, problems
	}
	policies := policiesOf(file, text, &problems)
	if policies == nil {
		return nil, problems
	}
	laid, refused := cedartext.Format(string(text))
	if refused != nil {
		problems.Add(file, refused.Line, refused.Column, "format", refused.Problem, refused.Try)
		return nil, problems
	}
	if again := policiesOf(file, []byte(laid), &problems); again == nil || !bundle.SamePolicies(policies, again) {
		problems.Add(file, 1, 1, "format", "the layout would change what these policies mean", "report it, with the file")
		return nil, problems
	}
	return []byte(laid), nil
}

// policiesOf are the policies of a text, or nil with what keeps them from being read. What else is wrong with them is nothing
// to their layout.
func policiesOf(file string, text []byte, problems *Problems) []*bundle.Policy {
	var all Problems
	policies := bundle.ParsePolicies(file, bundle.UsageOf(evaluation.DefaultTenant), text, &all)
	if policies == nil {
		*problems = append(*problems, all...)
	}
	return policies
}
