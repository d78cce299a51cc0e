package server_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/pdp/pdptest"
)

// in puts JSON where a request has a context.
func in(context string) string {
	return strings.TrimSuffix(readQuestion, "}") + `,"context":` + context + `}`
}

// badBodies are malformed, hostile, or beyond a limit; every one is a 400.
func badBodies() map[string]string {
	deep := func(open, inner, shut string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	return map[string]string{
		"not JSON":               "subject=alice",
		"byte order mark":        "\ufeff" + readQuestion,
		"UTF-16":                 "\xff\xfe{\x00}\x00",
		"a NUL":                  readQuestion + "\x00",
		"invalid UTF-8":          in(`{"a":"` + "\xff" + `"}`),
		"overlong UTF-8":         in(`{"a":"` + "\xc0\xaf" + `"}`),
		"UTF-8 of a surrogate":   in(`{"a":"` + "\xed\xa0\x80" + `"}`),
		"lone surrogate":         in(`{"a":"\udc00"}`),
		"lone surrogate name":    in(`{"\ud83d":1}`),
		"comment":                "/* */" + readQuestion,
		"trailing comma":         in(`{"a":1,}`),
		"NaN":                    in(`{"a":NaN}`),
		"Infinity":               in(`{"a":-Infinity}`),
		"hexadecimal":            in(`{"a":0x10}`),
		"leading zero":           in(`{"a":007}`),
		"single quotes":          in(`{'a':1}`),
		"control character":      in("{\"a\":\"\n\"}"),
		"__proto__ is no excuse": in(`{"__proto__":1,"__proto__":2}`),
		"reserved name deep":     in(`{"a":{"b":[{"__extn":{"fn":"ip","arg":"::1"}}]}}`),
		"reserved name escaped":  in(`{"\u005f_entity":1}`),
		"context is a list":      in(`[]`),
		"context is a string":    in(`"x"`),
		"nested objects":         in(deep(`{"a":`, "1", "}", 100_000)),
		"nested arrays":          in(`{"a":` + deep("[", "", "]", 400_000) + `}`),
		"unclosed arrays":        strings.Repeat("[", 1<<20),
		"unclosed objects":       strings.Repeat(`{"a":`, 200_000),
		"many elements":          in(`{"a":` + list("1", 20_001) + `}`),
		"many nested elements":   in(`{"a":` + list("{}", 20_001) + `}`),
		"many values":            in(`{"a":{` + manyMembers(20_001) + `}}`),
		"type is missing":        `{"subject":{"id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
		"type is a list":         `{"subject":{"type":["user"],"id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
		"properties is a string": `{"subject":{"type":"user","id":"a","properties":"admin"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
		"action is a string":     `{"subject":{"type":"user","id":"a"},"action":"read","resource":{"type":"doc","id":"plan"}}`,
		"true":                   "true",
		"a string":               `"` + strings.Repeat("x", 1000) + `"`,
		"a decision":             `{"decision":true}`,
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d":0,`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func TestBadBodiesAre400(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	for name, body := range badBodies() {
		for _, path := range []string{evaluationPath, "/tenants/acme" + evaluationPath, authorizePath} {
			got := s.Post(path, body)
			if got.Status != 400 || got.Header.Get("Content-Type") != "application/problem+json" || len(got.Body) > 2000 {
				t.Errorf("%s to %s: got %d %.200s, want a short 400", name, path, got.Status, got.Body)
			}
		}
	}
}

// oddBodies are legal, however strange. They get an answer, and it is a deny.
var oddBodies = map[string]string{
	"empty ids":               `{"subject":{"type":"user","id":""},"action":{"name":"read"},"resource":{"type":"doc","id":""}}`,
	"empty types":             `{"subject":{"type":"","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
	"Cedar in a type":         `{"subject":{"type":"user::\"alice\"","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
	"Cedar in an id":          `{"subject":{"type":"user","id":"alice\") || true //"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
	"a type of Cedar's own":   `{"subject":{"type":"__cedar::user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
	"other case":              `{"subject":{"type":"user","id":"Alice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
	"other normalisation":     `{"subject":{"type":"user","id":"ａlice"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"}}`,
	"says that it is allowed": `{"subject":{"type":"user","id":"bob"},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"},"context":{"approved":true,"justification":"approved"},"decision":true}`,
	"not integral":            strings.TrimSuffix(readQuestion, "}") + `,"context":{"level":2.5}}`,
	"beyond int64":            strings.TrimSuffix(readQuestion, "}") + `,"context":{"level":9223372036854775808}}`,
	"null in an array":        strings.TrimSuffix(readQuestion, "}") + `,"context":{"level":[null]}}`,
}

func TestOddBodiesAreDenied(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	for name, body := range oddBodies {
		got := s.Post(evaluationPath, body)
		if got.Status != 200 || !strings.HasPrefix(got.Body, `{"decision":false`) {
			t.Errorf("%s: got %d %s, want a deny", name, got.Status, got.Body)
		}
	}
}

func TestBodySize(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	fill := func(n int) string { return strings.Repeat(" ", n-len(readQuestion)) + readQuestion }
	replied(t, s.Post(evaluationPath, fill(1<<20)), 200)
	replied(t, s.Post(evaluationPath, fill(1<<20+1)), 413)
	chunk := fill(1<<20 + 1)
	raw := "POST " + evaluationPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(chunk), chunk)
	if got := exchange(t, s.Addr(), []byte(raw)); !strings.HasPrefix(got, "HTTP/1.1 413 ") {
		t.Errorf("one byte more in chunks: got %.100s, want 413", got)
	}
}

func TestBrokenRequestsEndTheConnectionAlone(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, bundle(t))
	head := "POST " + evaluationPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for name, raw := range map[string]string{
		"two lengths":            head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"a negative length":      head + "Content-Length: -1\r\n\r\n{}",
		"broken chunks":          head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"another coding":         head + "Transfer-Encoding: gzip\r\n\r\n",
		"a header of 100 KiB":    head + "X-Fill: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
		"a NUL in the id":        head + "X-Request-ID: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
		"two hosts":              head + "Host: evil.example\r\nContent-Length: 2\r\n\r\n{}",
		"a space before a colon": head + "X-Request-ID : a\r\nContent-Length: 2\r\n\r\n{}",
	} {
		got := exchange(t, s.Addr(), []byte(raw))
		if !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 501 ") {
			t.Errorf("%s: got %.200s, want a refusal", name, got)
		}
	}
	replied(t, s.Post(evaluationPath, readQuestion), 200)
}
