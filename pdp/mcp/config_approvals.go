package mcp

import (
	"fmt"
	"slices"
	"time"

	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/server/config"
)

// ApprovalsConfig is how people are asked about a call that needs them.
type ApprovalsConfig struct {
	Channels     []string      `yaml:"channels" enum:"form,url,wait" min:"1" doc:"How people are asked, in the order in which it is tried. form: the person behind the token, by a form in the client. Without it nobody decides through this gateway: authorization/respond is refused, and what waits is announced to nobody. url: the same person, by a page of the PDP's console that the client opens. wait: whoever may decide, by the console or elsewhere, while the call waits. The PDP says who may decide in which way. All three unless given."`
	Wait         time.Duration `yaml:"wait" default:"25s" min:"100ms" max:"25s" doc:"How long a request waits for people. Then it is refused, or a client of MCP 2026-07-28 is told to send it again; the same call again goes on waiting, and nobody is asked twice."`
	OnDisconnect OnDisconnect  `yaml:"on_disconnect" default:"keep" enum:"keep,cancel" doc:"What becomes of what people were asked if the client goes away. keep: they may decide, and the same call again finds what they said. cancel: it is taken back, unless another call of this process waits for the same."`
	PerPrincipal int64         `yaml:"per_principal" default:"32" min:"1" max:"100000" doc:"How many calls of one person, by all their clients, may wait for people at once. More are refused, and nobody is asked about them."`
	Waiting      int64         `yaml:"waiting" default:"4096" min:"1" max:"1000000" doc:"How many calls may wait for people at once, of all persons together."`
}

// OnDisconnect is the treatment of a question to people if the client goes away.
type OnDisconnect string

// The treatments.
const (
	DisconnectKeep   OnDisconnect = people.KeepAsking
	DisconnectCancel OnDisconnect = people.CancelTask
)

func (a ApprovalsConfig) check(m *config.Reading) {
	for n, channel := range a.Channels {
		if slices.Contains(a.Channels[:n], channel) {
			m.Addf(fmt.Sprintf("approvals.channels[%d]", n), "approvals.channels has %s twice; write each way once", channel)
		}
	}
	if a.PerPrincipal > a.Waiting {
		m.Addf("approvals.per_principal", "approvals.per_principal is more than waiting, which is for all persons together; write less, or more there")
	}
}

// settings are the same as the gateway reads them.
func (a ApprovalsConfig) settings() people.Approvals {
	channels := a.Channels
	if channels == nil {
		channels = []string{people.ByForm, people.ByURL, people.ByWait}
	}
	return people.Approvals{Channels: channels, Wait: a.Wait, OnDisconnect: string(a.OnDisconnect)}
}

// ToolRequestsConfig bounds the requests for tools (tools/request) that wait until another caller fulfils them.
type ToolRequestsConfig struct {
	TTL          time.Duration `yaml:"ttl" default:"15m" min:"1s" max:"24h" doc:"How long a request for a tool (tools/request) waits for somebody to fulfil it, and how long what came of it is kept for who has requested it."`
	PerPrincipal int64         `yaml:"per_principal" default:"32" min:"1" max:"100000" doc:"How many requests for tools of one person, by all their clients, may wait. More are refused."`
	Pending      int64         `yaml:"pending" default:"1024" min:"1" max:"100000" doc:"How many requests for tools may wait, of all persons together. They are kept in memory, with what came of them in 64 MiB at the most, and are gone after a restart."`
}

// settings are the same as the gateway reads them.
func (r ToolRequestsConfig) settings() people.Requests {
	return people.Requests{TTL: r.TTL, Most: int(r.Pending), Each: int(r.PerPrincipal)}
}

func (r ToolRequestsConfig) check(m *config.Reading) {
	if r.PerPrincipal > r.Pending {
		m.Addf("tool_requests.per_principal", "tool_requests.per_principal is more than pending, which is for all persons together; write less, or more there")
	}
}
