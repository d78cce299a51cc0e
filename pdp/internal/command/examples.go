package command

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Examples are what --help ends with, by the command's path. Each is a whole command line that this program understands,
// as a test sees.
var Examples = map[string]string{
	"serve":                     "policy-service serve --policies policies --data /var/lib/policy-service",
	"init":                      "policy-service init policies --template saas",
	"eval":                      "policy-service eval --policies policies request.json",
	"filter":                    "policy-service filter --policies policies --dialect postgres list.json",
	"check":                     "policy-service check policies",
	"test":                      "policy-service test policies",
	"fmt":                       "policy-service fmt policies --write",
	"lsp":                       "policy-service lsp",
	"bench":                     "policy-service bench --policies policies",
	"access show":               "policy-service access show policies",
	"access check":              "policy-service access check policies/access/wiki.yaml",
	"access import":             "policy-service access import message.json --policies policies",
	"mcp-gateway serve":         "policy-service mcp-gateway --config gateway.yaml",
	"mcp-gateway config check":  "policy-service mcp-gateway config check gateway.yaml",
	"mcp-gateway config print":  "policy-service mcp-gateway config print --config gateway.yaml",
	"mcp-gateway config schema": "policy-service mcp-gateway config schema",
	"mcp-gateway doctor":        "policy-service mcp-gateway doctor --config gateway.yaml",
	"mcp check":                 "policy-service mcp check --config gateway.yaml",
	"mcp map":                   "policy-service mcp map --config gateway.yaml --claims claims.json call.json",

	"mcp lock": "policy-service mcp lock --config gateway.yaml --diff",

	"mcp schema": "policy-service mcp schema --config gateway.yaml -o policies/tools.cedarschema",

	"config check":          "policy-service config check config.yaml",
	"config print":          "policy-service config print --config config.yaml --policies policies",
	"config schema":         "policy-service config schema",
	"conformance":           "policy-service conformance http://127.0.0.1:8180",
	"keys add":              "policy-service keys add --data /var/lib/policy-service --name gateway --obligation approval_required",
	"cluster join":          "policy-service cluster join --config replica.yaml --etcd-is-current",
	"cluster import":        "policy-service cluster import --data /var/lib/policy-service --config replica.yaml",
	"approvals settle":      "policy-service approvals settle --config replica.yaml --lost pdp-2.example.com/log --reason disk-gone",
	"keys list":             "policy-service keys list --data /var/lib/policy-service",
	"keys revoke":           "policy-service keys revoke --data /var/lib/policy-service gateway",
	"backup":                "policy-service backup --server https://pdp.example.com --credential backup.key -o pdp.backup",
	"restore":               "policy-service restore pdp.backup --data /var/lib/policy-service --policies policies",
	"keys renew":            "policy-service keys renew --data /var/lib/policy-service gateway --expires 90d",
	"signing rotate":        "policy-service signing rotate --data /var/lib/policy-service",
	"log export":            "policy-service log export --data /var/lib/policy-service --format csv --decision deny --since 7d -o denies.csv",
	"log merge":             "policy-service log merge pdp-0.ndjson pdp-1.ndjson pdp-2.ndjson -o all.ndjson",
	"log verify":            "policy-service log verify /var/lib/policy-service --checkpoint kept/checkpoint.txt",
	"log recheck":           "policy-service log recheck --data /var/lib/policy-service",
	"replay":                "policy-service replay --candidate policies --data /var/lib/policy-service --since 7d",
	"diff":                  "policy-service diff policies candidate --data /var/lib/policy-service --since 7d",
	"coverage":              "policy-service coverage policies --data /var/lib/policy-service --since 90d",
	"log tail":              "policy-service log tail --server https://pdp.example.com --credential auditor.key --follow",
	"log approvals":         "policy-service log approvals --server https://pdp.example.com --credential auditor.key --text launch",
	"log show":              "policy-service log show --data /var/lib/policy-service 01890a5d-ac96-774b-bcce-b302099a8057",
	"log prove":             "policy-service log prove --data /var/lib/policy-service 01890a5d-ac96-774b-bcce-b302099a8057",
	"log checkpoint":        "policy-service log checkpoint --data /var/lib/policy-service",
	"log consistency":       "policy-service log consistency --data /var/lib/policy-service kept/checkpoint.txt",
	"log sample":            "policy-service log sample --data /var/lib/policy-service --seed 2026-Q1 --n 25 -o sample",
	"log report":            "policy-service log report --data /var/lib/policy-service",
	"log redact":            "policy-service log redact --data /var/lib/policy-service 01890a5d-ac96-774b-bcce-b302099a8057 --reason erasure-request-17",
	"log recover":           "policy-service log recover --accept-loss --data /var/lib/policy-service",
	"log begin":             "policy-service log begin --accept-loss --data /var/lib/policy-service",
	"log stats":             "policy-service log stats --data /var/lib/policy-service",
	"log key print":         "policy-service log key --data /var/lib/policy-service",
	"log key rotate":        "policy-service log key rotate --data /var/lib/policy-service",
	"capabilities key":      "policy-service capabilities key -o agent.key",
	"capabilities request":  "policy-service capabilities request --server https://pdp.example.com --credential gateway.key --key agent.key --holder agent:agent-a --audience agent-b --tool restart --duration 1h",
	"capabilities renew":    "policy-service capabilities renew cap_0199f3a27c1e7d3a8f00c3b2a1908f7e --server https://pdp.example.com --credential gateway.key --key agent.key --holder agent:agent-a --audience agent-b --tool restart",
	"capabilities delegate": "policy-service capabilities delegate cap_0199f3a27c1e7d3a8f00c3b2a1908f7e --server https://pdp.example.com --credential gateway.key --key agent.key --to helper.jwk --holder agent:helper --audience agent-b --tool restart",
	"capabilities prove":    "policy-service capabilities prove --key agent.key --token agent.token --tool agent-b:restart",
	"capabilities verify":   "policy-service capabilities verify --jwks https://pdp.example.com/.well-known/jwks.json --issuer https://pdp.example.com -",
	"capabilities list":     "policy-service capabilities list --server https://pdp.example.com --credential warden.key --holder agent:agent-a",
	"capabilities show":     "policy-service capabilities show cap_0199f3a27c1e7d3a8f00c3b2a1908f7e --server https://pdp.example.com --credential gateway.key",
	"capabilities revoke":   "policy-service capabilities revoke cap_0199f3a27c1e7d3a8f00c3b2a1908f7e --reason stolen --server https://pdp.example.com --credential warden.key",
	"capabilities return":   "policy-service capabilities return cap_0199f3a27c1e7d3a8f00c3b2a1908f7e --server https://pdp.example.com --credential gateway.key",

	"approvals list":     "policy-service approvals list --server https://pdp.example.com --credential mia.key",
	"approvals show":     "policy-service approvals show 01890a5d-ac96-774b-bcce-b302099a8057 --server https://pdp.example.com --credential mia.key",
	"approvals approve":  "policy-service approvals approve 01890a5d-ac96-774b-bcce-b302099a8057 --reason reviewed --server https://pdp.example.com --credential mia.key",
	"approvals deny":     "policy-service approvals deny 01890a5d-ac96-774b-bcce-b302099a8057 --reason not-on-a-friday --server https://pdp.example.com --credential mia.key",
	"approvals delegate": `policy-service approvals delegate 01890a5d-ac96-774b-bcce-b302099a8057 --to 'User::"noah"' --reason on-leave --server https://pdp.example.com --credential mia.key`,
	"approvals revoke":   "policy-service approvals revoke 01890a5d-ac96-774b-bcce-b302099a8057 --server https://pdp.example.com --credential mia.key",
	"approvals cancel":   "policy-service approvals cancel 01890a5d-ac96-774b-bcce-b302099a8057 --server https://pdp.example.com --credential gateway.key",
	"approvals watch":    "policy-service approvals watch --server https://pdp.example.com --credential mia.key",
	"doctor":             "policy-service doctor --policies policies --data /var/lib/policy-service",
	"health":             "policy-service health --ready",
	"version":            "policy-service version",
	"completion":         "policy-service completion bash",
}

// eitherFlag are flags of which one is required, as kong's usage has them and as they are meant.
var eitherFlag = strings.NewReplacer(
	" --data=DIR --server=URL --export=FILE ", " (--data=DIR | --server=URL | --export=FILE) ",
	" --data=DIR --server=URL ", " (--data=DIR | --server=URL) ",
)

// printHelp is kong's help and the example of the command; of a group of commands, the example of each.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	out := ctx.Stdout
	var help strings.Builder
	ctx.Stdout = &help
	err := kong.DefaultHelpPrinter(options, ctx)
	ctx.Stdout = out
	if err != nil {
		return err
	}
	if _, err := eitherFlag.WriteString(out, help.String()); err != nil {
		return err
	}
	selected := ctx.Selected()
	if selected == nil {
		return nil
	}
	var lines []string
	for _, command := range append([]*kong.Node{selected}, selected.Leaves(true)...) {
		if line := Examples[command.Path()]; line != "" {
			lines = append(lines, line)
		}
	}
	_, err = fmt.Fprintf(out, "\nExamples:\n  %s\n", strings.Join(lines, "\n  "))
	return err
}
