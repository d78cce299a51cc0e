package console_test

import (
	"os"
	"testing"
	"time"

	"policy-service/pdp/console/browsertest"
)

func TestZZ(t *testing.T) {
	f := openFlow(t)
	for _, a := range []string{`{"branch":"main","repository":"shop"}`, `{"branch":"hotfix-7","repository":"shop","force":true}`, `{"branch":"release","repository":"shop"}`, `{"branch":"release","repository":"store"}`} {
		f.asksIn("agent-release", "github.push_code", `{"arguments":`+a+`,"purpose":"Release 1.4 of the shop, as agreed in the weekly","on_behalf_of":[{"type":"user","id":"noah"}]}`)
		f.Advance(time.Minute)
	}
	f.asks("agent-x", "aws.terminate_instance", `{"id":"i-1"}`)
	for name, o := range map[string][]browsertest.Option{"wide": {browsertest.Size(1280, 800)}, "narrow": {browsertest.Size(390, 844)}, "dark": {browsertest.Size(1280, 800), browsertest.Dark()}} {
		p := browsertest.Open(t, f.URL, o...)
		p.Goto("/console/login")
		p.Type(f.secret["alice"])
		p.Loads(func() { p.Click("button", "Log in") })
		os.WriteFile("/tmp/w/hIn."+name+".png", p.Screenshot(), 0o600)
	}
}
