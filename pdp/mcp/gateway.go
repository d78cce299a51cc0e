package mcp

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/mcp/internal/seal"
	"policy-service/pdp/server/auth"
)

// Gateway stands in front of an MCP server, and has the PDP decide what reaches it.
type Gateway struct {
	settings settings
	identity *identity.Identity
	asker    *ask.Asker
	rates    *rates.Limiter
	ring     *seal.Ring
	server   *server
	hosts    hosts
	meters   *meters
	tracer   trace.Tracer
	health   health
	log      *slog.Logger
	now      func() time.Time

	sessions sessions
	links    links
	held     holding
	tokens   atomic.Uint64
	stop     func()
	running  sync.WaitGroup
}

// settings are what of the configuration counts for each request.
type settings struct {
	MaxBody, MaxArguments int
	ListCache, ListTTL    time.Duration
	Meta                  []string
}

// Endpoint is the path of the MCP endpoint.
const Endpoint = "/mcp"

// Handler serves the MCP endpoint, and says by which authorization servers it is entered.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(Endpoint, g.serve)
	for _, path := range g.identity.MetadataPaths() {
		mux.HandleFunc("GET "+path, g.metadata)
	}
	return mux
}

func (g *Gateway) metadata(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=3600")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	_, _ = w.Write(g.identity.Metadata())
}

// Close ends all sessions, and waits for what they hold.
func (g *Gateway) Close() error {
	g.stop()
	g.running.Wait()
	g.held.end(func(*held) bool { return true })
	return g.server.upstream.Close()
}

// sweep ends, now and then, what nobody uses any longer.
func (g *Gateway) sweep(ctx context.Context) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			now := g.now()
			g.sessions.sweep(now)
			g.links.sweep(now)
			g.held.end(func(h *held) bool { return now.After(h.until) })
		case <-ctx.Done():
			return
		}
	}
}

func (g *Gateway) start() {
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.running.Go(func() { g.sweep(ctx) })
}

func (g *Gateway) nonce() string { return rand.Text() }

// hostname is a host without its port, in lower case.
func hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func isLoopback(host string) bool { return auth.IsLoopbackName(host) }

func sortedKeys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }

func joined(all []string) string { return strings.Join(all, ", ") }
