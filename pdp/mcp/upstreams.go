package mcp

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/gate"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/plainfile"
)

// newUpstream is the server that a part of the configuration describes. Nothing is sent and started before a client comes.
func newUpstream(u UpstreamConfig, d Deps, m *gate.Meters) (upstream.Upstream, error) {
	var eras []era.Era
	for _, name := range u.Eras {
		if name == "modern" {
			eras = append(eras, era.Modern)
		} else {
			eras = append(eras, era.Legacy)
		}
	}
	if len(u.Command) > 0 {
		env, err := u.environment()
		if err != nil {
			return nil, err
		}
		return upstream.NewCommand(upstream.CommandOptions{
			Command: u.Command, Env: env, Dir: u.Dir, Eras: eras, Timeout: u.Timeout, MaxResult: int(u.MaxResult),
			Name: ownName, Version: d.Version, Logger: d.Logger, Dropped: m.Drop,
		})
	}
	var networks []netip.Prefix
	for _, text := range u.AllowNetworks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("allow_networks: %w", err)
		}
		networks = append(networks, p)
	}
	credentials, err := u.Auth.credentials(networks, d)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	return upstream.NewHTTP(upstream.HTTPOptions{
		URL: u.URL, Eras: eras, AllowNetworks: networks, RootsFile: u.CAFile, Timeout: u.Timeout, MaxResult: int(u.MaxResult),
		Credentials: credentials, Name: ownName, Version: d.Version, Logger: d.Logger, Dropped: m.Drop,
	})
}

// mostVariable bounds a variable in a file.
const mostVariable = 64 << 10

// environment is all of the environment of a program. The files are read now: a process keeps what it was started with.
func (u UpstreamConfig) environment() (map[string]string, error) {
	env := maps.Clone(u.Env)
	if env == nil {
		env = map[string]string{}
	}
	for name, file := range u.EnvFiles {
		content, err := plainfile.ReadPrivate(file, mostVariable)
		if err != nil {
			return nil, fmt.Errorf("env_files.%s: %w", name, err)
		}
		value := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
		if value == "" {
			return nil, fmt.Errorf("env_files.%s: %s is empty; write the value into it", name, file)
		}
		env[name] = value
	}
	return env, nil
}

// credentials are what the gateway shows the server, nil if nothing is configured. The authorization server that gives
// tokens stands where the server may.
func (a UpstreamAuth) credentials(networks []netip.Prefix, d Deps) (upstream.Credentials, error) {
	switch {
	case a.HeaderFile != "":
		return upstream.NewHeaderFile(upstream.HeaderFile{Path: a.HeaderFile, Header: a.Header})
	case a.TokenExchange != nil:
		t := a.TokenExchange
		return upstream.NewTokenExchange(upstream.TokenExchange{
			TokenEndpoint: tokenEndpoint(t.TokenURL, t.ClientID, t.ClientSecretFile, networks, d),
			Audience:      t.Audience, Resource: t.Resource, Scopes: t.Scopes,
		})
	case a.ClientCredentials != nil:
		t := a.ClientCredentials
		return upstream.NewClientCredentials(upstream.ClientCredentials{
			TokenEndpoint: tokenEndpoint(t.TokenURL, t.ClientID, t.ClientSecretFile, networks, d),
			Audience:      t.Audience, Resource: t.Resource, Scopes: t.Scopes,
		})
	}
	return nil, nil
}

func tokenEndpoint(url, id, secretFile string, networks []netip.Prefix, d Deps) upstream.TokenEndpoint {
	return upstream.TokenEndpoint{TokenURL: url, ClientID: id, ClientSecretFile: secretFile, AllowNetworks: networks, Now: d.Now}
}
