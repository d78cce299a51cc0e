// Package listener is the side of a server that looks to the network: how long a client may take, how many connections
// there are ([Connections]), and which certificate it is shown ([Certificates]). Begin with [HTTPServer].
//
// The package knows no request, no caller and no route. Callers report to it that a request waits for its
// body, is worked on, or is answered.
package listener

import (
	"bytes"
	"context"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"policy-service/pdp/internal/server/auth"
)

// IsLoopback reports whether host:port is on loopback, as far as it says so itself.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && auth.IsLoopbackName(host)
}

// Serve answers requests until the listener is closed: over TLS, or in plain HTTP if c is nil.
func (c *Certificates) Serve(server *http.Server, on net.Listener) error {
	on = lazily{on}
	if c == nil {
		return server.Serve(on)
	}
	server.TLSConfig = c.config()
	return server.ServeTLS(on, "", "") // the files are in its configuration
}

// HTTPServer has every limit that net/http leaves open.
func HTTPServer(handler http.Handler, connections *Connections, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler,
		// A client that dribbles its header holds a connection this long, no longer. So does one that has opened a
		// connection for later, as clients in Go do: a request that it sends at this very moment is lost. Five seconds
		// was such a moment, because a call that waits for people reports every five.
		ReadHeaderTimeout: 10 * time.Second,
		// The same for its body: 1 MiB in this time is a very slow PEP.
		ReadTimeout: 15 * time.Second,
		// Runs from the end of the header, so it must outlast the body and the
		// decision; it ends clients that never read their answer.
		WriteTimeout: 40 * time.Second,
		// Longer than the 60 s after which common proxies drop an idle
		// connection: the side that closes second never loses a request.
		IdleTimeout: 120 * time.Second,
		// Room for a JWT and a trace, not for the 1 MiB of the default.
		MaxHeaderBytes: 32 << 10,
		// "OPTIONS *" is to go the way of every other request.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     stdlog.New(faults{log}, "", 0),
		ConnState:                    connections.ConnState,
		ConnContext:                  connections.ConnContext,
		HTTP2: &http.HTTP2Config{
			// As many requests at once as a busy PEP has, on one connection.
			MaxConcurrentStreams: 128,
			// A peer that has gone without a word holds a connection this long.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     10 * time.Second,
			// A peer that reads nothing of its answers.
			WriteByteTimeout: 20 * time.Second,
		},
	}
}

// faults takes the log of net/http. Most of it is about broken connections of strangers. A panic is our own: the caller
// got no answer, and no other line says why.
type faults struct{ log *slog.Logger }

func (f faults) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(line, []byte("panic serving")) {
		level = slog.LevelError
	}
	f.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
