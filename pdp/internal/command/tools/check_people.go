package tools

import (
	"slices"
	"strings"

	"policy-service/pdp/internal/command/gateway"
)

// sessions finds first questions of a client that no policy permits.
func (in *input) sessions() {
	if in.bundle == nil {
		return
	}
	var denied []string
	for _, method := range []string{"initialize", "server/discover", "tools/list"} {
		permits := func(tenant string) bool { return in.bundle.MayPermit(tenant, method, "mcp_server") }
		if in.config.Mappings[method] == nil && !slices.ContainsFunc(in.bundle.Tenants(), permits) {
			denied = append(denied, method)
		}
	}
	if len(denied) > 0 {
		in.warn(in.dir, "no policy permits anybody "+strings.Join(denied, ", ")+": clients begin with that, and the gateway refuses it",
			"permit them, as sessions.cedar of the bundle mcp does, which policy-service init --template mcp writes")
	}
}

// people finds approvals that no person can give, and persons that no form reaches.
func (in *input) people() {
	if why := gateway.NoForm(in.config); why != "" && (in.bundle == nil || len(in.bundle.Approvals()) > 0) {
		in.warn(in.atKey("identity.static", ""), why, "")
	}
	if in.bundle == nil || in.config.PDP.Embedded == nil {
		return
	}
	demands := in.bundle.Approvals()
	if in.config.PDP.Embedded.Data == "" && len(demands) > 0 {
		in.warn(in.atKey("pdp.embedded", ""), gateway.NoData, "")
		return
	}
	for _, d := range demands {
		if d.Others && d.File != "" {
			in.warn(in.inBundle(d.File, d.Line, d.Column), d.Name+": "+gateway.NobodyElse, "")
		}
	}
}
