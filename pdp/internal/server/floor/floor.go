// Package floor is the least that a service on our web framework does: it routes a request, reads its body as JSON of
// whatever shape, and writes a constant answer. Nothing that answers over HTTP with this framework can be faster, so
// the service is measured beside it (make bench-http).
//
// It decides nothing and checks nothing, and no product imports it.
package floor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/labstack/echo/v4"
)

// Answer is the body of every answer.
var Answer = []byte(`{"decision":true}`)

// Handler answers the paths of decisions, each with the same answer. The time it takes is the least that a service
// takes.
func Handler() http.Handler {
	e := echo.New()
	for _, path := range []string{"/v1/authorize", "/access/v1/evaluation", "/access/v1/evaluations"} {
		e.POST(path, answer)
	}
	return e
}

// answer reads the request, because every service must pay for that, and uses nothing of it.
func answer(c echo.Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	var request map[string]any
	if err := json.Unmarshal(body, &request); err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, Answer)
}

// Serve runs a server to compare with, on a free port of this machine until ctx ends. It writes its address
// to addrFile, as the service does with --addr-file. The file is there whole or not at all, because somebody waits for
// it and reads it at once.
func Serve(ctx context.Context, addrFile string, h http.Handler) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	unregister := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer unregister()
	part := addrFile + ".part"
	err = os.WriteFile(part, []byte(listener.Addr().String()+"\n"), 0o600)
	if err == nil {
		err = os.Rename(part, addrFile)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
