package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"policy-service/cmd/policy-service/internal/bundledir"
	"policy-service/evaluation"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/mcp"
	"policy-service/pdp/plainfile"
	"policy-service/pdp/server"
	"policy-service/pdp/server/auth"
)

// ToPDP is the way to a PDP elsewhere. Many questions go to one address at once.
func ToPDP(c mcp.PDPConfig) (http.RoundTripper, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256
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

// CallerName is what policies of a PDP in this process know the gateway by.
const CallerName = "key:mcp-gateway"

// embeddedCaller is who the gateway is to the PDP in its process. No credential is checked: nobody else reaches that PDP.
var embeddedCaller = auth.Caller{
	Name:        CallerName,
	AllTenants:  true,
	Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Request, auth.Relay},
	Relays:      evaluation.ViaForm,
}

type onlyGateway struct{}

func (onlyGateway) Authenticate(*http.Request) (auth.Caller, error) { return embeddedCaller, nil }

// embed starts a PDP that only this process reaches.
func embed(ctx context.Context, c mcp.EmbeddedConfig, log *slog.Logger, checkpoints io.Writer, meters metric.MeterProvider, traces trace.TracerProvider) (embedded, error) {
	if err := bundledir.Exists(c.Policies); err != nil {
		return embedded{}, err
	}
	if c.Data == "" {
		log.Warn(noData)
	}
	config := server.Config{Policies: c.Policies, Data: c.Data, Program: server.Program{
		InProcess:      true,
		Authenticator:  onlyGateway{},
		Checkpoints:    checkpoints,
		MeterProvider:  meters,
		TracerProvider: traces,
		Logger:         log,
	}}
	if c.Data != "" {
		config.DecisionLog.Mode = decisionlog.Mode(c.LogMode)
	}
	srv, err := server.New(config)
	if err != nil {
		return embedded{}, err
	}
	if err := srv.Start(ctx); err != nil {
		return embedded{}, err
	}
	return embedded{transport: srv.Transport(), reload: srv.Reload, stop: srv.Stop}, nil
}

// noData is said where the PDP in this process keeps nothing.
const noData = "the PDP in this process keeps nothing: there is no decision log, and nobody is asked for an approval; write pdp.embedded.data, or --pdp-data DIR, to have both"
