// Command example is an MCP server that is its own PEP: it validates access tokens, asks a PDP about each request, and
// executes only what is permitted. It shows how the parts go together, and the conformance plan coaz judges it.
//
//	go run ./evaluation/coaz/sdkpep/example --pdp http://127.0.0.1:8180 --issuer https://idp.example.com
//
// Both eras of MCP are served at /mcp: up to 2025-11-25 with sessions, since 2026-07-28 without.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// settings are the flags.
type settings struct {
	listen, addrFile string
	resource         string
	issuer           string
	pdp, pdpKeyFile  string
	tenant           string
	pdpTimeout       time.Duration
	offer, report    string
}

func (s *settings) flags(errors io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("example", flag.ContinueOnError)
	f.SetOutput(errors)
	f.StringVar(&s.listen, "listen", "127.0.0.1:8190", "address to listen on")
	f.StringVar(&s.addrFile, "addr-file", "", "file that gets the address as soon as requests are answered")
	f.StringVar(&s.resource, "resource", "", "this server's own identifier, which tokens must be for; http://ADDRESS/mcp without it")
	f.StringVar(&s.issuer, "issuer", "", "issuer of access tokens (required)")
	f.StringVar(&s.pdp, "pdp", "", "URL of the PDP (required)")
	f.StringVar(&s.pdpKeyFile, "pdp-key-file", "", "file with the API key for the PDP")
	f.StringVar(&s.tenant, "tenant", "", "tenant at the PDP")
	f.DurationVar(&s.pdpTimeout, "pdp-timeout", 2*time.Second, "time for one call of the PDP")
	f.StringVar(&s.offer, "offer", "", "file with what is offered: a JSON object of tools, resources, resourceTemplates and prompts, as MCP lists them")
	f.StringVar(&s.report, "report", "", "URL that is told what is executed, for the conformance plan")
	return f
}

// run serves until ctx ends: exit code 0 then, 2 if it cannot start.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	var s settings
	f := s.flags(stderr)
	if err := f.Parse(args); err != nil {
		return 2
	}
	if err := serve(ctx, s, slog.New(slog.NewTextHandler(stderr, nil)), func(string) {}); err != nil {
		_, _ = fmt.Fprintln(stderr, "example:", err)
		return 2
	}
	return 0
}

// serve serves until ctx ends, and calls ready with the address as soon as it does.
func serve(ctx context.Context, s settings, log *slog.Logger, ready func(addr string)) error {
	if s.issuer == "" || s.pdp == "" {
		return errors.New("--issuer and --pdp say whose tokens are good, and who decides; try --help")
	}
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	if s.resource == "" {
		s.resource = "http://" + l.Addr().String() + "/mcp"
	}
	handler, err := s.handler(log)
	if err != nil {
		return err
	}
	if s.addrFile != "" {
		if err := writeWhole(s.addrFile, l.Addr().String()+"\n"); err != nil {
			return err
		}
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(l) }()
	ready(l.Addr().String())
	log.Info("serving", "url", "http://"+l.Addr().String()+"/mcp", "resource", s.resource, "issuer", s.issuer, "pdp", s.pdp)
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return server.Close() // streams would wait for ever
	}
}

// writeWhole writes a file that readers see as a whole or not at all.
func writeWhole(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// key is the content of a file, without the line's end; no file is no key.
func key(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
}
