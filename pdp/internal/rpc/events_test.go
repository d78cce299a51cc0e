package rpc_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/night"
)

// all reads the data of all events.
func all(r io.Reader, most int) (data []string, err error) {
	for events := rpc.NewEvents(r, most); ; {
		one, err := events.Next()
		if err != nil {
			_, again := events.Next()
			if again != err {
				return data, errors.New("the error did not come again")
			}
			return data, err
		}
		data = append(data, string(one))
	}
}

func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   []string
		err    error
	}{
		"one":                 {"data: a\n\n", []string{"a"}, io.EOF},
		"CR LF":               {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}, io.EOF},
		"CR":                  {"data: a\r\rdata: b\r\r", []string{"a", "b"}, io.EOF},
		"mixed ends":          {"data: a\r\n\rdata: b\n\r\n", []string{"a", "b"}, io.EOF},
		"CR LF within":        {"data: a\r\ndata: b\r\n\r\n", []string{"a\nb"}, io.EOF},
		"BOM":                 {"\uFEFFdata: a\n\n", []string{"a"}, io.EOF},
		"BOM later":           {"data: a\n\n\uFEFFdata: b\n\n", []string{"a"}, io.EOF},
		"BOM alone":           {"\uFEFF\n\ndata: a\n\n", []string{"a"}, io.EOF},
		"no space":            {"data:a\n\ndata:  b\n\n", []string{"a", " b"}, io.EOF},
		"many lines":          {"data: a\ndata\ndata: b\n\n", []string{"a\n\nb"}, io.EOF},
		"other name":          {"event: other\nid: 1\nretry: 5\ndata: a\n\n", []string{"a"}, io.EOF},
		"comments":            {":\n: data: x\n\ndata: a\n:x\ndata: b\n\n", []string{"a\nb"}, io.EOF},
		"no data":             {"id: 1\ndata:\n\nevent: x\n\ndata\n\n", nil, io.EOF},
		"other fields":        {"dat: a\ndatax: b\nDATA: c\n data: d\ndata : e\n\n", nil, io.EOF},
		"ends early":          {"data: a\n\ndata: b\n", []string{"a"}, io.EOF},
		"ends in a line":      {"data: a\n\ndata: b", []string{"a"}, io.EOF},
		"separator in text":   {"data: a\u2028\v\f\u0085\n\n", []string{"a\u2028\v\f\u0085"}, io.EOF},
		"just fits":           {"data: 12345678\n\n", []string{"12345678"}, io.EOF},
		"too large":           {"data: 123456789\n\n", nil, rpc.ErrTooLarge},
		"too large, no end":   {"data: 1234567890123456789", nil, rpc.ErrTooLarge},
		"too large in lines":  {strings.Repeat("data:1\n", 5), nil, rpc.ErrTooLarge},
		"too large by line":   {strings.Repeat("data:\n", 20), nil, rpc.ErrTooLarge},
		"long comment":        {":" + strings.Repeat("x", 1<<16) + "\ndata: a\n\n", []string{"a"}, io.EOF},
		"long name":           {strings.Repeat("data", 1<<14) + ": x\ndata: a\n\n", []string{"a"}, io.EOF},
		"one, then too large": {"data: a\n\ndata: 123456789012345678\n\n", []string{"a"}, rpc.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":      strings.NewReader(c.stream),
				"byte by byte": iotest.OneByteReader(strings.NewReader(c.stream)),
				"half by half": iotest.HalfReader(strings.NewReader(c.stream)),
			} {
				if got, err := all(r, 8); !slices.Equal(got, c.want) || err != c.err {
					t.Errorf("%s: %q, %v; want %q, %v", how, got, err, c.want, c.err)
				}
			}
		})
	}
}

// An event is there when it has ended, also where a CR ends it that an LF could follow.
func TestEventsDoNotWait(t *testing.T) {
	for _, stream := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		in, out := io.Pipe()
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = out.Write([]byte(stream))
		}()
		events := rpc.NewEvents(in, 100)
		if got, err := events.Next(); err != nil || string(got) != "a" { // the pipe stays open: waiting would hang
			t.Errorf("%q: %q, %v", stream, got, err)
		}
		<-written
		go func() {
			_, _ = out.Write([]byte("\ndata: b\n\n"))
			_ = out.Close()
		}()
		if got, err := events.Next(); err != nil || string(got) != "b" {
			t.Errorf("after %q: %q, %v", stream, got, err)
		}
	}
}

// repeated is a stream that says the same again and again.
type repeated struct {
	text []byte
	left int
}

func (r *repeated) Read(b []byte) (n int, err error) {
	for n < len(b) && r.left > 0 {
		k := min(copy(b[n:], r.text), r.left)
		n, r.left = n+k, r.left-k
		if k < len(r.text) {
			break
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// endless are texts of a stream without an event.
var endless = map[string]string{
	"comment lines": ": keep alive " + strings.Repeat("x", 500) + "\n",
	"one comment":   ":" + strings.Repeat("x", 500),
	"other lines":   "id: " + strings.Repeat("x", 500) + "\r\n\r",
}

// reads reads so many bytes that are no event.
func reads(t *testing.T, name, text string, size int) {
	t.Helper()
	if got, err := all(&repeated{bytes.Repeat([]byte(text), 16), size}, 1<<20); len(got) != 0 || err != io.EOF {
		t.Errorf("%s: %q, %v", name, got, err)
	}
}

func TestEndlessEvents(t *testing.T) {
	for name, text := range endless {
		reads(t, name, text, 1<<22)
	}
}

func TestEventsAreFlat(t *testing.T) {
	night.Measures(t)
	for name, text := range endless {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reads(t, name, text, 1<<30)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("%s: %d bytes", name, used)
		}
	}
}

func TestAppendEvent(t *testing.T) {
	m, fault := parse("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\r\n\"a\":\r\"x\\n\\ndata: y\\r\u2028\",\n\"b\":[\n]}}")
	if fault != nil {
		t.Fatal(fault)
	}
	got := string(rpc.AppendEvent([]byte("x"), m))
	want := "xevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{  \"a\": \"x\\n\\ndata: y\\r\u2028\", \"b\":[ ]}}\n\n"
	if got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: message\r\nid: 1\r\ndata: {}\r\n\r\n: x\rdata:a\ndata\n\n"))
	f.Add([]byte("\uFEFFdata: a\n\n\r\rdatax\ndata:\n\n"))
	f.Add([]byte("data: 123456789012345678901234567890\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		const most = 24
		once, err := all(bytes.NewReader(stream), most)
		byByte, err2 := all(iotest.OneByteReader(bytes.NewReader(stream)), most)
		if !slices.Equal(once, byByte) || err != err2 {
			t.Fatalf("%q is %q (%v) at once and %q (%v) byte by byte", stream, once, err, byByte, err2)
		}
		if err != io.EOF && err != rpc.ErrTooLarge {
			t.Fatal(err)
		}
		for _, data := range once {
			if len(data) == 0 || len(data) > most || strings.Contains(data, "\r") {
				t.Fatalf("%q has the event %q", stream, data)
			}
		}
	})
}
