// Package toolaccess makes no promise: it is for the tests of this module alone. It answers questions by declarations
// of tool access as their author reads them. Tests hold a server to it, which makes policies of them: so it knows
// nothing of policies, nor of how a server reads a declaration.
package toolaccess

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Declaration is a file, decoded. Whoever decodes it gives it an owner if it names none.
type Declaration struct {
	Owner, Mode, Default string
	Capability           string
	Subjects             []string
	Approval             map[string]any
	Rules                []struct {
		Agent, Tools     any
		Expires, Effect  string
		RequiresApproval bool `yaml:"requires_approval"`
	}
}

// Agent is who asks, as it is sent. In has the entities that it is in, as policies write them, and itself. Holds says that
// it has a capability for the call, or asks for one.
type Agent struct {
	Type, ID string
	In       []string
	Holds    bool
}

// Answer says if an agent may use a tool, and which approval that takes: its properties as JSON, "" for none. Two
// different ones no person could give in one, so nobody may.
func Answer(all []Declaration, who Agent, tool string, now time.Time) (allow bool, approval string) {
	closed, approvals := false, []string{}
	for _, d := range all {
		name, ours := strings.CutPrefix(tool, d.Owner+":")
		opened, denied := d.Mode == "denylist" || d.Mode == "open" || d.Default == "allow", false
		for _, r := range d.Rules {
			until, never := time.Parse(time.RFC3339, r.Expires)
			if ours && d.names(r.Agent, who) && lists(r.Tools, name) && (never != nil || now.Before(until)) {
				denied = denied || d.Mode == "denylist" || r.Effect == "deny"
				opened = opened || r.Effect != "deny"
				if r.RequiresApproval {
					approvals = append(approvals, d.approval(who, tool))
				}
			}
		}
		allow, closed = allow || ours, closed || ours && (denied || !opened || d.Capability == "required" && !who.Holds)
	}
	if approvals = slices.Compact(approvals); !allow || closed || len(approvals) > 1 {
		return false, ""
	}
	return true, strings.Join(approvals, "")
}

func (d Declaration) names(agent any, who Agent) bool {
	one, _ := agent.(map[string]any)
	in, _ := one["in"].(string)
	named := agent == who.ID && (slices.Contains(d.Subjects, who.Type) || d.Subjects == nil && who.Type == "agent")
	return agent == "*" || named || one["type"] == who.Type && one["id"] == who.ID || slices.Contains(who.In, in)
}

func lists(tools any, name string) bool {
	if all, ok := tools.([]any); ok {
		return slices.ContainsFunc(all, func(one any) bool { return lists(one, name) })
	}
	beginning, glob := strings.CutSuffix(tools.(string), "*")
	return name == tools || glob && strings.HasPrefix(name, beginning)
}

func (d Declaration) approval(who Agent, tool string) string {
	all := map[string]any{"template": d.Owner, "message": "${principal.id} wants to use ${resource.id}."}
	maps.Copy(all, d.Approval)
	for name, value := range all {
		if text, ok := value.(string); ok {
			all[name] = strings.NewReplacer("${principal.id}", who.ID, "${resource.id}", tool).Replace(text)
		}
	}
	text, _ := json.Marshal(all)
	return string(text)
}
