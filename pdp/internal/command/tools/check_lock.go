package tools

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"policy-service/evaluation/coaz"
	"policy-service/obligations"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/config"
)

const (
	toAuthor = "have the server's author mend it"
	unlisted = "the tool is neither listed nor callable: "
)

// servers finds servers and tools that stand in the configuration or in the lock alone.
func (in *input) servers() {
	if in.locked == nil {
		return
	}
	for _, name := range in.locked.servers {
		if _, known := in.config.Upstreams[name]; !known {
			in.warn(in.inLock(pointerTo("servers", name)), fmt.Sprintf("the configuration has no upstream %q", name), "lock again without it, or correct the name")
		}
	}
	for _, server := range slices.Sorted(maps.Keys(in.config.Upstreams)) {
		path := config.Entry("upstreams", server)
		if !in.locked.has(server) {
			report := in.refuse
			if mode := in.config.Lock.Mode; mode != "" && mode != mcp.LockEnforce {
				report = in.warn
			}
			report(in.atKey(path, ""), path+" is not in the lock", "look at its tools, and accept them with policy-service mcp lock --accept")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(in.config.Upstreams[server].Tools)) {
			in.known(config.Entry(path+".tools", name), server, name)
		}
	}
}

// known finds a tool that a key of the configuration names, and that is not locked.
func (in *input) known(path, server, name string) {
	if in.locked.all[server+":"+name] == nil && in.locked.has(server) {
		in.refuse(in.atKey(path, ""), path+": the server has no such tool in the lock", meant(name, in.locked.namesOf(server), "correct the name, or take it out"))
	}
}

// definitions finds tools that the gateway would leave out, and doubtful declarations of servers.
func (in *input) definitions() {
	if in.locked == nil {
		return
	}
	all := in.locked.sorted()
	defined := make([]mcp.Tool, len(all))
	for n, t := range all {
		defined[n] = mcp.Tool{Server: t.server, Definition: in.locked.file.Servers[t.server].Tools[t.name].Text()}
	}
	left, err := mcp.Compile(in.config, defined)
	if err != nil {
		in.refuse(in.file, err.Error(), "mend the configuration")
		return
	}
	for n, t := range all {
		if ofMapping := (*coaz.Error)(nil); left[n] != nil && !errors.As(left[n], &ofMapping) { // [input.declared] has those
			in.refuse(in.atTool(t, ""), unlisted+left[n].Error(), "have the server's author mend the definition")
		}
		in.declared(t, left[n])
		in.hint(t)
		if why := mcp.Unjudged(in.config, in.locked.file.Servers[t.server].Tools[t.name]); why != nil {
			in.warn(in.atTool(t, "/inputSchema"), "arguments are not held against the schema: "+why.Error(),
				"have the server's author mend the schema, or write policies about the arguments")
		}
	}
}

// plainName is a name that common clients take.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// names finds tools that clients would take for one another, or cannot call.
func (in *input) names() {
	if in.locked == nil {
		return
	}
	before := map[string]*tool{}
	for _, t := range in.locked.sorted() {
		u, known := in.config.Upstreams[t.server]
		if !known || u.Tools[t.name].Hidden {
			continue
		}
		shown := in.config.ToolName(t.server, t.name)
		if !plainName.MatchString(shown) { // with several servers, all are
			in.warn(in.atTool(t, "/name"), fmt.Sprintf("common clients take no tool that is called %q", t.name), "have the server's author choose a name of up to 64 letters, digits, _ and -")
		}
		alike := strings.ToLower(shown)
		if other := before[alike]; other != nil {
			in.refuse(in.atTool(t, "/name"), fmt.Sprintf("clients would call it %s, and %s %s, which people take for one: neither is listed nor callable", shown, other.id, in.config.ToolName(other.server, other.name)),
				fmt.Sprintf("hide one: %s: {hidden: true}", config.Entry(config.Entry("upstreams", t.server)+".tools", t.name)))
			continue
		}
		before[alike] = t
	}
}

// hint finds a wish of a server for approvals that no policy fulfils.
func (in *input) hint(t *tool) {
	hint, _ := t.definition.Get("authorization")
	if required, _ := hint.Object().Get("required"); required.True() && in.bundle != nil && !in.demanded(t) {
		in.warn(in.atTool(t, "/authorization/required"), "the server says that an approval is required, and no policy about "+t.id+" demands one",
			"write a permit with an @obligation of type approval_required, or one that reads resource.approval_hint.required")
	}
}

// demanded reports whether a policy could demand an approval of a tool's calls.
func (in *input) demanded(t *tool) bool {
	for _, p := range in.bundle.Contents() {
		for _, o := range p.Obligations {
			if o.Type.Name == obligations.ApprovalRequired && in.mayBeAbout(p, t) {
				return true
			}
		}
	}
	return false
}
