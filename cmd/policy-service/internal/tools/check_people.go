package tools

import "policy-service/cmd/policy-service/internal/gateway"

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
