package mcptest

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Job is what a client is to do: to list the tools, and then to make calls.
type Job struct {
	URL     string
	Headers map[string]string
	Calls   []ToolCall
	// Asked answers what the client is asked in the course of a call: from the params of elicitation/create, the result. A
	// client that has nobody to ask says so; nil is nobody. The Inspector never has.
	Asked func(params jsontext.Value) (result string)
	// Takes says in which ways the client asks, as its capability elicitation. "" is by forms and addresses.
	Takes string
}

// ToolCall is one use of a tool.
type ToolCall struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments,omitempty"`
}

// Seen is what a client shows of a server.
type Seen struct {
	// Version is the revision that they speak; "" if the client does not tell.
	Version string   `json:"version"`
	Tools   []string `json:"tools"`
	Answers []Answer `json:"answers"`
}

// Answer is what a client shows of the answer to a call: a result, or an error.
type Answer struct {
	Result jsontext.Value `json:"result"`
	// Code is 0 if there is no error, or if the client does not tell.
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data"`
	// Progress are the messages of progress of the call.
	Progress []string `json:"progress"`
}

// Client is a client of others.
type Client struct {
	Name string
	// Version is the revision that it speaks with a server of both eras.
	Version string
	// TellsCode reports whether it shows code and data of an error.
	TellsCode bool

	run func(t testing.TB, j Job) (Seen, error)
}

// Run has the client do a job.
func (c Client) Run(t testing.TB, j Job) Seen {
	t.Helper()
	seen, err := c.run(t, j)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	return seen
}

// Clients are all clients: both of TypeScript, and the command line of the Inspector in both eras.
func (o *Others) Clients() []Client {
	return []Client{
		{"ts1", "2025-11-25", true, o.script("ts1.mjs")},
		{"ts2", modern, true, o.script("ts2.mjs")},
		{"inspector-legacy", "", false, o.inspector("legacy")},
		{"inspector-modern", "", false, o.inspector("modern")},
	}
}

// serveAsked is where a client in another process says what it is asked, and gets the result.
func (j Job) serveAsked(t testing.TB) (url string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		params, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, j.Asked(params))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func (o *Others) script(name string) func(testing.TB, Job) (Seen, error) {
	return func(t testing.TB, j Job) (seen Seen, err error) {
		job := map[string]any{"url": j.URL, "headers": j.Headers, "calls": append([]ToolCall{}, j.Calls...)}
		if j.Asked != nil {
			job["asked"], job["takes"] = j.serveAsked(t), jsontext.Value(cmp.Or(j.Takes, `{"form":{},"url":{}}`))
		}
		text, err := json.Marshal(job)
		if err != nil {
			return seen, err
		}
		out, _, err := output(o.command(t.Context(), name, string(text)))
		if err != nil {
			return seen, err
		}
		return seen, json.Unmarshal(out, &seen)
	}
}

// inspector runs the Inspector once for the list and once for each call. Of an error it shows the message alone.
func (o *Others) inspector(era string) func(testing.TB, Job) (Seen, error) {
	return func(t testing.TB, j Job) (seen Seen, err error) {
		home := t.TempDir()
		run := func(args ...string) (out, said []byte, err error) {
			args = append([]string{"--cli", j.URL, "--transport", "http", "--protocol-era", era, "--format", "json", "--quiet"}, args...)
			for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
				args = append(args, "--header", name+": "+j.Headers[name])
			}
			c := o.command(t.Context(), o.program("mcp-inspector"), args...)
			c.Env = append(c.Environ(), "HOME="+home)
			return output(c)
		}
		out, _, err := run("--method", "tools/list")
		if err != nil {
			return seen, err
		}
		var list struct {
			Result struct {
				Tools []struct {
					Name string `json:"name"`
				} `json:"tools"`
			} `json:"result"`
		}
		if err := json.Unmarshal(out, &list); err != nil {
			return seen, err
		}
		for _, tool := range list.Result.Tools {
			seen.Tools = append(seen.Tools, tool.Name)
		}
		for _, call := range j.Calls {
			arguments, err := json.Marshal(call.Arguments)
			if err != nil {
				return seen, err
			}
			out, said, err := run("--method", "tools/call", "--tool-name", call.Name, "--tool-args-json", string(arguments))
			answer, err := inspected(out, said, err)
			if err != nil {
				return seen, err
			}
			seen.Answers = append(seen.Answers, answer)
		}
		return seen, nil
	}
}

// inspected reads what the Inspector shows: a result on standard output, or an error on the other, with a status that is
// not 0. It also has such a status for a result that says isError.
func inspected(out, said []byte, err error) (a Answer, _ error) {
	var failed *failure
	if err != nil && !errors.As(err, &failed) {
		return a, err
	}
	if len(bytes.TrimSpace(out)) > 0 {
		return a, json.Unmarshal(out, &a)
	}
	lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
	var told struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(lines[len(lines)-1], &told); err != nil {
		return a, errors.New("the Inspector says " + string(said))
	}
	return Answer{Message: told.Error.Message}, nil
}

// failure is a program that ended with another status than 0.
type failure struct{ of, said string }

func (f *failure) Error() string { return f.of + "\n" + f.said }

func output(c *exec.Cmd) (out, said []byte, err error) {
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	err = c.Run()
	if status := (*exec.ExitError)(nil); errors.As(err, &status) {
		err = &failure{strings.Join(c.Args[1:min(3, len(c.Args))], " ") + ": " + status.String(), e.String()}
	}
	return o.Bytes(), e.Bytes(), err
}
