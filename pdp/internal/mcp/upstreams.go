package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/meters"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/config"
)

// newServers are the servers behind the gateway, sorted by their names.
func newServers(c Config, d Deps, m *meters.Meters) (all []*link.Server, err error) {
	for _, name := range sortedNames(c.Upstreams) {
		u := c.Upstreams[name]
		s := &link.Server{
			Program: len(u.Command) > 0, Name: name, Key: config.Entry("upstreams", name), Labels: map[string]map[string]string{}, Hidden: map[string]bool{}, Dropped: m.Drop,
			Asks: link.Relays{
				May: map[string]bool{
					"elicitation": u.ServerRequests.Elicitation == RelayOn, "sampling": u.ServerRequests.Sampling == RelayOn, "roots": u.ServerRequests.Roots == RelayOn,
				},
				Hosts: u.ServerRequests.Hosts,
			},
			URIs: c.uris(u), Params: u.Params, Logger: d.Logger,
		}
		if len(u.Command) > 0 && !u.Stateful {
			s.Idle = u.Idle
		}
		for tool, t := range u.Tools {
			s.Labels[tool], s.Hidden[tool] = t.Labels, t.Hidden
		}
		if s.Upstream, err = newUpstream(c, name, d, m); err != nil {
			for _, made := range all {
				_ = made.Upstream.Close()
			}
			return nil, fmt.Errorf("upstreams.%s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// uris are how the URIs of an upstream's resources begin. If it is the only one, all are its own unless it says which are.
func (c Config) uris(u UpstreamConfig) []string {
	if len(c.Upstreams) == 1 && len(u.URIs) == 0 {
		return []string{""}
	}
	return u.URIs
}

// ToolName is how clients call a tool of an upstream. With one upstream it is the tool's own name; with several the
// upstream's name and two underscores are before it, and a name that common clients would not take is shortened.
func (c Config) ToolName(upstream, tool string) string {
	if len(c.Upstreams) > 1 {
		return link.ToolName(upstream, tool)
	}
	return tool
}

// Program is the path of the program that a gateway starts for an upstream with a command.
func (u UpstreamConfig) Program() (string, error) {
	env, err := u.environment()
	if err != nil {
		return "", err
	}
	return upstream.FindProgram(u.Command[0], env)
}

func newUpstream(c Config, name string, d Deps, m *meters.Meters) (upstream.Upstream, error) {
	u := c.Upstreams[name]
	key := config.Entry("upstreams", name)
	var eras []era.Era
	for _, name := range u.Eras {
		eras = append(eras, map[string]era.Era{"modern": era.Modern, "legacy": era.Legacy}[name])
	}
	all := upstream.Options{
		Eras: eras, Timeout: u.Timeout, MaxResult: int(u.MaxResult), Key: key, Name: ownName, Version: d.Version,
		Logger: d.Logger, Dropped: m.Drop, Masked: func(places int) { m.Mask(name, places) },
	}
	if len(u.Command) > 0 {
		env, err := u.environment()
		if err != nil {
			return nil, err
		}
		each := c.Processes.PerPerson
		if c.Identity.Static != nil { // there is one person, whose they all are
			each = c.Processes.Most
		}
		return upstream.NewCommand(upstream.CommandOptions{
			Options: all, Processes: int(c.Processes.Most), PerPerson: int(each),
			Command: u.Command, Env: env, Secrets: u.secrets(env), Dir: u.Dir,
		})
	}
	credentials, err := u.Auth.credentials(d.Now)
	if err != nil {
		return nil, err
	}
	return upstream.NewHTTP(upstream.HTTPOptions{
		Options: all, URL: u.URL, AllowNetworks: prefixes(u.AllowNetworks), Credentials: credentials, RootsFile: u.CAFile,
	})
}

// CheckCredential returns the error with which each request to a server would refuse a file with a credential.
func CheckCredential(file string) error {
	_, err := upstream.ReadSecret(file)
	return err
}

// credentials are the gateway's credentials for an upstream; nil is none.
func (a UpstreamAuth) credentials(now func() time.Time) (upstream.Credentials, error) {
	switch {
	case a.HeaderFile != "":
		return &upstream.HeaderFile{Path: a.HeaderFile, Header: a.Header}, nil
	case a.TokenExchange != nil:
		return upstream.NewTokenExchange(a.TokenExchange.endpoint(now))
	case a.ClientCredentials != nil:
		return upstream.NewClientCredentials(a.ClientCredentials.endpoint(now))
	}
	return nil, nil
}

func (t *TokenEndpoint) endpoint(now func() time.Time) upstream.TokenEndpoint {
	return upstream.TokenEndpoint{
		TokenURL: t.TokenURL, ClientID: t.ClientID, ClientSecretFile: t.ClientSecretFile,
		Audience: t.Audience, Resource: t.Resource, Scopes: t.Scopes,
		AllowNetworks: prefixes(t.AllowNetworks), RootsFile: t.CAFile, Now: now,
	}
}

// prefixes are networks that were checked.
func prefixes(texts []string) (all []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// environment is all that the program of an upstream gets. A line end at the end of a file does not count.
func (u UpstreamConfig) environment() (map[string]string, error) {
	env := map[string]string{}
	maps.Copy(env, u.Env)
	for _, name := range sortedNames(u.EnvFiles) {
		text, err := plainfile.ReadPrivate(u.EnvFiles[name], 64<<10)
		if err != nil {
			return nil, fmt.Errorf("env_files.%s cannot be had: %w; correct the file's name or permissions", name, err)
		}
		value := strings.TrimRight(string(text), "\r\n")
		if value == "" || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("env_files.%s: the file is empty, or has a NUL in it, which no variable has; write the value there", name)
		}
		env[name] = value
	}
	return env, nil
}

// secrets are the values of env that are masked in messages of the program.
func (u UpstreamConfig) secrets(env map[string]string) (values []string) {
	for name := range u.EnvFiles {
		if evaluation.SecretName(name) || secretName.MatchString(name) || slices.Contains(u.Secret, name) {
			values = append(values, env[name])
		}
	}
	return values
}

// surveyLasts is how long a survey may take. Nothing that is made for it is used for longer.
const surveyLasts = time.Minute

// Survey is the present state of the servers of a configuration, as a lock would have it: the gateway connects with each of them as
// it would for a client. Upstreams with token_exchange get a token for the given one. The servers that cannot be asked are
// missing in the file, and the error says why. Neither a PDP nor a client is needed for it.
func Survey(ctx context.Context, c Config, d Deps, token string) (lock.File, error) {
	Form.SetDefaults(&c)
	if err := c.Check(); err != nil {
		return lock.File{}, err
	}
	d = d.withDefaults()
	d.Transport = &caught{} // a survey asks no PDP
	names := sortedNames(c.Upstreams)
	found, errs := make([]lock.Server, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for n, name := range names {
		all.Go(func() { found[n], errs[n] = surveyOne(ctx, c, d, name, token) })
	}
	all.Wait()
	f := lock.File{Servers: map[string]lock.Server{}}
	for n, name := range names {
		if errs[n] == nil {
			f.Servers[name] = found[n]
			continue
		}
		errs[n] = fmt.Errorf("upstreams.%s: %w", name, errs[n])
	}
	return f, errors.Join(errs...)
}

// surveyOne surveys one server. It asks by a gateway that has no other, and no client.
func surveyOne(ctx context.Context, c Config, d Deps, name, token string) (s lock.Server, err error) {
	u := c.Upstreams[name]
	if u.Auth.TokenExchange != nil && token == "" {
		return s, errors.New("its credentials are exchanged for a client's token, and there is none; give one with --token-file")
	}
	u.Tools = nil
	c.Upstreams = map[string]UpstreamConfig{name: u}
	counts, err := meters.New(d.MeterProvider.Meter(meters.ScopeName))
	if err != nil {
		return s, err
	}
	o := link.Options{Logger: d.Logger, Now: d.Now}
	if o.Asker, _, err = c.asker(d, c.Obligations.promised(), nil); err != nil {
		return s, err
	}
	if o.All, err = newServers(c, d, counts); err != nil {
		return s, err
	}
	open := doors.New(d.Logger)
	servers := link.New(open, o)
	defer func() {
		open.Close()
		_ = servers.Close()
	}()
	ctx, cancel := context.WithTimeout(ctx, surveyLasts)
	defer cancel()
	return servers.Survey(ctx, o.All[0], &identity.Principal{Key: "survey", Token: token, Expires: d.Now().Add(surveyLasts)}, newSelf(d.Version))
}
