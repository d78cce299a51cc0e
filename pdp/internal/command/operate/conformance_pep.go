package operate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"policy-service/conformance"
	"policy-service/conformance/pep"
	"policy-service/pdp/internal/command/cli"
)

// pepFlags are those of the plans that judge a PEP.
type pepFlags struct {
	PDPListen      string        `name:"pdp-listen" placeholder:"ADDR" help:"Where the PDP of a PEP listens. This and the next two are 127.0.0.1 and a free port by default."`
	UpstreamListen string        `name:"upstream-listen" placeholder:"ADDR" help:"Where the MCP server behind a gateway listens, to which a server that is its own PEP reports."`
	IssuerListen   string        `name:"issuer-listen" placeholder:"ADDR" help:"Where the issuer of the access tokens listens."`
	TLSCert        cli.Given     `name:"tls-cert" placeholder:"FILE" help:"The certificate of all three, in PEM, for a PEP that speaks no plain HTTP."`
	TLSKey         cli.Given     `name:"tls-key" placeholder:"FILE" help:"The key of --tls-cert."`
	Resource       string        `placeholder:"ID" help:"The PEP's own resource identifier, which the tokens are for. The default is URL."`
	SubjectClaim   string        `name:"subject-claim" placeholder:"NAME" help:"The claim that the PEP takes the subject from. The default is sub."`
	Era            []string      `enum:"legacy,modern" placeholder:"ERA" help:"Judge the PEP only in this era of MCP: legacy (2025-11-25) or modern (2026-07-28). The default is each that it speaks."`
	Wait           time.Duration `placeholder:"D" default:"30s" help:"How long the PEP may take until it answers at all."`
	PrintTools     bool          `name:"print-tools" help:"Print what a server that is its own PEP must offer, as JSON, and end."`
}

func pepHelp() string {
	var b strings.Builder
	b.WriteString("\nThese plans judge a PEP, a gateway in front of an MCP server or an MCP server that is its own PEP,\nand print what to configure it with:\n\n")
	for _, p := range pep.Plans() {
		fmt.Fprintf(&b, "  %-18s %s\n", p.Name, p.Title)
	}
	return b.String()
}

func isPEPPlan(name string) bool {
	return slices.ContainsFunc(pep.Plans(), func(p conformance.Plan) bool { return p.Name == name })
}

func printTools(s cli.Streams) error {
	tools, err := pep.Tools()
	if err != nil {
		return err
	}
	s.Print("%s", cli.Lines(strings.TrimSuffix(string(tools), "\n")))
	return nil
}

// given reports if anything is said that a PDP has no use for.
func (f pepFlags) given() bool {
	return f.PDPListen+f.UpstreamListen+f.IssuerListen+f.Resource+f.SubjectClaim != "" || f.TLSCert+f.TLSKey != "" || len(f.Era) > 0
}

func (c Conformance) judgePEP(ctx context.Context, s cli.Streams) (report conformance.Report, err error) {
	options := pep.Options{PDP: c.PEP.PDPListen, Upstream: c.PEP.UpstreamListen, Issuer: c.PEP.IssuerListen}
	if c.PEP.TLSCert != "" || c.PEP.TLSKey != "" {
		certificate, err := tls.LoadX509KeyPair(string(c.PEP.TLSCert), string(c.PEP.TLSKey))
		if err != nil {
			return report, fmt.Errorf("%w; give --tls-cert and --tls-key, each a file in PEM", err)
		}
		options.TLS = &certificate
	}
	target := pep.Target{URL: c.URL, Plans: c.Plan, Resource: c.PEP.Resource, SubjectClaim: c.PEP.SubjectClaim, Wait: c.PEP.Wait}
	for _, era := range c.PEP.Era {
		target.Eras = append(target.Eras, pep.Era(era))
	}
	bench, err := pep.Open(options)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, bench.Close()) }()
	var wiring strings.Builder
	if err := bench.Wiring.WriteText(&wiring, target); err != nil {
		return report, err
	}
	s.Tell("%s", cli.Lines(strings.TrimSuffix(wiring.String(), "\n")))
	return bench.Judge(ctx, target)
}
