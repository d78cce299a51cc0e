package rpc

import "strings"

// known are the names of the members of an object on which the meaning of a message hangs. Many readers ignore case: a
// member that differs from a known one in nothing else would be read by them, and by no others.
type known struct {
	members map[string]*known
	names   []string // those of members
	// each is for the values of a map that has names of its own.
	each *known
}

// member are the known names below a member, and whether its own name is misspelt.
func (k *known) member(name string) (below *known, misspelt bool) {
	if below, ok := k.members[name]; ok {
		return below, false
	}
	for _, other := range k.names {
		if strings.EqualFold(name, other) {
			return nil, true
		}
	}
	return k.each, false
}

// misspelt reports whether a name in an object is misspelt, or one in an object within it of which something is known.
func (k *known) misspelt(o Object) bool {
	for _, m := range o.members {
		below, misspelt := k.member(m.name)
		if misspelt || below != nil && m.value.Kind() == '{' && below.misspelt(split(m.value)) {
			return true
		}
	}
	return false
}

// of makes the names of an object of which nothing is known but these.
func of(names ...string) *known {
	k := &known{members: make(map[string]*known, len(names))}
	for _, name := range names {
		k.with(name, nil)
	}
	return k
}

// with adds a member of which more is known.
func (k *known) with(name string, below *known) *known {
	k.members[name], usual[name] = below, name
	k.names = append(k.names, name)
	return k
}

// usual are the names that messages have, so that reading one makes no new text.
var usual = map[string]string{"type": "type", "text": "text"}

var (
	ofMeta = of("progressToken", "traceparent", "tracestate",
		"io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo",
		"io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel",
		"io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/subscriptionId",
		"io.policy-service/onBehalfOf", "io.policy-service/requestId")

	// ofAsked is a question of a server to a client, by a request of its own or within a result.
	ofAsked = of("mode", "message", "requestedSchema", "url", "elicitationId").with("_meta", ofMeta)

	ofAnswer = of("action", "content").with("_meta", ofMeta)

	ofParams = of("name", "arguments", "uri", "cursor", "requestState", "capability", "proof", "onBehalfOf", "requestId",
		"task", "level", "protocolVersion", "capabilities", "clientInfo", "progressToken", "notifications",
		"mode", "message", "requestedSchema", "url", "elicitationId",
		"authorizationId", "decision", "reason", "validUntil").
		with("_meta", ofMeta).
		with("ref", of("type", "name", "uri")).
		with("argument", of("name", "value")).
		with("inputResponses", &known{each: ofAnswer})

	ofResults = of("resultType", "requestState", "content", "structuredContent", "isError", "task", "action",
		"tools", "resources", "resourceTemplates", "prompts", "nextCursor", "ttlMs", "cacheScope", "contents", "messages",
		"completion", "capabilities", "serverInfo", "instructions", "protocolVersion", "supportedVersions", "roots").
		with("_meta", ofMeta).
		with("inputRequests", &known{each: of("method").with("params", ofAsked)})

	ofMessages = *of("jsonrpc", "id", "method").
			with("params", ofParams).
			with("result", ofResults).
			with("error", of("code", "message", "data"))
)
