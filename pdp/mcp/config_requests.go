package mcp

import (
	"time"

	"policy-service/pdp/mcp/internal/gate"

	"policy-service/pdp/server/config"
)

// ToolRequestsConfig bounds the requests for tools (tools/request) that wait until another caller fulfils them.
type ToolRequestsConfig struct {
	TTL          time.Duration `yaml:"ttl" default:"15m" min:"1s" max:"24h" doc:"How long a request for a tool (tools/request) waits for somebody to fulfil it, and how long what came of it is kept for who has requested it."`
	PerPrincipal int64         `yaml:"per_principal" default:"32" min:"1" max:"100000" doc:"How many requests for tools of one person, by all their clients, may wait. More are refused."`
	Pending      int64         `yaml:"pending" default:"1024" min:"1" max:"100000" doc:"How many requests for tools may wait, of all persons together. They are kept in memory, with what came of them in 64 MiB at the most, and are gone after a restart."`
}

func (r ToolRequestsConfig) check(m *config.Reading) {
	if r.PerPrincipal > r.Pending {
		m.Addf("tool_requests.per_principal", "tool_requests.per_principal is more than pending, which is for all persons together; write less, or more there")
	}
}

// settings are the same as the gateway reads them.
func (r ToolRequestsConfig) settings() gate.Requests {
	return gate.Requests{TTL: r.TTL, Most: int(r.Pending), Each: int(r.PerPrincipal)}
}
