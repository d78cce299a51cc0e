package tools

import (
	"fmt"
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// checkGroups looks for tools that a forbid is about by a group of actions, and whose own action is not in the group: with
// ask: tool, only a schema says that it is. A permit of the kind permits less than it says, and who is refused will tell.
func (k *checker) checkGroups(p pdp.PolicyContents) {
	if p.Effect != "forbid" || !k.asks(byTool) {
		return
	}
	for _, test := range p.Tested {
		if test.Of != "action" || test.Only {
			continue
		}
		out := slices.DeleteFunc(k.locked.sorted(), func(t *tool) bool { return !k.escapes(p, test.Any, t) })
		if len(out) == 0 {
			continue
		}
		k.atPolicy(p, false, fmt.Sprintf("is about a group of actions in which that of %s is not, as far as the bundle says: the forbid never fires for it", out[0].id),
			"write the schema of the tools into the bundle, with policy-service mcp schema -o tools.cedarschema")
	}
}

// escapes reports whether groups are meant to have a tool's action, and none of them has it.
func (k *checker) escapes(p pdp.PolicyContents, groups []evaluation.Ref, t *tool) bool {
	meant := false
	for _, group := range groups {
		switch {
		case group.Type != "Action":
		case !k.bundle.Escapes(p.Tenant, k.actionOf(t), group.ID):
			return false
		case group.ID == string(byInvoke), group.ID == t.server+":*":
			meant = true
		}
	}
	return meant && k.mayBeAbout(p, t)
}
