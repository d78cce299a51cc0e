package ask

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

type Asker struct{}
type Permit struct{}
type Item struct {
	Tool *Tool
	ID   string
}

func (a *Asker) Ask(ctx context.Context, op Operation) (*Permit, *Refusal) { return nil, nil }
func (a *Asker) Tool(server, shown string, d jsontext.Value, labels map[string]string) (*Tool, error) {
	return nil, nil
}
func (a *Asker) Filter(ctx context.Context, op Operation, items []Item) ([]bool, *Refusal) {
	return nil, nil
}
func (p *Permit) Passes(m rpc.Message) (rpc.Message, bool)      { return m, true }
func (p *Permit) Result(m rpc.Message) (rpc.Message, *Refusal)  { return m, nil }
func (p *Permit) Done(ctx context.Context)                      {}
func (r *Refusal) Failure(id rpc.ID) rpc.Message                { return rpc.Message{} }
func RateLimited(after time.Duration) *Refusal                  { return nil }
func UnknownTool() *Refusal                                     { return nil }
func Ambiguous(why string) *Refusal                             { return nil }
func Invalid(what string) *Refusal                              { return nil }
