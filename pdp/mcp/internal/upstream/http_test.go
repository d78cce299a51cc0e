package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// here is where servers of tests stand.
var here = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// httpOptions are those of a server on loopback, without limits that a test would meet.
func httpOptions(url string) upstream.HTTPOptions {
	return upstream.HTTPOptions{URL: url, AllowNetworks: here, Options: options("gateway", "1")}
}

// options are those of any server, without limits that a test would meet.
func options(name, version string) upstream.Options {
	return upstream.Options{
		Name: name, Version: version, Timeout: 20 * time.Second, MaxResult: 4 << 20,
		Logger: slog.New(slog.DiscardHandler), Dropped: func(string) {}, Masked: func(int) {},
	}
}

// reach makes an upstream of a server that listens on loopback.
func reach(t testing.TB, url string, change ...func(*upstream.HTTPOptions)) upstream.Upstream {
	t.Helper()
	o := httpOptions(url)
	for _, c := range change {
		c(&o)
	}
	u, err := upstream.NewHTTP(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}

func open(t testing.TB, u upstream.Upstream) upstream.Session {
	t.Helper()
	s, err := u.Open(t.Context(), upstream.Client{Principal: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call is a tools/call as the era of the session wants it.
func call(s upstream.Session, tool, arguments string) upstream.Request {
	params := rpc.Object{}.With("name", rpc.String(tool)).With("arguments", jsontext.Value(arguments))
	return upstream.Request{Method: "tools/call", Params: withMeta(s, params, rpc.Object{})}
}

func withMeta(s upstream.Session, params, meta rpc.Object) rpc.Object {
	if s.Era() == era.Modern {
		meta = meta.With(era.MetaVersion, rpc.String("2026-07-28")).With(era.MetaClient, jsontext.Value(`{"name":"c","version":"1"}`)).
			With(era.MetaCapabilities, jsontext.Value(`{"elicitation":{}}`))
	}
	if meta.Len() > 0 {
		params = params.With("_meta", meta.Value())
	}
	return params
}

// members are those of an object.
func members(text string) rpc.Object {
	o, err := rpc.ParseObject(jsontext.Value(text))
	if err != nil {
		panic(err)
	}
	return o
}

// answer reads a stream to its response, and what came before it.
func answer(st upstream.Stream) (before []rpc.Message, m rpc.Message, err error) {
	for {
		m, err := st.Next()
		if err != nil {
			return before, m, err
		}
		if m.IsResponse() {
			return before, m, nil
		}
		before = append(before, m)
	}
}

func send(s upstream.Session, r upstream.Request) (before []rpc.Message, m rpc.Message, err error) {
	st, err := s.Send(context.Background(), r)
	if err != nil {
		return nil, rpc.Message{}, err
	}
	defer st.Close()
	return answer(st)
}

func isGone(err error, notSent bool) bool {
	var e *upstream.Error
	return errors.As(err, &e) && e.Gone && e.NotSent == notSent
}

func describe(err error) string {
	var e *upstream.Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("not sent %t, gone %t, answer %s: %s", e.NotSent, e.Gone, e.Answer, e)
}
