package sdkpep

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Strict stands before the SDK's handler for HTTP, and refuses messages that two readers could read differently: with a
// member twice, at any depth, or in another case than JSON-RPC has it; with bytes that are no UTF-8; with something
// after the message; a batch; an id that a float64 cannot hold, or null; a request without an id; two Authorization
// headers. All else it hands on as it came. Most is the size of a message in bytes; 0 is 4 MiB, as the SDK has it.
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
			next.ServeHTTP(w, r)
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

const (
	parseError     = -32700
	invalidRequest = -32600
)

// check says what is wrong with a message; code 0 is nothing.
func check(body []byte) (code int, detail string) {
	var message map[string]jsontext.Value
	switch kind := jsontext.Value(bytes.TrimLeft(body, " \t\r\n")).Kind(); {
	case kind == '[':
		return invalidRequest, "batches are not taken; send one message"
	case kind != '{' || json.Unmarshal(body, &message) != nil:
		return parseError, "this is not one JSON object without ambiguities"
	}
	members := []string{"jsonrpc", "id", "method", "params", "result", "error"}
	for name := range message {
		if lower := strings.ToLower(name); lower != name && slices.Contains(members, lower) {
			return invalidRequest, "a member is spelt in another case than JSON-RPC has it"
		}
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
