package sdkpep

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/auth"
)

// Strict stands before the SDK's handler for HTTP, and refuses messages that two readers could read differently: with a
// member twice, at any depth, or in another case than JSON-RPC has it, or MCP for the object of a request; with bytes that
// are no UTF-8, or that are said to be none; with something after the message; a batch; an id that a float64 cannot hold,
// or null; a request without an id; with a header twice that identifies the message or its sender. All else it hands on as
// it came. Most is the size of a message in bytes; 0 is 4 MiB, as the SDK has it.
//
// A stream that a client opens for messages of the server (GET) ends when the token does.
func Strict(next http.Handler, most int64) http.Handler {
	if most == 0 {
		most = 4 << 20
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values("Authorization")) > 1 {
			http.Error(w, "two Authorization headers; send one", http.StatusUnauthorized)
			return
		}
		if r.Method != http.MethodPost {
			ctx, cancel := expiring(r.Context(), auth.TokenInfoFromContext(r.Context()))
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		if !plain(r.Header) {
			http.Error(w, "the message is not plain JSON in UTF-8, or a header of it comes twice", http.StatusUnsupportedMediaType)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			http.Error(w, "the message is too large", http.StatusRequestEntityTooLarge)
			return
		} else if err != nil {
			http.Error(w, "the message cannot be read", http.StatusBadRequest)
			return
		}
		if code, detail := check(body); code != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":`+strconv.Itoa(code)+`,"message":"`+detail+`"}}`)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// plain reports whether the headers leave no doubt about the form of the body.
func plain(h http.Header) bool {
	for name, values := range h {
		if len(values) > 1 && (name == "Content-Type" || strings.HasPrefix(name, "Mcp-")) {
			return false
		}
	}
	_, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, named := parameters["charset"]
	return err == nil && h.Get("Content-Encoding") == "" && (!named || strings.EqualFold(charset, "utf-8"))
}

const (
	parseError     = -32700
	invalidRequest = -32600
)

// check finds the fault of a message; code 0 is none.
func check(body []byte) (code int, detail string) {
	var message map[string]jsontext.Value
	switch kind := jsontext.Value(bytes.TrimLeft(body, " \t\r\n")).Kind(); {
	case kind == '[':
		return invalidRequest, "batches are not taken; send one message"
	case kind != '{' || json.Unmarshal(body, &message) != nil:
		return parseError, "this is not one JSON object without ambiguities"
	}
	params := members(message["params"])
	if misspelt(message, ofMessages) || misspelt(params, ofParams) || misspelt(members(params["ref"]), ofParams) {
		return invalidRequest, "a member is spelt in another case than JSON-RPC or MCP has it"
	}
	id, has := message["id"]
	method, asks := message["method"]
	if _, answers := message["result"]; asks && answers {
		return invalidRequest, "a message is either a request or a response"
	}
	if has && !exact(id) {
		return invalidRequest, "the id is neither a string nor an integer between -2^53 and 2^53"
	}
	var name string
	if asks && json.Unmarshal(method, &name) != nil {
		return invalidRequest, "the method is not a string"
	}
	if asks && !has && !strings.HasPrefix(name, "notifications/") {
		return invalidRequest, "a request has an id"
	}
	return 0, ""
}

// The members that identify a request. A reader that ignores case finds them under other names too.
var (
	ofMessages = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	ofParams   = []string{"name", "arguments", "uri", "ref", "argument", "type", "_meta"}
)

// misspelt reports whether a member is one of names but for its case.
func misspelt(members map[string]jsontext.Value, names []string) bool {
	for member := range members {
		for _, name := range names {
			if member != name && strings.EqualFold(member, name) {
				return true
			}
		}
	}
	return false
}

// members are those of an object, none of anything else.
func members(v jsontext.Value) (all map[string]jsontext.Value) {
	if v.Kind() == '{' {
		_ = json.Unmarshal(v, &all) // it is valid
	}
	return all
}

// exact reports whether an id comes back as it was sent.
func exact(id jsontext.Value) bool {
	const bound = 1 << 53
	switch id.Kind() {
	case '"':
		return true
	case '0':
		n, err := strconv.ParseInt(string(id), 10, 64)
		return err == nil && n <= bound && n >= -bound
	}
	return false
}
