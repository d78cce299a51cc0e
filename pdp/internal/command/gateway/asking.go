package gateway

import (
	"slices"
	"strings"

	"policy-service/pdp"
	"policy-service/pdp/internal/mcp"
)

// Warnings about a configuration by which some people cannot be asked, with a remedy.
const (
	// NoData is said where the PDP in this process keeps nothing.
	NoData = "the PDP in this process keeps nothing: there is no decision log, and nobody is asked for an approval; write pdp.embedded.data, or --pdp-data DIR, to have both"

	// NobodyElse is for approvals that take other people than the person of the call. Only that person reaches a PDP in
	// this process.
	NobodyElse = "nobody can give an approval that takes a second person: the PDP in this process hears only the person of the call, by a form, and so the call is never made; " +
		"run the PDP as a server of its own, with a console, and write pdp.url"

	noForm = "no form is shown to the person of identity.static: a PDP elsewhere knows people by their tokens, and this person has none. A call that needs an approval waits until somebody decides at that PDP; " +
		"decide in its console, or by policy-service approvals, or write identity.issuers or pdp.embedded, with which there are forms"
)

// NoForm is the reason why no person is ever shown a form, with a remedy; "" if there is none, or if the operator wants no
// forms.
func NoForm(told mcp.Config) string {
	if asksTheirClients(told) && told.Identity.Static != nil && told.PDP.Embedded == nil {
		return noForm
	}
	return ""
}

// asksTheirClients reports whether people are asked in their own clients, by a form or a page.
func asksTheirClients(told mcp.Config) bool {
	ways := told.Approvals.Channels
	return len(ways) == 0 || slices.Contains(ways, "form") || slices.Contains(ways, "url")
}

// takeOthers are the names of the approvals of a bundle that take other people than the person of the call; "" for none.
func takeOthers(b *pdp.Bundle) string {
	var names []string
	for _, d := range b.Approvals() {
		if d.Others && !slices.Contains(names, d.Name) {
			names = append(names, d.Name)
		}
	}
	return strings.Join(names, ", ")
}
