package upstream

import (
	"context"
	"net/http"
	"log/slog"
	"net/netip"
	"time"

	"policy-service/pdp/mcp/internal/era"
)

type HTTPOptions struct {
	URL           string
	Eras          []era.Era
	AllowNetworks []netip.Prefix
	PlainHTTP     bool
	Credentials   Credentials
	RootsFile     string
	Timeout       time.Duration
	MaxResult     int
	Name, Version string
	Logger        *slog.Logger
	Dropped       func(reason string)
}

func NewHTTP(o HTTPOptions) (Upstream, error) { return nil, nil }

type Credentials interface {
	Authorize(ctx context.Context, h http.Header, principal, token string, expires time.Time) error
}
