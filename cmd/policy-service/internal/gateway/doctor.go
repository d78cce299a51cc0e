package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/cmd/policy-service/internal/process"
	"policy-service/pdp/mcp"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/doctor"
)

// Doctor looks at what the gateway would meet.
type Doctor struct {
	configFlags `embed:""`
	JSON        bool `name:"json" help:"Print JSON, for programs."`
}

// Help ends the command's help.
func (Doctor) Help() string {
	return "doctor takes the flags of mcp-gateway, but --stdio. It asks the PDP, the issuers of tokens and the upstream whether they answer, " +
		"and looks at every file that the configuration names. It decides nothing, calls no tool and starts no program. " +
		"Run it where the gateway runs, as the same user.\n\n" +
		"Exit codes: 0 if nothing bites, 1 if something does, 2 if it cannot run."
}

// Run examines.
func (c Doctor) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	told, _, err := c.read()
	x := &exam{ctx: ctx, told: told}
	if err != nil {
		x.wrong("configuration", err)
		return process.PrintFindings(x.findings, c.JSON, s)
	}
	x.ok("configuration", "it can be used")
	for _, look := range []func(){x.files, x.pdp, x.limits, x.issuers, x.upstream} {
		look()
	}
	if ctx.Err() != nil {
		return errors.New("it was interrupted, run it again")
	}
	return process.PrintFindings(x.findings, c.JSON, s)
}

// exam is one examination.
type exam struct {
	ctx      context.Context
	told     mcp.Config
	findings []doctor.Finding
}

func (x *exam) ok(check, format string, args ...any) {
	x.findings = append(x.findings, doctor.Finding{Check: check, Message: fmt.Sprintf(format, args...)})
}

func (x *exam) bites(check, try, format string, args ...any) {
	x.findings = append(x.findings, doctor.Finding{Check: check, Bites: true, Message: fmt.Sprintf(format, args...), Try: try})
}

// wrong takes an error apart that says "what; what to try", a finding each line.
func (x *exam) wrong(check string, err error) {
	for line := range strings.Lines(err.Error()) {
		message, try, _ := strings.Cut(strings.TrimSpace(line), "; ")
		x.bites(check, try, "%s", message)
	}
}

// patience is how long the doctor waits for anybody.
const patience = 5 * time.Second

// limits is how much one person may fill of the PDP's decision log.
func (x *exam) limits() {
	if x.told.Identity.Static == nil {
		rate := float64(x.told.Limits.Rate)
		x.ok("limits", "one person at limits.rate (%g a second) fills %s of the PDP's decision log a day, at %d bytes a record: hold decision_log.retain.bytes of the PDP against it",
			rate, doctor.Daily(rate), doctor.CallRecord)
	}
}

// issuers is whether the keys are had by which tokens are verified.
func (x *exam) issuers() {
	for _, i := range x.told.Identity.Issuers {
		keys, err := auth.NewJWT([]auth.JWTIssuer{{
			Issuer: i.Issuer, Audience: x.told.Resource, Algorithms: i.Algorithms, JWKSFile: i.JWKSFile,
			Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}},
		}}, auth.JWTOptions{Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			ctx, cancel := context.WithTimeout(x.ctx, patience)
			err = keys.HaveKeys(ctx)[0]
			cancel()
		}
		switch {
		case err == nil:
			x.ok("issuers", "the keys of %s are there", i.Issuer)
		case i.JWKSFile != "":
			x.bites("issuers", "put a JWK Set with the issuer's public keys there", "nobody with a token of %s gets in: %s holds no key that can be used", i.Issuer, i.JWKSFile)
		default:
			x.bites("issuers", "see that "+strings.TrimSuffix(i.Issuer, "/")+"/.well-known/openid-configuration can be fetched from here, or use jwks_file",
				"nobody with a token of %s gets in: its keys cannot be fetched", i.Issuer)
		}
	}
}

// upstream is whether the servers behind the gateway are there. They are shown no credential, and no program is started.
func (x *exam) upstream() {
	for _, name := range slices.Sorted(maps.Keys(x.told.Upstreams)) {
		u := x.told.Upstreams[name]
		if u.URL == "" {
			x.program(name, u)
			continue
		}
		client, err := toServer(u.CAFile)
		if err != nil {
			x.wrong("upstream", err)
			continue
		}
		ctx, cancel := context.WithTimeout(x.ctx, patience)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL, nil)
		if err == nil {
			var answer *http.Response
			if answer, err = client.Do(r); err == nil {
				_ = answer.Body.Close()
				x.ok("upstream", "%s answers, with %s to a GET without a credential", name, answer.Status)
			}
		}
		cancel()
		if err != nil {
			x.bites("upstream", "see that it runs, and that url, ca_file and allow_networks are right", "no tool of %s can be called: %v", name, withoutURL(err))
		}
	}
}
