package capability

import (
	"maps"
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Bounds of what is read.
const (
	MaxToken     = 8 << 10 // bytes
	MaxProof     = 4 << 10 // bytes
	MaxTools     = 64      // of a layer
	MaxArguments = 32      // of a layer
	MaxLayers    = 3
	MaxUses      = 1_000_000

	maxValues = 128 // of one_of
	maxNested = 4   // how deep a value of a constraint may nest
	maxName   = 256 // bytes of an id, or of the name of an argument
	maxURL    = 2048
)

// others is the name that stands for all arguments that have no constraint of their own.
const others = "*"

// Arguments are the constraints on arguments, by name. They are closed: each named argument must be there, and an
// argument without a constraint refuses the call, unless "*" is among the names. Nil Arguments restrict nothing.
type Arguments map[string]Constraint

// Layer is one restriction of a token: the tools that may be called, and the arguments that they may be called with.
type Layer struct {
	// Tools are ids, such as files:read, or SERVER:* for all tools of a server.
	Tools     []string  `json:"tools"`
	Arguments Arguments `json:"arguments,omitzero"`
}

// Kinds are the kinds of the constraints that layers have together, by the names of the arguments. Without "*" among them
// there may be no other arguments. Nil says that the arguments may be any.
func Kinds(layers []Layer) (all map[string]string) {
	closed := false
	for _, l := range layers {
		if l.Arguments == nil {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		for name, c := range l.Arguments {
			if was := all[name]; was == "" || was == wildcard {
				all[name] = c.kind
			}
		}
		_, open := l.Arguments[others]
		closed = closed || !open
	}
	if closed {
		delete(all, others)
	}
	return all
}

// Admits returns nil if the layer admits a call. Names are compared byte for byte.
func (l Layer) Admits(tool string, arguments evaluation.Object) *Refusal {
	if !slices.ContainsFunc(l.Tools, func(covered string) bool { return covers(covered, tool) }) {
		return &Refusal{Code: ToolNotCovered}
	}
	if l.Arguments == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(l.Arguments)) {
		if v, there := arguments.Lookup(name); name != others && (!there || !l.Arguments[name].Holds(v)) {
			return &Refusal{Code: ArgumentRefused, Argument: name}
		}
	}
	rest, open := l.Arguments[others]
	for name, v := range arguments.All {
		if _, named := l.Arguments[name]; (!named || name == others) && (!open || !rest.Holds(v)) {
			return &Refusal{Code: ArgumentRefused, Argument: name[:min(len(name), maxName)]} // which the caller made up
		}
	}
	return nil
}

// covers reports whether a tool is the covered one, or one of the covered server. The id of a tool that ends with a
// star would be taken for a whole server by whoever reads the token, and is never covered.
func covers(covered, tool string) bool {
	if strings.HasSuffix(tool, "*") {
		return false
	}
	server, all := strings.CutSuffix(covered, "*")
	return covered == tool || all && strings.HasSuffix(server, ":") && len(server) > 1 && len(tool) > len(server) && strings.HasPrefix(tool, server)
}
