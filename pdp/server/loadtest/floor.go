package main

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

// floorCommand is the argument with which this program is the floor.
const floorCommand = "floor"

var floorAnswer = []byte(`{"decision":true}`)

// floorHandler is the least that a service in this framework does: it reads the body,
// as JSON of whatever shape, and answers.
func floorHandler() http.Handler {
	e := echo.New()
	answer := func(c echo.Context) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		var request map[string]any
		if err := json.Unmarshal(body, &request); err != nil {
			return err
		}
		return c.JSONBlob(http.StatusOK, floorAnswer)
	}
	for _, c := range testCases {
		e.POST(c.path(), answer)
	}
	return e
}

// serveFloor serves until ctx ends. Its address goes to a file, as with serve --addr-file.
func serveFloor(ctx context.Context, addrFile string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: floorHandler(), ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	part := addrFile + ".part"
	if err := errors.Join(os.WriteFile(part, []byte(listener.Addr().String()+"\n"), 0o600), os.Rename(part, addrFile)); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
