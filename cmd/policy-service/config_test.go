package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/inside/config"
	"policy-service/pdp/pdptest/inside/mcp"
	"policy-service/pdp/pdptest/inside/server"
)

var updateKeys = flag.Bool("update-keys", false, "write the tables of keys into the pages that have them")

// keysPage is a page on which operators look a key up.
type keysPage struct {
	path string
	keys []config.Key
	// tag marks the flags that set the keys.
	tag string
	// groups are the tables of keys, by the headings above them, and what keys in each begin with.
	groups []keyGroup
}

type keyGroup struct {
	heading string
	begin   []string
}

var serverKeys = keysPage{root + "/pdp/server/KEYS.md", server.ConfigForm.Keys(), "key", []keyGroup{
	{"Files, addresses and TLS", []string{"policies", "listen", "data", "public_url", "tls.", "admin_listen"}},
	{"Callers", []string{"auth.", "metrics."}},
	{"Decision log", []string{"decision_log."}},
	{"The service's own log", []string{"log."}},
	{"Approvals", []string{"approvals."}},
	{"Capabilities", []string{"capabilities."}},
	{"Cluster", []string{"cluster"}},
	{"Console", []string{"console"}},
	{"Load", []string{"max_concurrent", "queue_time", "request_time", "max_connections", "rate_limit."}},
}}

var gatewayKeys = keysPage{root + "/pdp/mcp/REFERENCE.md", mcp.Form.Keys(), "gateway-key", []keyGroup{
	{"Address and TLS", []string{"listen", "name", "tls.", "resource", "allowed_"}},
	{"PDP", []string{"pdp."}},
	{"Identity", []string{"identity."}},
	{"Questions", []string{"strict", "ask", "declared", "subject_override", "dialects", "mappings", "meta"}},
	{"Refusals and obligations", []string{"errors", "denials", "deny_http_status", "obligations."}},
	{"People who decide", []string{"approvals."}},
	{"Requests for tools", []string{"tool_requests."}},
	{"Requests for capabilities", []string{"capabilities."}},
	{"The server behind it", []string{"upstreams", "lock.", "arguments"}},
	{"The gateway's own log", []string{"log."}},
	{"Limits, lists and seals", []string{"limits.", "sessions.", "processes.", "list.", "seal."}},
}}

// flags are the flags of keys, by their paths.
func (p keysPage) flags(t *testing.T) map[string]string {
	t.Helper()
	flags := map[string]string{}
	for _, leaf := range leaves(t) {
		for _, flag := range leaf.Flags {
			if key := flag.Tag.Get(p.tag); key != "" {
				flags[key] = "--" + flag.Name
			}
		}
	}
	return flags
}

// keyRow is the row of a key, with its flag if it has one.
func keyRow(k config.Key, flag string) string {
	name, values, byDefault, change := "`"+k.Path+"`", "", "", "restart"
	if flag != "" {
		name += ", `" + flag + "`"
	}
	switch {
	case len(k.Enum) > 0:
		values = "`" + strings.Join(k.Enum, "`, `") + "`"
	case k.Min == "1" && k.Max == "": // only lists have this bound
		values = "one or more"
	case k.Min == "" && k.Max != "":
		values = "at most `" + k.Max + "`"
	case k.Max != "":
		values = fmt.Sprintf("`%s` to `%s`", k.Min, k.Max)
	case k.Min != "":
		values = "at least `" + k.Min + "`"
	}
	switch {
	case k.Default != "":
		byDefault = "`" + k.Default + "`"
	case k.Unless != "" && k.Required:
		byDefault = "required without `" + k.Unless + "`"
	case k.Required:
		byDefault = "required"
	}
	if k.Reloads {
		change = "SIGHUP"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", name, values, byDefault, change, k.Doc)
}

// TestServerPageHasEveryKey holds the tables of keys of pdp/server/KEYS.md to the keys there are. After a change of one:
// go test ./cmd/policy-service -run PageHasEveryKey -update-keys.
func TestServerPageHasEveryKey(t *testing.T) { serverKeys.check(t) }

// TestGatewayPageHasEveryKey is the same for pdp/mcp/REFERENCE.md.
func TestGatewayPageHasEveryKey(t *testing.T) { gatewayKeys.check(t) }

func (p keysPage) check(t *testing.T) {
	flags, tables := p.flags(t), map[string]string{}
	for _, k := range p.keys {
		groups := 0
		for _, g := range p.groups {
			if slices.ContainsFunc(g.begin, func(begin string) bool { return strings.HasPrefix(k.Path, begin) }) {
				tables[g.heading] += keyRow(k, flags[k.Path])
				groups++
			}
		}
		if groups != 1 {
			t.Errorf("%s is in %d tables; put it into one of the groups", k.Path, groups)
		}
		delete(flags, k.Path)
	}
	if len(flags) > 0 {
		t.Errorf("flags of keys that do not exist: %v", flags)
	}
	text, err := os.ReadFile(p.path)
	must(t, err)
	page := string(text)
	for _, g := range p.groups {
		page = p.withTable(t, page, g.heading, tables[g.heading])
	}
	if page == string(text) {
		return
	}
	if !*updateKeys {
		t.Fatalf("the tables of keys of %s are not what the tags say; try go test ./cmd/policy-service -run PageHasEveryKey -update-keys", p.path)
	}
	must(t, os.WriteFile(p.path, []byte(page), 0o644))
}

// withTable is the page with these rows in the table of keys below a heading.
func (p keysPage) withTable(t *testing.T, page, heading, rows string) string {
	t.Helper()
	const head = "| key, flag | values | default | change | meaning |\n|---|---|---|---|---|\n"
	above, below, found := strings.Cut(page, "\n### "+heading+"\n")
	between, after, hasTable := strings.Cut(below, head)
	if !found || !hasTable || strings.Contains(between, "\n#") {
		t.Fatalf("%s has no table of keys below a heading %q", p.path, "### "+heading)
	}
	old := regexp.MustCompile(`\A(\|.*\n)*`).FindString(after)
	return above + "\n### " + heading + "\n" + between + head + rows + strings.TrimPrefix(after, old)
}
