package mcp

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/internal/spelling"
)

// Check looks for mistakes. [Form.Read] has done so for the values that it read, and names their places.
func (c Config) Check() error {
	Form.SetDefaults(&c)
	return Form.Verify(&c)
}

// check looks for mistakes beyond the form of each value, section by section.
func (c *Config) check(m *config.Reading) {
	c.checkListener(m)
	if c.Name != "" && !names.MatchString(c.Name) {
		m.Addf("name", "name is no name of a gateway; write up to 63 lower-case letters, digits and -, such as gateway-0, with a letter or a digit at both ends")
	}
	c.PDP.check(m)
	c.Identity.check(m, c)
	c.checkQuestions(m)
	c.checkUpstreams(m)
	c.Lock.check(m)
	c.Limits.check(m)
	c.Obligations.check(m)
	c.Approvals.check(m)
	c.ToolRequests.check(m, len(c.Seal.KeyFiles) > 0)
	c.Capabilities.check(m, c.Seal.KeyFiles)
}

// names are the names that a gateway may have: those of a host or a pod. A dot ends the name in an id of a session.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (c *Config) checkListener(m *config.Reading) {
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case strings.HasPrefix(c.Listen, "unix:"):
		m.Addf("listen", "the gateway listens on no socket such as %q; try host:port, such as %s", c.Listen, DefaultListen)
	case err != nil:
		m.Addf("listen", "%q is no address to listen on; try host:port, such as %s", c.Listen, DefaultListen)
	case !auth.IsLoopbackName(host) && c.TLS.CertFile == "":
		m.Addf("listen", "refusing to listen on %q: without TLS only loopback is safe; try %s behind a proxy that speaks TLS, or add tls.cert_file and tls.key_file", c.Listen, DefaultListen)
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		m.Addf("tls", "tls has a certificate without its key, or a key without its certificate; write both cert_file and key_file")
	}
	switch err := identity.CheckResource(c.Resource); {
	case c.Resource == "":
		m.Addf("resource", "resource is missing; write the address by which clients reach the gateway, such as https://mcp.example.com/mcp or http://%s/mcp", DefaultListen)
	case err != nil:
		m.Addf("resource", "%w", err)
	}
	c.checkBrowsers(m)
}

// isHost reports whether a text is a host, with its port if it has one, and nothing besides.
func isHost(text string) bool {
	u, err := url.Parse("https://" + text)
	return err == nil && u.Host == text && u.Hostname() != ""
}

func (c *Config) checkBrowsers(m *config.Reading) {
	for n, host := range c.AllowedHosts {
		if !isHost(host) {
			m.Addf(fmt.Sprintf("allowed_hosts[%d]", n), "allowed_hosts has what is no host; write a name, with its port if it has one")
		}
	}
	for n, origin := range c.AllowedOrigins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			m.Addf(fmt.Sprintf("allowed_origins[%d]", n), "allowed_origins has what is no origin; write https://host or https://host:port, without a slash at the end")
		}
	}
	if c.DenyHTTPStatus != 200 && c.DenyHTTPStatus != 403 {
		m.Addf("deny_http_status", "deny_http_status is neither 200 nor 403; write one of them")
	}
}

func (p PDPConfig) check(m *config.Reading) {
	switch {
	case p.URL == "" && p.Embedded == nil:
		m.Addf("pdp", "there is nobody to ask; add pdp.url with the address of a PDP, or pdp.embedded with the directory of a bundle")
	case p.URL != "" && p.Embedded != nil:
		m.Addf("pdp.url", "pdp has a url and a PDP in this process; keep one of them")
	case p.URL != "":
		if err := overTLS(p.URL); err != nil {
			m.Addf("pdp.url", "pdp.url %w", err)
		}
	case p.Embedded.Policies == "":
		m.Addf("pdp.embedded", "pdp.embedded has no policies; write the directory of the bundle")
	}
	if p.Embedded != nil && (p.KeyFile != "" || p.CAFile != "") {
		m.Addf("pdp.embedded", "the PDP in this process needs neither key_file nor ca_file; leave them out")
	}
	if !evaluation.IsTenantName(p.Tenant) {
		m.Addf("pdp.tenant", "pdp.tenant is no name of a tenant; write lower-case letters, digits and - as the directory is called")
	}
}

// overTLS is an error for an address at which a machine on the way could read along.
func overTLS(address string) error {
	u, err := plainAddress(address)
	switch {
	case err != nil:
		return err
	case u.RawQuery != "":
		return errors.New("has a query; write it like https://host[:port][/path]")
	case u.Scheme == "http" && !auth.IsLoopbackName(u.Hostname()):
		return errors.New("is reached without TLS, which is safe on loopback only; write https")
	}
	return nil
}

// plainAddress reads an address without credentials. Its errors quote nothing of it, in which there may be a secret.
func plainAddress(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("is no address; write it like https://host[:port][/path]")
	case u.User != nil:
		return nil, errors.New("has a name or password in it, which logs would show; credentials are in files")
	}
	return u, nil
}

func (l LimitsConfig) check(m *config.Reading) {
	if l.PerPrincipal.Burst > 0 && l.PerPrincipal.Rate == 0 {
		m.Addf("limits.per_principal.burst", "limits.per_principal has a burst and no rate; write both, or leave both out")
	}
	if l.PerTool.Burst > 0 && l.PerTool.Rate == 0 {
		m.Addf("limits.per_tool.burst", "limits.per_tool has a burst and no rate; write both, or leave both out")
	}
	if l.MaxArguments > l.MaxBody {
		m.Addf("limits.max_arguments", "limits.max_arguments is more than max_body, in which the arguments stand; write less, or more there")
	}
}

func (o ObligationsConfig) check(m *config.Reading) {
	hooks := o.webhooks()
	for _, path := range sortedNames(hooks) {
		if hooks[path].Webhook == "" {
			m.Addf(path, "%s has no webhook; write the URL that gets it", path)
		} else if err := overTLS(hooks[path].Webhook); err != nil {
			m.Addf(path+".webhook", "%s.webhook %w", path, err)
		}
	}
	if o.Log != nil && o.Log.File == "" {
		m.Addf("obligations.log", "obligations.log has no file; write the file to which entries are added")
	}
}

// webhooks are the receivers of obligations, by the path of their keys.
func (o ObligationsConfig) webhooks() map[string]WebhookConfig {
	all := map[string]WebhookConfig{}
	if o.Notification != nil {
		all["obligations.notification"] = *o.Notification
	}
	for name, hook := range o.Custom {
		all[config.Entry("obligations.custom", name)] = hook
	}
	return all
}

func (c *Config) checkMeta(m *config.Reading) {
	for n, name := range c.Meta {
		reserved := strings.HasPrefix(name, era.MetaPrefix) || strings.HasPrefix(name, era.Own)
		if reserved || slices.Contains([]string{"capability", "proof", "onBehalfOf", "requestId"}, name) {
			m.Addf(fmt.Sprintf("meta[%d]", n), "meta has %q, which is between client and gateway or the protocol's own; take it out", name)
		}
	}
}

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

// checkQuestions checks the settings that questions are made by.
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
		mapping, err := evaluation.ParseObject(c.Mappings[method], evaluation.DefaultLimits())
		if err == nil {
			_, err = b.Compile(mapping, coaz.AuthZEN)
		}
		if wrong := (*coaz.Error)(nil); errors.As(err, &wrong) {
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
	if near, ok := spelling.Nearest(method, methods); ok && !slices.Contains(methods, method) && spelling.Distance(near, method) <= 2 {
		m.Addf(path, "there is no method %q; did you mean %s?", method, near)
	}
}
