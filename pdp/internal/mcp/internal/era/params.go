package era

import (
	"slices"

	"policy-service/pdp/internal/rpc"
)

// paramsOf are the members that MCP has in the params of the requests that go on to servers, besides _meta and the answers to
// what a server asks first. Params with objects that have members of MCP's own have an entry for each.
var paramsOf = map[string][]string{
	"tools/call":                   {"name", "arguments"},
	"prompts/get":                  {"name", "arguments"},
	"prompts/list":                 {"cursor"},
	"resources/list":               {"cursor"},
	"resources/templates/list":     {"cursor"},
	"resources/read":               {"uri"},
	"resources/subscribe":          {"uri"},
	"resources/unsubscribe":        {"uri"},
	"logging/setLevel":             {"level"},
	"completion/complete":          {"ref", "argument", "context"},
	"completion/complete ref":      {"type", "name", "uri", "title"},
	"completion/complete argument": {"name", "value"},
	"completion/complete context":  {"arguments"},
}

// sinceOf are the revisions that added a member to the params of an older request.
var sinceOf = map[string]string{"completion/complete context": "2025-06-18", "completion/complete ref.title": "2025-06-18"}

// WithoutUnknown returns the params of a request without members that a revision of MCP does not have there, unless keep
// reports that a member stays. A member of an object within params is called by both names, with a dot between them. The
// params of a method that is not MCP's stay as they are.
func WithoutUnknown(method, revision string, params rpc.Object, keep func(member string) bool) rpc.Object {
	known, ok := paramsOf[method]
	if !ok {
		return params
	}
	for _, name := range known {
		if inside, ok := paramsOf[method+" "+name]; ok {
			params = withoutIn(params, name, func(member string) bool {
				return !(slices.Contains(inside, member) && revision >= sinceOf[method+" "+name+"."+member]) && !keep(name+"."+member)
			})
		}
	}
	return params.Without(func(name string) bool {
		return name != "_meta" && !(slices.Contains(known, name) && revision >= sinceOf[method+" "+name]) && !keep(name)
	})
}
