package mcp

import (
	"time"

	"policy-service/pdp/server/config"
)

// PDPConfig is the PDP that is asked: a server, or one in this process.
type PDPConfig struct {
	URL    string `yaml:"url" doc:"The address of the PDP. It is https, or http on loopback."`
	CAFile string `yaml:"ca_file" doc:"The root certificates to trust as the PDP's, in PEM, instead of the system's."`
	// Embedded is a PDP in this process, in place of URL.
	Embedded *EmbeddedConfig `yaml:"embedded" doc:"A PDP in this process, in place of url."`
	Tenant   string          `yaml:"tenant" default:"default" doc:"The tenant whose policies decide, unless the issuer of the token has its own."`
	KeyFile  string          `yaml:"key_file" doc:"The API key of the gateway, in a file. It needs the permissions decide, search, request and relay. The gateway reads the file again if it changes. The PDP in this process needs none."`
	Timeout  time.Duration   `yaml:"timeout" default:"2s" min:"10ms" max:"1m" doc:"How long a question may take. Without an answer the request is refused."`
	Breaker  BreakerConfig   `yaml:"breaker"`
}

// EmbeddedConfig is a PDP in this process.
type EmbeddedConfig struct {
	Policies string `yaml:"policies" path:"yes" doc:"The directory of the bundle. The PDP watches it: an edit is in force a moment later."`
	Data     string `yaml:"data" path:"yes" doc:"The directory for the decision log, approvals and keys. Without it there is no decision log, and nobody is asked for an approval."`
	LogMode  string `yaml:"log_mode" default:"strict" enum:"strict,best_effort" doc:"strict: a request goes on once its decision is on disk. best_effort: requests do not wait, and some decisions may have no record."`
}

// BreakerConfig is when the PDP is no longer asked for a while.
type BreakerConfig struct {
	Failures int64         `yaml:"failures" default:"5" min:"1" max:"1000" doc:"After so many questions in a row without an answer the gateway refuses at once, without asking."`
	CoolDown time.Duration `yaml:"cool_down" default:"10s" min:"100ms" max:"10m" doc:"After how long the gateway asks one question again."`
}

// LimitsConfig bounds the cost of requests, before the PDP is asked.
type LimitsConfig struct {
	MaxBody        config.Size   `yaml:"max_body" default:"1MiB" min:"1KiB" max:"16MiB" doc:"The size of a request."`
	MaxArguments   config.Size   `yaml:"max_arguments" default:"512KiB" min:"1KiB" max:"960KiB" doc:"The size of the arguments of a call. They stand in the question, and a PDP takes 1 MiB."`
	MaxConnections int64         `yaml:"max_connections" min:"1" max:"1048576" doc:"How many connections may be open at once. 4096 unless given, or fewer if the process may not open so many files."`
	Rate           config.Rate   `yaml:"rate" default:"50/s" min:"1/h" max:"1000000/s" doc:"How often one person may ask in the long run, by whatever clients; without a person, one client. A result counts once more for each 256 KiB, and the start of a program twenty times more. With identity.static there is no limit."`
	Burst          int64         `yaml:"burst" default:"200" min:"1" max:"1000000" doc:"How many requests of one person may come at once. Answers, cancellations and the end of a session count, and are never refused. Beyond twice rate and burst each message waits for one to two seconds."`
	PerPrincipal   PrincipalRate `yaml:"per_principal"`
	PerTool        ToolRate      `yaml:"per_tool"`
}

// PrincipalRate bounds one principal: a person by an agent.
type PrincipalRate struct {
	Rate       config.Rate `yaml:"rate" min:"1/h" max:"1000000/s" doc:"How often one principal may ask in the long run. No limit unless given."`
	Burst      int64       `yaml:"burst" min:"1" max:"1000000" doc:"How many requests of one principal may come at once. It needs rate. As many as come in a second unless given."`
	Concurrent int64       `yaml:"concurrent" default:"128" min:"1" max:"100000" doc:"How many requests of one principal may be under way at once. Streams to which it only listens are counted apart: there may be as many."`
}

// ToolRate bounds the calls of one tool by one principal.
type ToolRate struct {
	Rate  config.Rate `yaml:"rate" min:"1/h" max:"1000000/s" doc:"How often one principal may call one tool in the long run. No limit unless given."`
	Burst int64       `yaml:"burst" min:"1" max:"1000000" doc:"How many calls of one tool may come at once. It needs rate. As many as come in a second unless given."`
}

// ListConfig is about lists of tools, prompts and resources.
type ListConfig struct {
	Cache time.Duration `yaml:"cache" default:"5s" min:"1ms" max:"5s" doc:"How long the gateway keeps what a server says of its tools. What of it a principal may see is decided each time."`
	TTL   time.Duration `yaml:"ttl" max:"1h" doc:"How long clients may keep a list. They do not keep it unless given."`
}

// SealConfig has the keys of the state that clients keep for the gateway.
type SealConfig struct {
	KeyFiles []string `yaml:"key_files" path:"yes" min:"1" doc:"Files with the keys of sessions and cursors that clients hold: 32 random bytes each, or their base64url. The first one seals, all of them open. Gateways with the same files are replicas of each other. Without it a key is made at each start."`
}

// ObligationsConfig are how obligations are discharged. A type without an entry is not declared to the PDP, except redact.
type ObligationsConfig struct {
	Notification *WebhookConfig           `yaml:"notification" doc:"Where notifications go that a decision demands."`
	Log          *LogConfig               `yaml:"log" doc:"Where entries go that a decision demands to be logged."`
	Custom       map[string]WebhookConfig `yaml:"custom" doc:"Where obligations of a type of your own go, by their name."`
}

// WebhookConfig is a receiver of obligations.
type WebhookConfig struct {
	Webhook string `yaml:"webhook" required:"yes" secret:"path" doc:"The URL that gets each of these obligations. It is https, or http on loopback."`
	KeyFile string `yaml:"key_file" doc:"The key that signs the messages, in a file."`
}

// LogConfig is the file of the obligation log.
type LogConfig struct {
	File string `yaml:"file" required:"yes" path:"yes" doc:"The file to which entries are added, a line of JSON each."`
}
