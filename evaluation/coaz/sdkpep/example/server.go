package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/coaz"
	"policy-service/evaluation/coaz/sdkpep"
)

// handler is the whole server, from the outside to the tool.
func (s settings) handler(log *slog.Logger) (http.Handler, error) {
	server, err := s.server(log)
	if err != nil {
		return nil, err
	}
	one := func(*http.Request) *mcp.Server { return server }
	// The SDK serves an era each: with sessions up to 2025-11-25, without since 2026-07-28.
	legacy := mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{SessionTimeout: 10 * time.Minute})
	modern := mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	eras := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("MCP-Protocol-Version") >= "2026-07-28" {
			modern.ServeHTTP(w, r)
			return
		}
		legacy.ServeHTTP(w, r)
	})
	verifier := tokens{issuer: s.issuer, audience: s.resource}
	metadata, at, err := s.metadata()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", auth.RequireBearerToken(verifier.verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: at})(sdkpep.Strict(eras, 0)))
	mux.Handle("/.well-known/oauth-protected-resource/mcp", metadata)
	return mux, nil
}

// metadata returns the handler of the metadata that say whose tokens this server takes (RFC 9728),
// and their URL.
func (s settings) metadata() (http.Handler, string, error) {
	u, err := url.Parse(s.resource)
	if err != nil || u.Host == "" {
		return nil, "", fmt.Errorf("--resource %s is not a URL; give this server's own", s.resource)
	}
	at := u.Scheme + "://" + u.Host + "/.well-known/oauth-protected-resource/mcp"
	return auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: s.resource, AuthorizationServers: []string{s.issuer}, BearerMethodsSupported: []string{"header"},
	}), at, nil
}

// server is the MCP server with its PEP.
func (s settings) server(log *slog.Logger) (*mcp.Server, error) {
	binding, err := coaz.New(coaz.Options{Resource: s.resource})
	if err != nil {
		return nil, err
	}
	pdp, err := s.client()
	if err != nil {
		return nil, err
	}
	offered, err := readOffer(s.offer)
	if err != nil {
		return nil, err
	}
	server := offered.server()
	if s.report != "" {
		server.AddReceivingMiddleware(reporting(s.report))
	}
	server.AddReceivingMiddleware(sdkpep.Middleware(binding, pdp, offered.definition, sdkpep.WithLogger(log)))
	return server, nil
}

func (s settings) client() (*authzenclient.Client, error) {
	options := []authzenclient.Option{authzenclient.WithTimeout(s.pdpTimeout)}
	secret, err := key(s.pdpKeyFile)
	if err != nil {
		return nil, err
	}
	if secret != "" {
		options = append(options, authzenclient.WithKey(secret))
	}
	if s.tenant != "" {
		options = append(options, authzenclient.WithTenant(s.tenant))
	}
	return authzenclient.New(s.pdp, options...)
}

// effects are the methods whose effect is reported.
var effects = map[string]bool{
	"tools/call": true, "resources/read": true, "resources/subscribe": true, "resources/unsubscribe": true,
	"prompts/get": true, "completion/complete": true, "logging/setLevel": true,
}

// reporting reports each execution before it begins: nothing is executed that could not be reported.
func reporting(to string) mcp.Middleware {
	client := &http.Client{Timeout: 5 * time.Second}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if effects[method] {
				text, err := json.Marshal(map[string]any{"method": method, "params": r.GetParams()})
				if err == nil {
					err = post(ctx, client, to, text)
				}
				if err != nil {
					return nil, fmt.Errorf("the report of what is executed: %w", err)
				}
			}
			return next(ctx, method, r)
		}
	}
}

func post(ctx context.Context, client *http.Client, to string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		err = fmt.Errorf("status %d", answer.StatusCode)
	}
	_ = answer.Body.Close()
	return err
}
