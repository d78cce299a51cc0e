package mcp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/gate"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/plainfile"
	"policy-service/pdp/server/auth"
)

// newServer is the one server behind the gateway.
func newServer(c Config, d Deps, m *gate.Meters) (*gate.Server, error) {
	for name, u := range c.Upstreams {
		s := &gate.Server{
			Name: name, Labels: map[string]map[string]string{}, Hidden: map[string]bool{}, Dropped: m.Drop,
			Asks: gate.Relays{
				Elicitation: u.ServerRequests.Elicitation == RelayOn, Sampling: u.ServerRequests.Sampling == RelayOn, Roots: u.ServerRequests.Roots == RelayOn,
				Hosts: u.ServerRequests.Hosts,
			},
		}
		for tool, t := range u.Tools {
			s.Labels[tool], s.Hidden[tool] = t.Labels, t.Hidden
		}
		var err error
		if s.Upstream, err = newUpstream(u, d, m); err != nil {
			return nil, fmt.Errorf("upstreams.%s: %w", name, err)
		}
		return s, nil
	}
	return nil, errors.New("there is no upstream")
}

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
			Command: u.Command, Env: env, Dir: u.Dir, Eras: eras, Timeout: u.Timeout, MaxResult: int(u.MaxResult), Logger: d.Logger, Dropped: m.Drop,
		})
	}
	networks, err := u.networks()
	if err != nil {
		return nil, err
	}
	credentials, err := u.credentials(networks, d)
	if err != nil {
		return nil, err
	}
	return upstream.NewHTTP(upstream.HTTPOptions{
		URL: u.URL, Eras: eras, AllowNetworks: networks, PlainHTTP: len(networks) > 0, Credentials: credentials, RootsFile: u.CAFile,
		Timeout: u.Timeout, MaxResult: int(u.MaxResult), Name: ownName, Version: d.Version, Logger: d.Logger, Dropped: m.Drop,
	})
}

// environment is all of a program's: what is secret is read from files.
func (u UpstreamConfig) environment() (map[string]string, error) {
	env := maps.Clone(u.Env)
	if env == nil {
		env = map[string]string{}
	}
	for name, path := range u.EnvFiles {
		value, err := plainfile.ReadPrivate(path, 64<<10)
		if err != nil {
			return nil, fmt.Errorf("env_files.%s: %w", name, err)
		}
		env[name] = strings.TrimRight(string(value), "\r\n")
	}
	return env, nil
}

func (u UpstreamConfig) networks() (all []netip.Prefix, err error) {
	for _, text := range u.AllowNetworks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("allow_networks: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// credentials are what the gateway shows the server, nil if nothing.
func (u UpstreamConfig) credentials(networks []netip.Prefix, d Deps) (upstream.Credentials, error) {
	switch a := u.Auth; {
	case a.HeaderFile != "":
		return upstream.NewHeaderFile(upstream.HeaderFile{Path: a.HeaderFile, Header: a.Header})
	case a.TokenExchange != nil:
		t := a.TokenExchange
		return upstream.NewTokenExchange(upstream.TokenExchange{
			TokenEndpoint: tokenEndpoint(t.TokenURL, t.ClientID, t.ClientSecretFile, networks, d), Audience: t.Audience, Resource: t.Resource, Scopes: t.Scopes,
		})
	case a.ClientCredentials != nil:
		t := a.ClientCredentials
		return upstream.NewClientCredentials(upstream.ClientCredentials{
			TokenEndpoint: tokenEndpoint(t.TokenURL, t.ClientID, t.ClientSecretFile, networks, d), Audience: t.Audience, Resource: t.Resource, Scopes: t.Scopes,
		})
	}
	return nil, nil
}

// tokenEndpoint stands where its server may stand, or on this machine.
func tokenEndpoint(address, id, secretFile string, networks []netip.Prefix, d Deps) upstream.TokenEndpoint {
	e := upstream.TokenEndpoint{TokenURL: address, ClientID: id, ClientSecretFile: secretFile, AllowNetworks: networks, Now: d.Now}
	if u, err := url.Parse(address); err == nil && auth.IsLoopbackName(u.Hostname()) {
		e.AllowNetworks = slices.Concat(loopback, networks)
	}
	return e
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
