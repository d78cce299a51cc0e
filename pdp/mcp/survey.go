package mcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/meters"
	"policy-service/pdp/mcp/lock"
)

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
	if o.Asker, err = c.asker(d, c.Obligations.promised()); err != nil {
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
