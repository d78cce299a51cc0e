package capability

import (
	"fmt"
	"slices"
)

// NotNarrower says of what of a capability another one, that it was to be handed on as, would have more.
type NotNarrower struct{ Member string } // of the request

// Error says which member of the request it is.
func (e *NotNarrower) Error() string {
	return fmt.Sprintf("not_narrower: %s is not within the capability that is handed on; ask for no more than that has", e.Member)
}

// Narrower reports, as a [*NotNarrower], what a child has that the token that it is made from has not. A child has all layers
// of that token and one more: so whatever the last one says, the child admits no call that the token does not.
func (t Token) Narrower(child Token) error {
	for _, part := range []struct {
		within bool
		member string
	}{
		{child.Issuer == t.Issuer && child.Audience == t.Audience, "audience"},
		{child.Parent == t.ID && child.Depth == t.Depth+1 && child.Depth <= t.MaxDepth && child.MaxDepth <= t.MaxDepth, "max_depth"},
		{len(child.Layers) == len(t.Layers)+1 && string(text(child.Layers[:len(t.Layers)])) == string(text(t.Layers)), "tools"},
		{t.coversTools(child.Tools()), "tools"},
		{!child.NotBefore.Before(t.NotBefore), "valid_from"},
		{!child.Expires.After(t.Expires), "duration"},
		{t.MaxUses == 0 || 0 < child.MaxUses && child.MaxUses <= t.MaxUses, "max_uses"},
		{t.Verify == Offline || child.Verify == Online, "offline"},
		{child.Session == t.Session && t.Session == "", "channel"}, // in whose session its holder alone is
	} {
		if !part.within {
			return &NotNarrower{part.member}
		}
	}
	return nil
}

// Tools are those of the last layer: no other can be called.
func (t Token) Tools() []string { return t.Layers[len(t.Layers)-1].Tools }

// coversTools reports whether each layer has all of the tools.
func (t Token) coversTools(tools []string) bool {
	return !slices.ContainsFunc(t.Layers, func(l Layer) bool {
		return slices.ContainsFunc(tools, func(tool string) bool {
			return !slices.ContainsFunc(l.Tools, func(covered string) bool { return covered == tool || covers(covered, tool) })
		})
	})
}
