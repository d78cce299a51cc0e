package tools

import "policy-service/cmd/policy-service/internal/gateway"

// checkPeople looks for approvals that nobody could give, and for people who cannot be asked.
func (k *checker) checkPeople() {
	if why := gateway.NoForm(k.told); why != "" && (k.bundle == nil || len(k.bundle.Approvals()) > 0) {
		k.line(k.placeOf("identity.static", "")+": "+why, true)
	}
	if k.bundle == nil || k.told.PDP.Embedded == nil {
		return
	}
	asks := k.bundle.Approvals()
	if k.told.PDP.Embedded.Data == "" && len(asks) > 0 {
		k.line(k.placeOf("pdp.embedded", "")+": "+gateway.NoData, true)
		return
	}
	for _, d := range asks {
		if d.Others && d.File != "" {
			k.add(finding{file: inDir(k.dir, d.File), line: d.Line, column: d.Column, warning: true, what: d.Name + ": " + gateway.NobodyElse})
		}
	}
}
