package mcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// This file stands in for the gateway until that is merged.

type Gateway struct{}

type Deps struct {
	Logger    *slog.Logger
	Transport http.RoundTripper
	Now       func() time.Time

	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
}

func New(context.Context, Config, Deps) (*Gateway, error) { return &Gateway{}, nil }

func (g *Gateway) Handler() http.Handler { return http.NotFoundHandler() }

func (g *Gateway) ServeStdio(context.Context, io.Reader, io.Writer) error {
	return errors.ErrUnsupported
}

func (g *Gateway) Close() error { return nil }

// Ready is an error while the PDP is known not to answer.
func (g *Gateway) Ready() error { return nil }
