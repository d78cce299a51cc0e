package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/process"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/internal/server/listener"
)

// Doctor looks at the surroundings of the gateway.
type Doctor struct {
	configFlags `embed:""`
	JSON        bool `name:"json" help:"Print JSON, for programs."`
}

// Help ends the command's help.
func (Doctor) Help() string {
	return "doctor takes the flags of mcp-gateway, but --stdio. It makes the gateway as a start does, which reads the files that the configuration names, " +
		"and asks the PDP, the issuers of tokens and the upstream whether they answer. It decides nothing, calls no tool and starts no program. " +
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
		x.Wrong("configuration", err)
		return process.PrintFindings(x.Findings, c.JSON, s)
	}
	x.OK("configuration", "it can be used")
	for _, look := range []func(){x.start, x.pdp, x.issuers, x.upstream} {
		look()
	}
	if ctx.Err() != nil {
		return errors.New("it was interrupted, run it again")
	}
	return process.PrintFindings(x.Findings, c.JSON, s)
}

// exam is one examination.
type exam struct {
	doctor.Report
	ctx  context.Context
	told mcp.Config // what the operator wrote
}

// patience is how long the doctor waits for an answer.
const patience = 5 * time.Second

// start makes the gateway as a start does, which reads keys, secrets, the lock and the variables of programs.
func (x *exam) start() {
	before := len(x.Findings)
	gateway, err := mcp.New(x.ctx, x.told, mcp.Deps{Transport: http.DefaultTransport})
	if err != nil {
		message, try, _ := strings.Cut(err.Error(), "; ")
		x.Bites("files", cmp.Or(try, "correct the name, the content or the permissions of the file: it must be readable for the gateway, and not for everybody"), "%s", message)
	} else {
		_ = gateway.Close()
	}
	// Credentials are read for each request to a server.
	for _, name := range slices.Sorted(maps.Keys(x.told.Upstreams)) {
		a := x.told.Upstreams[name].Auth
		files := []string{a.HeaderFile}
		if t := a.TokenExchange; t != nil {
			files = append(files, t.ClientSecretFile)
		}
		if t := a.ClientCredentials; t != nil {
			files = append(files, t.ClientSecretFile)
		}
		for _, file := range files {
			if file == "" {
				continue
			}
			if err := mcp.CheckCredential(file); err != nil {
				x.Bites("files", "correct its name, its content or its permissions", "upstreams.%s.auth: %v", name, err)
			}
		}
	}
	x.Certificate(listener.TLSFiles{CertFile: x.told.TLS.CertFile, KeyFile: x.told.TLS.KeyFile}, time.Now())
	if len(x.Findings) == before {
		x.OK("files", "all files of the configuration can be used")
	}
	if len(x.told.Seal.KeyFiles) == 0 {
		x.OK("files", "there is no seal.key_files: sessions, cursors and forms that wait for an answer end with the process, and there can be no second one")
	}
}

// issuers looks whether the keys can be had by which tokens are verified.
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
			x.OK("issuers", "the keys of %s are there", i.Issuer)
		case i.JWKSFile != "":
			x.Bites("issuers", "put a JWK Set with the issuer's public keys there", "nobody with a token of %s gets in: %s holds no key that can be used", i.Issuer, i.JWKSFile)
		default:
			x.Bites("issuers", "see that "+strings.TrimSuffix(i.Issuer, "/")+"/.well-known/openid-configuration can be fetched from here, or use jwks_file",
				"nobody with a token of %s gets in: its keys cannot be fetched", i.Issuer)
		}
	}
}

// upstream looks for the servers behind the gateway. They are shown no credential, and no program is started.
func (x *exam) upstream() {
	for _, name := range slices.Sorted(maps.Keys(x.told.Upstreams)) {
		u := x.told.Upstreams[name]
		if u.URL == "" {
			x.program(name, u)
			continue
		}
		client, err := toServer(u.CAFile)
		if err != nil {
			x.Wrong("upstream", err)
			continue
		}
		answer, _, err := x.send(client, http.MethodGet, u.URL, "", "")
		if err != nil {
			x.Bites("upstream", "see that it runs, and that url, ca_file and allow_networks are right", "no tool of %s can be called: %v", name, withoutURL(err))
			continue
		}
		x.OK("upstream", "%s answers, with %s to a GET without a credential", name, answer.Status)
	}
}

// program looks for the program of an upstream.
func (x *exam) program(name string, u mcp.UpstreamConfig) {
	path, err := u.Program()
	if err == nil && u.Dir != "" {
		_, err = os.Stat(u.Dir)
	}
	if err != nil {
		x.Bites("upstream", "install it, or write its whole path into command", "no tool of %s can be called: %v", name, err)
		return
	}
	x.OK("upstream", "the program of %s is %s", name, path)
}

// send sends a request, and reads the beginning of the answer.
func (x *exam) send(client *http.Client, method, address, key, body string) (answer *http.Response, text []byte, err error) {
	ctx, cancel := context.WithTimeout(x.ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if answer, err = client.Do(r); err != nil {
		return nil, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		return answer, nil, nil // a stream of a server lasts
	}
	text, err = io.ReadAll(io.LimitReader(answer.Body, 64<<10)) // to its end, so that its connection can be used again
	return answer, text, err
}

// withoutURL is an error of a request without the address, in which there may be a secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
