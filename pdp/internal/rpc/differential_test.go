package rpc_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"policy-service/pdp/internal/rpc"
)

// sameEverywhere fails if another reader reads a message that Parse has taken otherwise.
func sameEverywhere(t *testing.T, text []byte, m rpc.Message) {
	t.Helper()
	var std struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(text, &std); err != nil {
		t.Fatalf("encoding/json does not read %q: %v", text, err)
	}
	if id, _ := rpc.ReadID(jsontext.Value(std.ID)); std.Method != m.Method || id != m.ID ||
		!bytes.Equal(std.Params, m.Params) || !bytes.Equal(std.Result, m.Result) || !bytes.Equal(std.Error, m.Error) {
		t.Fatalf("encoding/json reads %q as %+v, we as %+v", text, std, m)
	}
	other, err := jsonrpc.DecodeMessage(text)
	if err != nil {
		t.Fatalf("the SDK does not read %q: %v", text, err)
	}
	switch other := other.(type) {
	case *jsonrpc.Request:
		if other.Method != m.Method || other.ID.IsValid() != m.IsRequest() || !bytes.Equal(other.Params, m.Params) || !sameID(other.ID, m.ID) {
			t.Fatalf("the SDK reads %q as %+v, we as %+v", text, other, m)
		}
	case *jsonrpc.Response:
		if !m.IsResponse() || (other.Error != nil) != (m.Error != nil) || !bytes.Equal(other.Result, m.Result) || !sameID(other.ID, m.ID) {
			t.Fatalf("the SDK reads %q as %+v, we as %+v", text, other, m)
		}
	}
}

// sameID reports whether the SDK reads an id as we do. It holds numbers as doubles.
func sameID(other jsonrpc.ID, id rpc.ID) bool {
	switch raw := other.Raw().(type) {
	case string:
		s, ok := id.Unquoted()
		return ok && s == raw
	case int64:
		var f float64
		_ = json.Unmarshal(id.Text(), &f)
		return int64(f) == raw
	}
	return id.IsZero()
}

// throughEvents fails if a message is another one after a stream of events.
func throughEvents(t *testing.T, m rpc.Message) {
	t.Helper()
	stream := rpc.AppendEvent(nil, m)
	events := rpc.NewEvents(bytes.NewReader(stream), len(stream))
	data, err := events.Next()
	if err != nil {
		t.Fatalf("%q: %v", stream, err)
	}
	again, fault := rpc.Parse(data)
	if fault != nil || again.ID != m.ID || !equalJSON(again.Append(nil), m.Append(nil)) {
		t.Fatalf("%q became %q", m.Append(nil), data)
	}
	if more, err := events.Next(); err == nil {
		t.Fatalf("%q has two events: %q", stream, more)
	}
}

// splits fails if an object that was read, or one within it, has other members than another reader finds.
func splits(t *testing.T, text jsontext.Value, o rpc.Object) {
	t.Helper()
	var std map[string]json.RawMessage
	if err := json.Unmarshal(text, &std); err != nil || len(std) != o.Len() {
		t.Fatalf("%q has %d members, not %d: %v", text, len(std), o.Len(), err)
	}
	for name, v := range o.Members {
		if !bytes.Equal(std[name], v) {
			t.Fatalf("the member %q of %q is %q, not %q", name, text, std[name], v)
		}
		if inner, err := o.Object(name); err == nil {
			splits(t, v, inner)
		} else if v.Kind() == '{' {
			t.Fatalf("the member %q of %q is no object: %v", name, text, err)
		}
	}
}

func equalJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// Whatever stands in params, results and errors comes out as it came in, and other readers read the same.
func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(19, 2))
	for range 500 {
		inner := object(r, 4)
		f.Add([]byte(call(inner)))
		f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/m","params":` + inner + `}`))
		f.Add([]byte(`{"jsonrpc":"2.0","id":"a","result":` + inner + `}`))
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":` + inner + `}}`))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","inputRequests":{"k":{"method":"m","params":{}}}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"\ud83d\ude00","data":-0}}`))
	f.Add([]byte(`[{"jsonrpc":"2.0","method":"notifications/a"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		m, fault := rpc.Parse(text)
		if !bytes.Equal(before, text) {
			t.Fatal("Parse changed its text")
		}
		if fault != nil {
			if refusal := fault.Failure().Append(nil); !json.Valid(refusal) {
				t.Fatalf("the refusal is no JSON: %s", refusal)
			}
			return
		}
		sameEverywhere(t, text, m)
		throughEvents(t, m)
		written := m.Append(nil)
		again, fault := rpc.Parse(written)
		if fault != nil || !bytes.Equal(again.Append(nil), written) {
			t.Fatalf("%q is written as %q, which is read otherwise: %v", text, written, fault)
		}
		for _, v := range []jsontext.Value{m.Params, m.Result, m.Error} {
			if v == nil {
				continue
			}
			o, err := rpc.ParseObject(v)
			if err != nil || !equalJSON(o.Value(), v) {
				t.Fatalf("%q as an object is %q: %v", v, o.Value(), err)
			}
			splits(t, v, o)
		}
	})
}

// value writes any JSON value that a message may hold, in any of the ways it can be written.
func value(r *rand.Rand, depth int) string {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch r.IntN(kinds) {
	case 0:
		return "null"
	case 1:
		return []string{"true", "false"}[r.IntN(2)]
	case 2:
		return text(r)
	case 3:
		return strconv.FormatInt(r.Int64()-r.Int64(), 10)
	case 4:
		return []string{"0", "1.0", "1e2", "-1E-3", "0.10", "9007199254740993", "18446744073709551616", "1e308"}[r.IntN(8)]
	case 5:
		items := make([]string, r.IntN(4))
		for i := range items {
			items[i] = value(r, depth-1)
		}
		return "[" + space(r) + strings.Join(items, space(r)+",") + "]"
	}
	return object(r, depth-1)
}

// object writes an object, with unknown names.
func object(r *rand.Rand, depth int) string {
	items := make([]string, r.IntN(5))
	for i := range items {
		name := text(r)
		items[i] = `"` + strconv.Itoa(i) + name[1:] + space(r) + ":" + space(r) + value(r, depth)
	}
	return "{" + space(r) + strings.Join(items, space(r)+","+space(r)) + "}"
}

func text(r *rand.Rand) string {
	parts := []string{"a", "é", "e\u0301", "\\u0061", "\\n", "\\\"", "\\/", "/", "\u2028", "😀", "\\ud83d\\ude00", "data: ", " ", "<"}
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return `"` + b.String() + `"`
}

func space(r *rand.Rand) string { return []string{"", "", " ", "\n", "\t", "\r\n"}[r.IntN(6)] }
