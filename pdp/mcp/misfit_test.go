package mcp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/lock"
	"policy-service/pdp/mcp/mcptest"
)

const (
	misfitSchema = `{"type":"object","properties":{"amount":{"type":"integer","maximum":9007199254740993},"to":{"enum":["a","b"]},"ids":{"type":"array","items":{"type":"string"}},
		"more":{"type":"object","properties":{"x":{}}}},"required":["amount"]}`
	misfitPolicies = `@id("all") permit(principal, action, resource) unless { action == Action::"tool.invoke" };
		@id("pay") permit(principal, action == Action::"tool.invoke", resource) when { resource == tool::"rec:pay" || resource in [tool::"rec:costly", tool::"rec:elsewhere"] };
		@id("small") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:small") when { context.arguments.amount < 100 };
		@id("held") @obligation("approval_required") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:held");
		@id("closed") @reason_user("Not for you.") forbid(principal, action == Action::"tool.invoke", resource == tool::"rec:closed");`
)

// misfitTools are tools by these names that want the same, one whose schema takes too long, and one whose schema leads elsewhere.
func misfitTools() string {
	var all []string
	for _, name := range []string{"pay", "small", "held", "closed"} {
		all = append(all, `{"name":"`+name+`","inputSchema":`+misfitSchema+`}`)
	}
	return "[" + strings.Join(append(all,
		`{"name":"costly","inputSchema":{"type":"object","properties":{"a":{"oneOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}}}}`,
		`{"name":"elsewhere","inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/"}}}}`), ",") + "]"
}

// misfitLock is a file in which all of a list of tools is locked.
func misfitLock(t testing.TB, tools string) string {
	t.Helper()
	var all []jsontext.Value
	orFail(t, json.Unmarshal([]byte(tools), &all))
	locked := map[string]lock.Tool{}
	for _, definition := range all {
		tool, err := lock.ParseTool(definition)
		orFail(t, err)
		locked[tool.Name()] = tool
	}
	file := filepath.Join(t.TempDir(), "tools.lock.json")
	orFail(t, os.WriteFile(file, lock.File{Servers: map[string]lock.Server{"rec": {Tools: locked}}}.Text(), 0o600))
	return file
}

func misfitSiege(t testing.TB, change func(*mcp.Config)) *siege {
	t.Helper()
	tools := misfitTools()
	return newSiege(t, camp{
		policies: map[string]string{"a.cedar": misfitPolicies}, answers: mcptest.Answers{Tools: tools},
		change: func(c *mcp.Config) {
			c.Lock.File = misfitLock(t, tools)
			if change != nil {
				change(c)
			}
		},
	})
}

// misfitText is what a result of a tool says that says that the call failed. It fails if it is no such result of the era.
func misfitText(t testing.TB, era string, got echo) string {
	t.Helper()
	var r struct {
		ResultType string `json:"resultType"`
		IsError    bool   `json:"isError"`
		Content    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if got.result == nil || json.Unmarshal(got.result, &r) != nil || !r.IsError || len(r.Content) != 1 || r.Content[0].Type != "text" || (r.ResultType == "complete") != (era == "modern") || got.finals != 1 {
		t.Fatalf("%s: %s", era, got)
	}
	return r.Content[0].Text
}

// Arguments that do not fit are told of as a result, by places and without values, to who may list the tool. They reach neither
// the server nor, as a question, the PDP.
func TestArgumentsOfLockedTools(t *testing.T) {
	t.Parallel()
	s := misfitSiege(t, nil)
	deep := strings.Repeat(`{"a":`, 11) + `{}` + strings.Repeat(`}`, 11)
	for _, era := range eras {
		v := s.visitor(era, nil)
		for _, c := range []struct{ tool, arguments, want string }{
			{"pay", `{"amount":"MARKED"}`, "/amount: is of type string, and must be of type integer"},
			{"pay", `{"amount":1.5}`, "/amount: is of type number, and must be of type integer"},
			{"pay", `{"amount":9007199254740994}`, "/amount: does not fit the schema's maximum"},
			{"pay", `{}`, "/amount: is missing"},
			{"pay", `{"amount":null,"to":"MARKED"}`, "/amount: is of type null, and must be of type integer\n/to: does not fit the schema's enum"},
			{"pay", `{"amount":1,"ids":["a",{"MARKED":"MARKED"}]}`, "/ids/1: is of type object, and must be of type string"},
			{"small", `{"amount":"MARKED"}`, "/amount: is of type string, and must be of type integer"},
			{"held", `{"amount":"MARKED"}`, "/amount: is of type string, and must be of type integer"},
			{"costly", deep, "takes too long"},
		} {
			if text := misfitText(t, era, v.call(c.tool, c.arguments)); !strings.HasSuffix(text, c.want) || strings.Contains(text, "MARKED") {
				t.Errorf("%s, %s with %s: %s", era, c.tool, c.arguments, text)
			}
		}
		if text := misfitText(t, era, v.ask("tools/call", `{"name":"pay"}`)); !strings.HasSuffix(text, "/amount: is missing") {
			t.Error(text)
		}
		if text := misfitText(t, era, v.retry("pay", `{"amount":"MARKED"}`, `"forged"`, `{}`)); !strings.HasSuffix(text, "must be of type integer") {
			t.Error(text)
		}
		for _, arguments := range []string{`null`, `[]`, `"MARKED"`, `7`} {
			if got := v.call("pay", arguments); got.code() != -32602 || strings.Contains(got.text, "MARKED") {
				t.Errorf("%s, %s: %s", era, arguments, got)
			}
		}
		// The schema is no secret to who may call the tool with other arguments. To others it is: all their calls are alike.
		fits, misfits, unknown := v.call("closed", `{"amount":1}`), v.call("closed", `{"amount":"MARKED"}`), v.call("none", `{"amount":"MARKED"}`)
		if fits.code() != -32001 || misfits.fault == nil || misfits.fault.Message != fits.fault.Message || string(misfits.fault.Data) != string(fits.fault.Data) {
			t.Errorf("%s: %s and %s", era, fits, misfits)
		}
		if unknown.code() == fits.code() {
			t.Errorf("%s: %s and %s", era, fits, unknown)
		}
		if got := v.ask("tools/list", `{}`); !strings.Contains(got.text, `"pay"`) || !strings.Contains(got.text, `"elsewhere"`) || strings.Contains(got.text, `"closed"`) {
			t.Errorf("%s: %s", era, got)
		}
	}
	s.untouched(t)
	if logs := s.logs.String(); strings.Contains(logs, "MARKED") || !strings.Contains(logs, "inputSchema refers to http://127.0.0.1:1/") {
		t.Error("the log quotes a value, or does not say whose arguments go unjudged")
	}
	if n := strings.Count(s.logs.String(), "are not held against its inputSchema"); n != 1 {
		t.Errorf("the log says %d times whose arguments go unjudged", n)
	}
	for _, era := range eras {
		v := s.visitor(era, nil)
		for _, fits := range []string{`{"amount":9007199254740993,"to":"a","other":{"x":null}}`, `{"amount":1e2}`, `{"amount":1.0,"more":{"y":1}}`} {
			if got := v.call("pay", fits); !got.ran() {
				t.Errorf("%s: %s", fits, got)
			}
		}
		if got := v.call("small", `{"amount":100}`); got.code() != -32001 {
			t.Error(got)
		}
		if got := v.call("elsewhere", `{"a":1}`); !got.ran() {
			t.Error(got)
		}
	}
	for _, r := range s.records() {
		if strings.Contains(r.line, "MARKED") && !strings.Contains(r.line, `"rec:closed"`) {
			t.Errorf("it was asked: %s", r.line)
		}
	}
}

// In a closed schema, members that are not listed do not fit.
func TestClosedArguments(t *testing.T) {
	t.Parallel()
	s := misfitSiege(t, func(c *mcp.Config) { c.Arguments = mcp.ArgumentsClosed })
	for _, era := range eras {
		v := s.visitor(era, nil)
		text := misfitText(t, era, v.call("pay", `{"amount":1,"Amount":2,"to\u202e\n":"MARKED"}`))
		for _, want := range []string{"/Amount: is not a member that the schema lists", `/to\u202e\u000a: is not`} {
			if !strings.Contains(text, want) || strings.Contains(text, "MARKED") {
				t.Errorf("%s: %s", era, text)
			}
		}
		if text := misfitText(t, era, v.call("pay", `{"amount":1,"more":{"y":"MARKED"}}`)); !strings.HasSuffix(text, "/more/y: is not a member that the schema lists") {
			t.Errorf("%s: %s", era, text)
		}
		// A tool whose schema cannot be read takes no arguments that could be unlisted: it is not there.
		got, unknown := v.call("elsewhere", `{"a":1}`), v.call("none", `{"a":1}`)
		if got.fault == nil || got.code() != unknown.code() || got.fault.Message != unknown.fault.Message || string(got.fault.Data) != string(unknown.fault.Data) {
			t.Errorf("%s: %s and %s", era, got, unknown)
		}
		if got := v.ask("tools/list", `{}`); strings.Contains(got.text, `"elsewhere"`) {
			t.Errorf("%s: %s", era, got)
		}
	}
	s.untouched(t)
	if got := s.visitor("modern", nil).call("pay", `{"amount":1,"more":{"x":1}}`); !got.ran() {
		t.Error(got)
	}
}

// Only what is as it is locked is held against its schema. Each such call counts as invalid.
func TestMisfitsAreCounted(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	changed := `[{"name":"pay","description":"new","inputSchema":{"type":"object","properties":{"amount":{"type":"integer"}}}},{"name":"small","inputSchema":` + misfitSchema + `}]`
	s := newSiege(t, camp{
		answers: mcptest.Answers{Tools: changed}, deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))},
		change: func(c *mcp.Config) { c.Lock = mcp.LockConfig{File: misfitLock(t, misfitTools()), Mode: mcp.LockWarn} },
	})
	for _, era := range eras {
		v := s.visitor(era, nil)
		if got := v.call("pay", `{"amount":"text"}`); !got.ran() {
			t.Errorf("%s: %s", era, got)
		}
		misfitText(t, era, v.call("small", `{"amount":"text"}`))
	}
	var all metricdata.ResourceMetrics
	orFail(t, reader.Collect(t.Context(), &all))
	if got := fmt.Sprint(callsCounted(all, "tools/call")); got != "map[answered:2 invalid:2]" {
		t.Error(got)
	}
}

// callsCounted are the requests of a method, by how they ended.
func callsCounted(all metricdata.ResourceMetrics, method string) map[string]int64 {
	counts := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "policy_service.mcp.calls" {
				continue
			}
			for _, p := range sum.DataPoints {
				of, _ := p.Attributes.Value("method")
				how, _ := p.Attributes.Value("outcome")
				if of.AsString() == method {
					counts[how.AsString()] += p.Value
				}
			}
		}
	}
	return counts
}
