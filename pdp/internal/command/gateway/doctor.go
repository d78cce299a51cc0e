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
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server/auth"
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
	var all finding.List
	if err != nil {
		all.Wrong("configuration", err)
		return process.PrintFindings(all, c.JSON, s)
	}
	all.OK("configuration", "it can be used")
	all = append(all, finding.Of(ctx, configuration{told}, files{told}, remotePDP{told}, issuers{told}, upstreams{told})...)
	if ctx.Err() != nil {
		return errors.New("it was interrupted, run it again")
	}
	return process.PrintFindings(all, c.JSON, s)
}

// patience is how long the doctor waits for an answer.
const patience = 5 * time.Second

// files are those that the configuration names.
type files struct{ told mcp.Config }

// Findings makes the gateway as a start does, which reads keys, secrets, the lock and the variables of programs.
func (f files) Findings(ctx context.Context) (found finding.List) {
	const check = "files"
	gateway, err := mcp.New(ctx, f.told, mcp.Deps{Transport: http.DefaultTransport})
	if err != nil {
		message, try, _ := strings.Cut(err.Error(), "; ")
		found.Bites(check, cmp.Or(try, "correct the name, the content or the permissions of the file: it must be readable for the gateway, and not for everybody"), "%s", message)
	} else {
		_ = gateway.Close()
	}
	// Credentials are read for each request to a server.
	for _, name := range slices.Sorted(maps.Keys(f.told.Upstreams)) {
		a := f.told.Upstreams[name].Auth
		secrets := []string{a.HeaderFile}
		if t := a.TokenExchange; t != nil {
			secrets = append(secrets, t.ClientSecretFile)
		}
		if t := a.ClientCredentials; t != nil {
			secrets = append(secrets, t.ClientSecretFile)
		}
		for _, file := range secrets {
			if file == "" {
				continue
			}
			if err := mcp.CheckCredential(file); err != nil {
				found.Bites(check, "correct its name, its content or its permissions", "upstreams.%s.auth: %v", name, err)
			}
		}
	}
	found = append(found, listener.TLSFiles{CertFile: f.told.TLS.CertFile, KeyFile: f.told.TLS.KeyFile}.Findings(time.Now())...)
	if len(found) == 0 {
		found.OK(check, "all files of the configuration can be used")
	}
	if len(f.told.Seal.KeyFiles) == 0 {
		found.OK(check, "there is no seal.key_files: sessions, cursors and forms that wait for an answer end with the process, and there can be no second one")
	}
	return found
}

// issuers are those of the tokens.
type issuers struct{ told mcp.Config }

// Findings looks whether the keys can be had by which tokens are verified.
func (l issuers) Findings(ctx context.Context) (found finding.List) {
	const check = "issuers"
	for _, i := range l.told.Identity.Issuers {
		keys, err := auth.NewJWT([]auth.JWTIssuer{{
			Issuer: i.Issuer, Audience: l.told.Resource, Algorithms: i.Algorithms, JWKSFile: i.JWKSFile,
			Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide}},
		}}, auth.JWTOptions{Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			asked, cancel := context.WithTimeout(ctx, patience)
			err = keys.HaveKeys(asked)[0]
			cancel()
		}
		switch {
		case err == nil:
			found.OK(check, "the keys of %s are there", i.Issuer)
		case i.JWKSFile != "":
			found.Bites(check, "put a JWK Set with the issuer's public keys there", "nobody with a token of %s gets in: %s holds no key that can be used", i.Issuer, i.JWKSFile)
		default:
			found.Bites(check, "see that "+strings.TrimSuffix(i.Issuer, "/")+"/.well-known/openid-configuration can be fetched from here, or use jwks_file",
				"nobody with a token of %s gets in: its keys cannot be fetched", i.Issuer)
		}
	}
	return found
}

// upstreams are the servers behind the gateway.
type upstreams struct{ told mcp.Config }

// Findings looks for the servers. They are shown no credential, and no program is started.
func (l upstreams) Findings(ctx context.Context) (found finding.List) {
	const check = "upstream"
	for _, name := range slices.Sorted(maps.Keys(l.told.Upstreams)) {
		u := l.told.Upstreams[name]
		if u.URL == "" {
			path, err := u.Program()
			if err == nil && u.Dir != "" {
				_, err = os.Stat(u.Dir)
			}
			if err != nil {
				found.Bites(check, "install it, or write its whole path into command", "no tool of %s can be called: %v", name, err)
			} else {
				found.OK(check, "the program of %s is %s", name, path)
			}
			continue
		}
		client, err := toServer(u.CAFile)
		if err != nil {
			found.Wrong(check, err)
			continue
		}
		answer, _, err := send(ctx, client, http.MethodGet, u.URL, "", "")
		if err != nil {
			found.Bites(check, "see that it runs, and that url, ca_file and allow_networks are right", "no tool of %s can be called: %v", name, withoutURL(err))
			continue
		}
		found.OK(check, "%s answers, with %s to a GET without a credential", name, answer.Status)
	}
	return found
}

// send sends a request, and reads the beginning of the answer.
func send(ctx context.Context, client *http.Client, method, address, key, body string) (answer *http.Response, text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
