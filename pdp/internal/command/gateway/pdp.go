package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
)

// ToPDP is the way to a PDP elsewhere.
func ToPDP(c mcp.PDPConfig) (http.RoundTripper, error) {
	transport := mcp.NewTransport()
	if c.CAFile == "" {
		return transport, nil
	}
	text, err := plainfile.Read(c.CAFile, 1<<20)
	if err != nil {
		return nil, fmt.Errorf("cannot read pdp.ca_file: %w; check its name and permissions", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate; it must be PEM, the roots of the PDP's certificate", c.CAFile)
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return transport, nil
}

// embedded is a PDP in this process, as far as the gateway has to know it.
type embedded struct {
	transport    http.RoundTripper
	reload, stop func(context.Context) error
}

// CallerName is the name of the gateway in policies of a PDP in this process.
const CallerName = "key:mcp-gateway"

// embeddedCaller is the gateway as the PDP in its process knows it. No credential is checked: only the gateway reaches that
// PDP.
var embeddedCaller = auth.Caller{
	Name:        CallerName,
	AllTenants:  true,
	Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Request, auth.Relay},
	Relays:      evaluation.ViaForm,
}

// embed starts a PDP that only this process reaches.
func embed(ctx context.Context, told mcp.Config, d mcp.Deps, checkpoints io.Writer) (embedded, error) {
	c := told.PDP.Embedded
	if err := bundledir.Exists(c.Policies); err != nil {
		return embedded{}, err
	}
	of := &policies{log: d.Logger, asks: c.Data != ""}
	callers := &auth.InProcess{Program: embeddedCaller}
	if of.asks {
		people, err := mcp.NewPersons(told, d, of.typeOf)
		if err != nil {
			return embedded{}, err
		}
		callers.People = people
	} else {
		d.Logger.Warn(NoData)
	}
	config := server.Config{Policies: c.Policies, Data: c.Data, PublicURL: mcp.EmbeddedURL, Program: server.Program{
		InProcess:      true,
		Authenticator:  callers,
		Checkpoints:    checkpoints,
		MeterProvider:  d.MeterProvider,
		TracerProvider: d.TracerProvider,
		Logger:         d.Logger,
		PDP:            pdp.Options{BeforeSwap: of.come},
	}}
	if c.Data != "" {
		config.DecisionLog.Mode = decisionlog.Mode(c.LogMode)
	}
	srv, err := server.New(config)
	if err != nil {
		return embedded{}, err
	}
	if err := srv.Start(ctx); errors.Is(err, segment.ErrLocked) {
		return embedded{}, fmt.Errorf("pdp.embedded.data: %s is in use by another process, such as a gateway that another window of your client has started; "+
			"to share it, run one policy-service serve with this directory and write pdp.url in place of pdp.embedded, or give this gateway a directory of its own", c.Data)
	} else if err != nil {
		return embedded{}, err
	}
	return embedded{transport: srv.Transport(), reload: srv.Reload, stop: srv.Stop}, nil
}

// policies are those in force of a PDP in this process.
type policies struct {
	log     *slog.Logger
	asks    bool // people are asked
	inForce atomic.Pointer[pdp.Bundle]
	told    string // the last warning about them
}

// come is called for each bundle that comes into force, one after the other.
func (p *policies) come(b pdp.Incoming) error {
	p.inForce.Store(b.Bundle)
	takes := takeOthers(b.Bundle)
	if p.asks && takes != "" && takes != p.told {
		p.log.Warn(NobodyElse, "obligations", takes)
	}
	p.told = takes
	return nil
}

// typeOf is the name in policies of a type of questions.
func (p *policies) typeOf(wire string) (string, bool) { return p.inForce.Load().PolicyType(wire) }
