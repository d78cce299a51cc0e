package tools

import (
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/mcp"
)

// How calls are asked about.
const (
	byInvoke  = mcp.AskToolInvoke // by one action, of a tool that is called server:name
	byTool    = mcp.AskTool       // by an action for each tool
	byBinding = mcp.AskCOAZ       // as the binding has it, of a tool by the clients' name
)

func (k *checker) asks(ways ...mcp.Ask) bool { return slices.Contains(ways, k.told.Ask) }

// mayBeAbout reports whether a policy could hold for calls of a tool, by the tests that it makes before anything else.
func (k *checker) mayBeAbout(p pdp.PolicyContents, t *tool) bool {
	return !slices.ContainsFunc(p.Tested, func(test pdp.PolicyTest) bool {
		switch test.Of {
		case "action":
			return !slices.ContainsFunc(test.Any, func(ref evaluation.Ref) bool { return k.mayBeAction(ref.ID, test.Only, t) })
		case "resource":
			return !slices.ContainsFunc(test.Any, func(ref evaluation.Ref) bool { return k.mayBeTool(ref, test.Only, t) })
		}
		return false
	})
}

// mayBeAction reports whether the action of a tool's calls is one, or, unless only that one is meant, could be below it.
func (k *checker) mayBeAction(id string, only bool, t *tool) bool {
	switch {
	case id == k.actionOf(t):
		return true
	case only, strings.Contains(id, "/"): // a method
		return false
	case k.asks(byTool) && (id == string(byInvoke) || id == t.server+":*"):
		return true
	}
	return !strings.Contains(id, ":") && id != string(byInvoke) // a group of the author's
}

// mayBeTool reports whether a tool is an entity, or, unless only that one is meant, could be below it.
func (k *checker) mayBeTool(ref evaluation.Ref, only bool, t *tool) bool {
	switch {
	case ref.Type == "tool" && (ref.ID == t.id || k.asks(byBinding)):
		return true
	case only:
		return false
	}
	return ref.Type != "tool" || k.locked.all[ref.ID] == nil
}

// actionOf is the action of questions about a tool's calls.
func (k *checker) actionOf(t *tool) string {
	switch {
	case k.asks(byTool):
		return t.id
	case k.asks(byBinding):
		return toolsCall
	}
	return string(byInvoke)
}
