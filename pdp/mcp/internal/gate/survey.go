package gate

import (
	"context"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/lock"
)

// Survey is what a server says to a client of the operator's own, with the tools that no client of others sees: those that
// are hidden, and those that cannot be used.
func (g *Gateway) Survey(ctx context.Context, s *Server, who *identity.Principal, info jsontext.Value) (lock.Server, error) {
	c := client{era: era.Modern, version: era.ModernVersions[0], info: info, capabilities: rpc.Object{}.Value()}
	l := newLink(s, who.Key, c)
	defer l.close()
	listed, err := g.fetch(ctx, l, who, c, &lock.File{}, nil)
	if err != nil {
		return lock.Server{}, err
	}
	return lock.Of(instructionsOf(listed.of), slices.Collect(maps.Values(listed.other)))
}
