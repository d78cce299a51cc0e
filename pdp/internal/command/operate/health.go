package operate

import (
	"context"
	"time"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/server/doctor"
)

// Health asks a running server whether it is well. A container's health check runs it: the container holds no other
// program that could ask.
type Health struct {
	URL     string        `default:"http://127.0.0.1:8180" asks:"server" placeholder:"URL" help:"The URL of the server, without a path, or unix:PATH for its socket. Without the flag, $$POLICY_SERVICE_SERVER is used. The default is ${default}."`
	TLSCert cli.Given     `name:"tls-cert" placeholder:"FILE" help:"The certificate that serve has, in PEM. health trusts exactly this certificate, whatever the host name."`
	Ready   bool          `help:"Ask whether the server can decide (/readyz), not only whether it is alive (/livez)."`
	Timeout time.Duration `default:"3s" placeholder:"D" help:"How long to wait for the answer. The default is ${default}."`
}

// Help ends the command's help.
func (Health) Help() string {
	return "Exit codes: 0 if the server is well, 1 if it is not well or does not answer, " +
		"2 if it could not ask, for example because of a wrong flag."
}

// Run asks once.
func (c Health) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	probe := doctor.Probe{URL: c.URL, CertFile: string(c.TLSCert)}
	if err := probe.Check(); err != nil {
		return err
	}
	path := "/livez"
	if c.Ready {
		path = "/readyz"
	}
	status, err := probe.Ask(ctx, path)
	if err != nil {
		s.Tell("policy-service: not well: %v", err)
		return cli.No
	}
	s.Print("%s", status)
	return nil
}
