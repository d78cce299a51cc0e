package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// examples are what --help ends with, by the command's path. Each is a whole command line; a test sees that every
// command has one, and that this program understands it.
var examples = map[string][]string{
	"serve": {
		"policy-service serve --policies policies --data /var/lib/policy-service",
		"policy-service serve --policies policies --data /var/lib/policy-service --listen :8180 --tls-cert tls.crt --tls-key tls.key",
		"policy-service serve --policies policies --data /var/lib/policy-service --config config.yaml",
	},
	"eval": {
		"policy-service eval --policies policies request.json",
		"policy-service eval --policies policies --explain --tenant tenant-xyz -",
	},
	"check": {
		"policy-service check policies",
		"policy-service check policies --strict --write-manifest",
	},
	"test": {
		"policy-service test policies",
		"policy-service test policies --run refund --coverage",
	},
	"fmt": {
		"policy-service fmt policies --write",
		"policy-service fmt policies --check --diff",
		"policy-service fmt - < policies/people.cedar",
	},
	"lsp": {"policy-service lsp"},
	"bench": {
		"policy-service bench --policies policies",
		"policy-service bench --policies policies --requests requests.ndjson --duration 30s --json",
	},
	"access show": {
		"policy-service access show policies",
		"policy-service access show policies --owner wiki --obligations",
	},
	"access check": {
		"policy-service access check policies/access/wiki.yaml",
		"policy-service access check new/wiki.yaml --policies policies --tenant tenant-xyz",
	},
	"access import": {
		"policy-service access import message.json --policies policies",
		"policy-service access import policy.json --owner agent-b --policies policies --replace",
	},
	"mcp-gateway serve": {
		"policy-service mcp-gateway --config gateway.yaml",
		"policy-service mcp-gateway --config gateway.yaml --pdp-policies policies --pdp-data /var/lib/mcp-gateway",
		"policy-service mcp-gateway --config desktop.yaml --stdio",
	},
	"mcp-gateway config check":  {"policy-service mcp-gateway config check gateway.yaml"},
	"mcp-gateway config print":  {"policy-service mcp-gateway config print --config gateway.yaml"},
	"mcp-gateway config schema": {"policy-service mcp-gateway config schema"},
	"mcp-gateway doctor":        {"policy-service mcp-gateway doctor --config gateway.yaml"},
	"mcp check":                 {"policy-service mcp check --config gateway.yaml"},
	"mcp map": {
		"policy-service mcp map --config gateway.yaml --claims claims.json call.json",
		"policy-service mcp map --defaults",
	},

	"mcp lock": {
		"policy-service mcp lock --config gateway.yaml --diff",
		"policy-service mcp lock --config gateway.yaml --accept --server jira",
	},

	"mcp schema": {
		"policy-service mcp schema --config gateway.yaml -o policies/tools.cedarschema",
		"policy-service mcp schema --config gateway.yaml --check policies/tools.cedarschema",
	},

	"config check": {"policy-service config check config.yaml"},
	"config print": {"policy-service config print --config config.yaml --policies policies"},
	"config schema": {
		"policy-service config schema",
		"policy-service config schema --of obligations",
	},
	"conformance": {
		"policy-service conformance http://127.0.0.1:8180",
		"policy-service conformance --plan coaz http://127.0.0.1:8391/mcp --pdp-listen 127.0.0.1:8392 --upstream-listen 127.0.0.1:8393 --issuer-listen 127.0.0.1:8394",
		"policy-service conformance --print-tools",
	},
	"keys add": {
		"policy-service keys add --data /var/lib/policy-service --name gateway --obligation approval_required",
		"policy-service keys add --data /var/lib/policy-service --name console --permission decide --permission search",
		`policy-service keys add --data /var/lib/policy-service --name mia --permission approve --principal 'User::"mia"'`,
	},
	"keys list":   {"policy-service keys list --data /var/lib/policy-service"},
	"keys revoke": {"policy-service keys revoke --data /var/lib/policy-service gateway"},
	"keys rotate": {"policy-service keys rotate --data /var/lib/policy-service"},
	"log export": {
		"policy-service log export --data /var/lib/policy-service -o log.ndjson",
		"policy-service log export --data /var/lib/policy-service --format csv --decision deny --since 7d -o denies.csv",
	},
	"log verify": {
		"policy-service log verify /var/lib/policy-service --checkpoint kept/checkpoint.txt",
		"policy-service log verify log.ndjson --key kept/log.pub",
	},
	"log tail":        {"policy-service log tail --data /var/lib/policy-service", "policy-service log tail --server https://pdp.example.com --credential auditor.key --follow"},
	"log show":        {"policy-service log show --data /var/lib/policy-service 01890a5d-ac96-774b-bcce-b302099a8057"},
	"log prove":       {"policy-service log prove --data /var/lib/policy-service 01890a5d-ac96-774b-bcce-b302099a8057"},
	"log checkpoint":  {"policy-service log checkpoint --data /var/lib/policy-service"},
	"log consistency": {"policy-service log consistency --data /var/lib/policy-service kept/checkpoint.txt"},
	"log sample":      {"policy-service log sample --data /var/lib/policy-service --seed 2026-Q1 --n 25 -o sample"},
	"log report":      {"policy-service log report --data /var/lib/policy-service"},
	"log redact":      {"policy-service log redact --data /var/lib/policy-service 01890a5d-ac96-774b-bcce-b302099a8057 --reason erasure-request-17"},
	"log recover":     {"policy-service log recover --accept-loss --data /var/lib/policy-service"},
	"log stats":       {"policy-service log stats --data /var/lib/policy-service"},
	"log key print":   {"policy-service log key --data /var/lib/policy-service"},
	"log key rotate":  {"policy-service log key rotate --data /var/lib/policy-service"},
	"approvals list": {
		"policy-service approvals list --server https://pdp.example.com --credential mia.key",
		"policy-service approvals list --server https://pdp.example.com --credential mia.key --status approved --resource tool/github.push_code --json",
	},
	"approvals show": {
		"policy-service approvals show 01890a5d-ac96-774b-bcce-b302099a8057 --server https://pdp.example.com --credential mia.key",
		"policy-service approvals show 01890a5d-ac96-774b-bcce-b302099a8057 --wait 30s --json --server https://pdp.example.com --credential gateway.key",
	},
	"approvals approve": {
		"policy-service approvals approve 01890a5d-ac96-774b-bcce-b302099a8057 --reason reviewed --server https://pdp.example.com --credential mia.key",
		"policy-service approvals approve 01890a5d-ac96-774b-bcce-b302099a8057 --version 1 --valid-until 2026-12-01T18:00:00Z --reason reviewed --server https://pdp.example.com --credential mia.key",
	},
	"approvals deny":     {"policy-service approvals deny 01890a5d-ac96-774b-bcce-b302099a8057 --reason not-on-a-friday --server https://pdp.example.com --credential mia.key"},
	"approvals delegate": {`policy-service approvals delegate 01890a5d-ac96-774b-bcce-b302099a8057 --to 'User::"noah"' --reason on-leave --server https://pdp.example.com --credential mia.key`},
	"approvals revoke":   {"policy-service approvals revoke 01890a5d-ac96-774b-bcce-b302099a8057 --server https://pdp.example.com --credential mia.key"},
	"approvals cancel":   {"policy-service approvals cancel 01890a5d-ac96-774b-bcce-b302099a8057 --server https://pdp.example.com --credential gateway.key"},
	"approvals watch":    {"policy-service approvals watch --server https://pdp.example.com --credential mia.key"},
	"doctor": {
		"policy-service doctor --policies policies --data /var/lib/policy-service",
		"policy-service doctor --policies policies --data /var/lib/policy-service --config config.yaml --json",
	},
	"health": {
		"policy-service health --ready",
		"policy-service health --url https://127.0.0.1:8180 --tls-cert tls.crt",
	},
	"version": {"policy-service version"},
}

// eitherFlag are two flags of which one is required, as kong's usage has them and as they are meant.
var eitherFlag = strings.NewReplacer(" --data=DIR --server=URL ", " (--data=DIR | --server=URL) ")

// printHelp is kong's help and, of a command, its examples; of a group of commands, one of each.
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
	lines := examples[selected.Path()]
	if lines == nil {
		for _, leaf := range selected.Leaves(true) {
			of := examples[leaf.Path()]
			lines = append(lines, of[:min(1, len(of))]...)
		}
	}
	_, err = fmt.Fprintf(out, "\nExamples:\n  %s\n", strings.Join(lines, "\n  "))
	return err
}
