package mcp

import (
	"errors"
	"fmt"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/gate"
	"policy-service/pdp/mcp/internal/upstream"
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
			Command: u.Command, Env: env, Dir: u.Dir, Eras: eras, Timeout: u.Timeout, MaxResult: int(u.MaxResult),
			Name: ownName, Version: d.Version, Logger: d.Logger, Dropped: m.Drop,
		})
	}
	credentials, err := u.Auth.credentials(d.Now)
	if err != nil {
		return nil, err
	}
	return upstream.NewHTTP(upstream.HTTPOptions{
		URL: u.URL, Eras: eras, AllowNetworks: prefixes(u.AllowNetworks), Credentials: credentials, RootsFile: u.CAFile,
		Timeout: u.Timeout, MaxResult: int(u.MaxResult), Name: ownName, Version: d.Version, Logger: d.Logger, Dropped: m.Drop,
	})
}
