// Package access makes Cedar policies from tool access declarations: files in which the owner of
// a tool server lists the agents that may use its tools, until when, and with whose approval.
//
// [Read] reads a file into a [Declaration], and [Declaration.Policies] makes the policies. They
// are the same Cedar as an author could write. Nothing but these policies decides: the package
// has no other way to give an answer.
package access

import (
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"
)

// Mode decides about agents that no rule names.
type Mode string

// The modes.
const (
	Allowlist Mode = "allowlist" // rules allow, everything else is denied
	Denylist  Mode = "denylist"  // rules deny, everything else is allowed
	Open      Mode = "open"      // everything is allowed; rules demand approvals
	Hybrid    Mode = "hybrid"    // each rule has an effect, and default is for all else
)

// Capability says if calls need a capability: a token that an agent has asked for.
type Capability string

// What there is to say about capabilities. An empty text is [None].
const (
	None     Capability = "none"
	Observe  Capability = "observe"  // calls need none, and a policy of its own permits those without one
	Required Capability = "required" // without one, a call is denied
)

// Declaration is one file about the tools of one owner.
type Declaration struct {
	File   string
	Owner  string
	At     *yaml.Node // where the owner is named, else the beginning of the document
	Mode   Mode
	Allows bool // the default
	// Capability is empty if the file leaves it to the bundle.
	Capability Capability
	Subjects   []string // the wire types that a bare name of an agent stands for
	// SubjectsAt are the places of Subjects; nil if the file does not name them.
	SubjectsAt []*yaml.Node
	// Approval are the properties of the obligation that a rule with requires_approval demands, as
	// the file writes them: a mapping, or nil.
	Approval *yaml.Node
	Rules    []Rule

	defaultAt    *yaml.Node // the default, or the mode
	capabilityAt *yaml.Node // the capability, or the default
}

// Rule is one rule of a declaration.
type Rule struct {
	At               *yaml.Node
	Agent            Agent
	Tools            []Tool
	Expires          time.Time // zero: never
	RequiresApproval bool
	Denies           bool

	subjects []string // the declaration's
	least    []Tool   // sorted, without tools that a prefix among them covers
}

// Agent is whom a rule is about: a bare name, one entity, everybody below one, or everybody.
type Agent struct {
	At   *yaml.Node
	Name string          // a bare name, of any of the declaration's subjects
	Type string          // with ID: one entity, by its wire type
	ID   string          //
	In   types.EntityUID // everybody in or below an entity
	All  bool            // everybody
}

// Tool is one tool of the owner, or all whose names begin so.
type Tool struct {
	Name   string
	Prefix bool
}

// Names give the words of a declaration their meaning in a bundle.
type Names struct {
	// Type maps a wire type onto Cedar's.
	Type func(wire string) (types.EntityType, bool)
	// Actions are the actions that rules are about: tool.invoke and capability.grant, as far as the
	// bundle's schema declares them.
	Actions []types.EntityUID
	// Grant is the action that never needs a capability, because who asks for one has none.
	Grant types.EntityUID
}

// Policy is one policy made from a declaration.
type Policy struct {
	ID         string
	Cedar      *cedar.Policy
	Obligation bool       // it carries the declaration's obligation
	At         *yaml.Node // the rule, the default or the mode that it is made from
	Until      time.Time  // when the rule expires, zero for never
}

// ReservedPrefix begins the ids of policies and the names of obligations that are made from
// declarations.
const ReservedPrefix = "access."

// RequiresApproval reports if a rule demands an approval.
func (d *Declaration) RequiresApproval() bool {
	for _, r := range d.Rules {
		if r.RequiresApproval {
			return true
		}
	}
	return false
}

// Covers reports if a rule says something of all that another rule of the declaration is about,
// and for at least as long: of its agents, and of its tools. Their effects do not matter.
// The members of a group are not known here, so a rule about a group covers only rules of the same group.
func (r *Rule) Covers(other *Rule) bool {
	if !r.Expires.IsZero() && (other.Expires.IsZero() || r.Expires.Before(other.Expires)) {
		return false
	}
	return r.coversAgent(other) && coverTools(r.least, other.least)
}

// SharesTools reports if there can be a tool that both rules are about.
func (r *Rule) SharesTools(other *Rule) bool {
	mine, theirs := r.least, other.least
	for len(mine) > 0 && len(theirs) > 0 {
		a, b := mine[0], theirs[0]
		switch {
		case a.covers(b) || b.covers(a):
			return true
		case compareTools(a, b) < 0:
			mine = mine[1:]
		default:
			theirs = theirs[1:]
		}
	}
	return false
}

func (r *Rule) coversAgent(other *Rule) bool {
	switch {
	case r.Agent.All:
		return true
	case other.Agent.All:
		return false
	case r.Agent.In != types.EntityUID{} || other.Agent.In != types.EntityUID{}:
		return r.Agent.In == other.Agent.In
	}
	mine, whose := r.entities()
	theirs, of := other.entities()
	return whose == of && !slices.ContainsFunc(theirs, func(t string) bool { return !slices.Contains(mine, t) })
}

// entities are the wire types, and the id, of the entities that a rule names.
func (r *Rule) entities() (wire []string, id string) {
	if r.Agent.Name != "" {
		return r.subjects, r.Agent.Name
	}
	return []string{r.Agent.Type}, r.Agent.ID
}

// least sorts tools, and leaves out those that a prefix among them covers.
func least(tools []Tool) []Tool {
	sorted := slices.Clone(tools)
	slices.SortFunc(sorted, compareTools)
	// All names with one beginning stand together, right behind it.
	n := 0
	for _, t := range sorted {
		if n == 0 || !sorted[n-1].covers(t) {
			sorted[n] = t
			n++
		}
	}
	return sorted[:n]
}

// coverTools reports if each of some tools is covered. Both lists are sorted and [least].
func coverTools(all, some []Tool) bool {
	i := 0
	for _, t := range some {
		// Only the last tool of all that sorts before t, or equal to it, can cover t.
		for i < len(all) && compareTools(all[i], t) <= 0 {
			i++
		}
		if i == 0 || !all[i-1].covers(t) {
			return false
		}
	}
	return true
}

func (t Tool) covers(other Tool) bool {
	return t == other || t.Prefix && strings.HasPrefix(other.Name, t.Name)
}

// compareTools sorts by names, and a beginning before the tool of its name.
func compareTools(a, b Tool) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 || a.Prefix == b.Prefix {
		return c
	}
	if a.Prefix {
		return -1
	}
	return 1
}
