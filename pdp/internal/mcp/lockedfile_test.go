package mcp_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// A lock that is accepted while the gateway runs counts at once, and a file that cannot be used changes nothing.
func TestTheLockIsFollowed(t *testing.T) {
	t.Parallel()
	s := newLockedSiege(t, mcp.LockEnforce)
	v := s.visitor("modern", nil)
	s.server.says("Be kind.", changedAlpha, beta)
	if got := v.call("alpha", `{}`); got.code() != -32602 {
		t.Fatal(got)
	}
	first, err := os.ReadFile(s.file)
	orFail(t, err)
	accepted, err := mcp.Survey(t.Context(), s.config, mcp.Deps{}, "")
	orFail(t, err)
	orFail(t, accepted.Write(s.file))
	s.clock.Advance(time.Second)
	if got := v.call("alpha", `{"marker":"accepted"}`); !got.ran() || s.gateway.Ready() != nil {
		t.Errorf("what is accepted: %s, ready is %v", got, s.gateway.Ready())
	}
	for what, content := range map[string]string{"is cut off": string(first[:100]), "lacks the server": "{\n  \"version\": 1,\n  \"servers\": {}\n}\n"} {
		orFail(t, os.WriteFile(s.file, []byte(content), 0o600))
		s.clock.Advance(time.Second)
		if got := v.call("alpha", `{"marker":"broken"}`); !got.ran() {
			t.Errorf("the file %s: %s", what, got)
		}
		if err := s.gateway.Ready(); err == nil || !strings.Contains(err.Error(), s.file) || !strings.Contains(s.logs.String(), "what was locked before stays locked") {
			t.Errorf("the file %s: ready is %v", what, err)
		}
	}
	orFail(t, os.Remove(s.file))
	s.clock.Advance(time.Second)
	if got := v.call("alpha", `{"marker":"gone"}`); !got.ran() || s.gateway.Ready() == nil {
		t.Errorf("the file is gone: %s", got)
	}
	orFail(t, os.WriteFile(s.file, first, 0o600))
	s.clock.Advance(time.Second)
	if got := v.call("alpha", `{"marker":"taken back"}`); got.code() != -32602 || !strings.Contains(s.logs.String(), "the lock of tools can be used again") {
		t.Errorf("what is taken back: %s", got)
	}
}

// A gateway whose lock cannot be used does not start, and names the remedy.
func TestStartWithTheLock(t *testing.T) {
	t.Parallel()
	s := newLockedSiege(t, mcp.LockEnforce)
	s.server.says("", strings.Replace(beta, "beta", "look", 1), strings.Replace(beta, "beta", "Look", 1))
	found, err := mcp.Survey(t.Context(), s.config, mcp.Deps{}, "")
	orFail(t, err)
	alike := s.file + ".alike"
	orFail(t, found.Write(alike))
	for what, test := range map[string]struct {
		change func(c *mcp.Config)
		says   string
	}{
		"no file":       {func(c *mcp.Config) { c.Lock.File += ".none" }, "write it with: policy-service mcp lock --accept"},
		"no server":     {func(c *mcp.Config) { c.Upstreams = map[string]mcp.UpstreamConfig{"jira": c.Upstreams["rec"]} }, "--accept --server jira"},
		"a mode alone":  {func(c *mcp.Config) { c.Lock = mcp.LockConfig{Mode: mcp.LockEnforce} }, "nothing would be locked"},
		"no such mode":  {func(c *mcp.Config) { c.Lock.Mode = "strict" }, "enforce, warn, off"},
		"alike":         {func(c *mcp.Config) { c.Lock.File = alike }, `"Look" and "look", which clients and people take for one; hide one of them`},
		"alike, warned": {func(c *mcp.Config) { c.Lock = mcp.LockConfig{File: alike, Mode: mcp.LockWarn} }, "hide one of them"},
		"alike, hidden": {func(c *mcp.Config) {
			u := c.Upstreams["rec"]
			u.Tools = map[string]mcp.ToolConfig{"look": {Hidden: true}}
			c.Lock.File, c.Upstreams = alike, map[string]mcp.UpstreamConfig{"rec": u}
		}, ""},
		"no file, warned": {func(c *mcp.Config) { c.Lock.File += ".none"; c.Lock.Mode = mcp.LockWarn }, ""},
		"no file, off":    {func(c *mcp.Config) { c.Lock.File += ".none"; c.Lock.Mode = mcp.LockOff }, ""},
		"neither":         {func(c *mcp.Config) { c.Lock = mcp.LockConfig{} }, ""},
	} {
		c := s.config
		test.change(&c)
		g, err := mcp.New(t.Context(), c, mcp.Deps{})
		if err == nil {
			orFail(t, g.Ready())
			orFail(t, g.Close())
		}
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A tool that the operator hides may change.
func TestAHiddenToolDriftsUnnoticed(t *testing.T) {
	t.Parallel()
	s := newLockedSiege(t, mcp.LockEnforce)
	c := s.config
	u := c.Upstreams["rec"]
	u.Tools = map[string]mcp.ToolConfig{"alpha": {Hidden: true}}
	c.Upstreams = map[string]mcp.UpstreamConfig{"rec": u}
	s.config = c
	g, at := s.beside()
	s.url = at
	v := s.visitor("legacy", nil)
	s.server.says("Be kind.", changedAlpha, beta)
	if got, _ := v.tools(); strings.Join(got, " ") != "beta" || g.Ready() != nil {
		t.Errorf("listed %q, ready is %v", got, g.Ready())
	}
}

// TestSurvey asks servers over HTTP and over standard streams, of either era.
func TestSurvey(t *testing.T) {
	t.Parallel()
	server := &turncoat{}
	server.asAtFirst()
	var files []string
	for _, era := range eras {
		for _, program := range []bool{false, true} {
			s := newSiege(t, camp{answers: mcptest.Answers{Handle: server.handle, Eras: []string{era}}, program: program})
			found, err := mcp.Survey(t.Context(), s.config, mcp.Deps{}, "")
			orFail(t, err)
			if tools := found.Servers["rec"].Tools; len(tools) != 2 || found.Servers["rec"].Instructions != "Be kind." || tools["alpha"].Digest() == "" {
				t.Errorf("found %s", found.Text())
			}
			files = append(files, string(found.Text()))
			s.untouched(t)
		}
	}
	if len(slices.Compact(files)) != 1 {
		t.Errorf("found %q", files)
	}
	s := newSiege(t, camp{})
	for what, change := range map[string]func(u *mcp.UpstreamConfig){
		"did not answer": func(u *mcp.UpstreamConfig) { u.URL = "http://127.0.0.1:1/mcp" },
		"--token-file": func(u *mcp.UpstreamConfig) {
			u.Auth.TokenExchange = &mcp.TokenEndpoint{TokenURL: "https://idp.example.com", ClientID: "g", ClientSecretFile: "none", Audience: "x"}
		},
	} {
		c, u := s.config, s.config.Upstreams["rec"]
		change(&u)
		c.Upstreams = map[string]mcp.UpstreamConfig{"rec": u}
		if found, err := mcp.Survey(t.Context(), c, mcp.Deps{}, ""); err == nil || !strings.Contains(err.Error(), "upstreams.rec: ") || !strings.Contains(err.Error(), what) || len(found.Servers) > 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A drift is on the PDP's record once.
func TestDriftIsOnRecord(t *testing.T) {
	t.Parallel()
	s := newLockedSiege(t, mcp.LockEnforce)
	s.server.says("Be kind.", changedAlpha, beta)
	for _, sub := range []string{"alice", "bob"} {
		_, _ = s.visitor("modern", mcptest.Claims{"sub": sub}).tools()
	}
	orFail(t, s.gateway.Close()) // which waits for the records
	var found []string
	for _, line := range s.records() {
		if strings.Contains(line.line, `"tool_drift"`) {
			found = append(found, line.line)
		}
	}
	if len(found) != 1 || !strings.Contains(found[0], `"alpha"`) || !strings.Contains(found[0], `"description"`) {
		t.Errorf("on record are %q", found)
	}
}
