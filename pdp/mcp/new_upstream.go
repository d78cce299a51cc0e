package mcp

import (
	"fmt"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/meters"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/server/config"
)

// newServers are the servers behind the gateway, sorted by their names.
func newServers(c Config, d Deps, m *meters.Meters) (all []*link.Server, err error) {
	for _, name := range sortedNames(c.Upstreams) {
		u := c.Upstreams[name]
		s := &link.Server{
			Program: len(c.Upstreams[name].Command) > 0,
			Name:    name, Key: config.Entry("upstreams", name), Labels: map[string]map[string]string{}, Hidden: map[string]bool{}, Dropped: m.Drop,
			Asks: link.Relays{
				Elicitation: u.ServerRequests.Elicitation == RelayOn, Sampling: u.ServerRequests.Sampling == RelayOn, Roots: u.ServerRequests.Roots == RelayOn,
				Hosts: u.ServerRequests.Hosts,
			},
			URIs: c.uris(u),
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

// processesEach is how many programs of a server run for one person. Where there is one alone, they are all theirs.
func (c Config) processesEach() int {
	if c.Identity.Static != nil {
		return int(c.Processes.Most)
	}
	return int(c.Processes.PerPerson)
}

func newUpstream(c Config, name string, d Deps, m *meters.Meters) (upstream.Upstream, error) {
	u := c.Upstreams[name]
	key := config.Entry("upstreams", name)
	var eras []era.Era
	for _, e := range u.Eras {
		if e == "modern" {
			eras = append(eras, era.Modern)
		} else {
			eras = append(eras, era.Legacy)
		}
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
		return upstream.NewCommand(upstream.CommandOptions{
			Options: all, Processes: int(c.Processes.Most), PerPerson: c.processesEach(),
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
