package mcp

import (
	"errors"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/server/config"
	"policy-service/pdp/spelling"
)

// methods are the requests of MCP that a mapping can be for.
var methods = []string{
	"completion/complete", "initialize", "logging/setLevel", "prompts/get", "prompts/list", "resources/list", "resources/read",
	"resources/subscribe", "resources/templates/list", "resources/unsubscribe", "server/discover", "subscriptions/listen",
	"tasks/cancel", "tasks/get", "tasks/list", "tasks/result", "tasks/update", "tools/call", "tools/list",
}

// Binding is how mappings are read, by this configuration.
func (c Config) Binding() (*coaz.Binding, error) {
	return coaz.New(coaz.Options{Resource: c.Resource, SubjectClaim: c.Identity.SubjectClaim, Override: c.override(), Inputs: ask.Inputs})
}

func (c Config) override() coaz.Override {
	if c.SubjectOverride == OverrideWarn {
		return coaz.WarnOverride
	}
	return coaz.RefuseOverride
}

func compileMapping(b *coaz.Binding, text config.Object) (*coaz.Mapping, error) {
	o, err := evaluation.ParseObject(text, evaluation.DefaultLimits())
	if err != nil {
		return nil, err
	}
	return b.Compile(o, coaz.AuthZEN)
}

func (c *Config) checkQuestions(m *config.Reading) {
	c.checkMeta(m)
	b, err := c.Binding()
	if err != nil {
		m.Addf("identity.subject_claim", "identity.subject_claim is no claim: %w; write a name, or a JSON Pointer such as /act/sub", err)
		return
	}
	for _, method := range sortedNames(c.Mappings) {
		path := config.Entry("mappings", method)
		c.checkMethod(m, path, method)
		var wrong *coaz.Error
		if _, err := compileMapping(b, c.Mappings[method]); errors.As(err, &wrong) {
			m.Addf(path+wrong.Pointer, "%s: %w; mend the mapping", path, wrong)
		} else if err != nil {
			m.Addf(path, "%s: %w; mend the mapping", path, err)
		}
	}
}

// checkMethod looks for names that would have a mapping never be used.
func (c *Config) checkMethod(m *config.Reading, path, name string) {
	method, tool, ofTool := strings.Cut(name, " ")
	upstream, _, whole := strings.Cut(tool, ":")
	if _, known := c.Upstreams[upstream]; ofTool && (method != "tools/call" || !whole || !known) {
		m.Addf(path, "%q is no method, and no tool of an upstream; write a method, or \"tools/call NAME:TOOL\" with the NAME of upstreams", name)
		return
	}
	if method == rpc.Respond {
		m.Addf(path, "%s is for nobody to map: the PDP decides who may decide, by the policies about approval.decide; write it there", method)
		return
	}
	if near := nearestMethod(method); near != method && spelling.Distance(near, method) <= 2 {
		m.Addf(path, "there is no method %q; did you mean %s?", method, near)
	}
}

func nearestMethod(name string) string {
	return slices.MinFunc(methods, func(a, b string) int { return spelling.Distance(a, name) - spelling.Distance(b, name) })
}
