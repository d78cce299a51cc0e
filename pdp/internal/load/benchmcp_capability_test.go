package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
)

// mcpCapabilityMost is how many times as much CPU of the gateway as one without a call costs that shows a capability.
const mcpCapabilityMost = 1.8

// mcpCapabilityBefore is how many times as much as with the program given by -before.
const mcpCapabilityBefore = 0.97

// mcpCapabilityAtMost is for how long calls with a capability are measured. Each proof is made before, and good for one call.
const mcpCapabilityAtMost = 8 * time.Second

// benchCapability measures calls that show a capability, each with a proof of its own, beside others through one gateway, or
// beside the same calls through the gateway of another program.
func benchCapability(ctx context.Context, s *mcpStage, other string, d time.Duration, out io.Writer) error {
	with, plain, err := s.capabilitySide(ctx)
	if err != nil {
		return err
	}
	sides, most := []*side{with, with}, mcpCapabilityMost
	var listsBeside string
	if other == "" {
		bare, err := s.startProxy(ctx)
		if err != nil {
			return err
		}
		listsBeside = bare.addr
		without := *with
		without.name = "without"
		answer, err := s.ask(ctx, with.target.addr, plain[0])
		if err != nil {
			return err
		}
		without.exchanges, sides[0] = answeredBy(plain[1:], answer), &without
	} else if sides[0], _, err = s.withProgram(other).capabilitySide(ctx); err != nil {
		return err
	} else {
		sides[0].name, most, listsBeside = "before", mcpCapabilityBefore, sides[0].target.addr
	}
	r, over := report{out}, load{connections: mcpConnections}
	r.print("\n%s: calls with %d bytes of arguments and a capability, beside %s", s.t.Name(), mcpArguments, cmp.Or(other, "calls without one"))
	r.head(false)
	if err := measure(ctx, sides, over, min(d, mcpCapabilityAtMost)); err != nil {
		return err
	}
	r.measured(over, sides)
	if ratio := ratio(sides, sample.cpuPerRequest); ratio > most {
		err = fmt.Errorf("a call with a capability costs %.2f times the CPU of %s, the bound is %g", ratio, cmp.Or(other, "one without"), most)
	}
	return errors.Join(err, s.lists(ctx, listsBeside, with.target.addr, r)) // its PDP says of each tool whether it needs one
}

// capabilitySide starts a gateway with a PDP that grants capabilities. Its calls show one; plain calls show none.
func (s *mcpStage) capabilitySide(ctx context.Context) (with *side, plain []exchange, err error) {
	pdp, key, err := s.startGrantingPDP(ctx)
	if err != nil {
		return nil, nil, err
	}
	gateway, err := s.started(s.startGateway(ctx, fmt.Sprintf(`{url: %q, key_file: %q}`, pdp, key)))
	if err != nil {
		return nil, nil, err
	}
	plain = s.calls(1, mcpColdCalls)
	shows, err := s.showing(ctx, pdp, key, gateway.addr)
	if err != nil {
		return nil, nil, err
	}
	answer, err := s.ask(ctx, gateway.addr, shows[0])
	return &side{name: "with", target: target{addr: gateway.addr}, pid: gateway.Process.Pid, exchanges: answeredBy(shows[1:], answer)}, plain, err
}

// startGrantingPDP starts a PDP that grants capabilities. It returns its URL and the file with the gateway's credential.
func (s *mcpStage) startGrantingPDP(ctx context.Context) (url, key string, err error) {
	data := filepath.Join(s.dir, "granting")
	add := exec.CommandContext(ctx, s.binary, "keys", "add", "--data", data, "--name", "gateway",
		"--permission", "decide", "--permission", "search", "--permission", "capability")
	credential, err := add.Output()
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", add, err)
	}
	key = filepath.Join(s.dir, "gateway.key")
	if err := os.WriteFile(key, credential, 0o600); err != nil {
		return "", "", err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0") // its URL is in what it signs, so it has to be known before
	if err != nil {
		return "", "", err
	}
	url = "http://" + free.Addr().String()
	addr := filepath.Join(s.dir, "granting.addr")
	serve := exec.Command(s.binary, "serve", "--policies", s.bundle, "--data", data, "--log-mode", "best_effort",
		"--listen", free.Addr().String(), "--public-url", url, "--addr-file", addr)
	if err := free.Close(); err != nil {
		return "", "", err
	}
	_, err = s.started(start(ctx, serve, addr))
	return url, key, err
}

// showing are calls that show one capability, each with a proof.
func (s *mcpStage) showing(ctx context.Context, pdp, key, gateway string) ([]exchange, error) {
	credential, err := os.ReadFile(key)
	if err != nil {
		return nil, err
	}
	client, err := authzenclient.New(pdp, authzenclient.WithKey(string(credential[:len(credential)-1])))
	if err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	holder, err := capability.NewHolder(private)
	if err != nil {
		return nil, err
	}
	grant, err := approvals.AskCapability(ctx, client, "", holder, capability.Ask{
		Tenant: evaluation.DefaultTenant, Holder: evaluation.Ref{Type: "agent", ID: "agent-1"}, Audience: "bench", Tools: []string{s.of.tool},
	})
	if err != nil || !grant.Granted {
		return nil, errors.Join(errors.New("no capability is granted"), err)
	}
	token, nonce := s.token("alice", 0), ""
	call := func(n int) (exchange, error) {
		arguments, err := evaluation.ParseWithNulls([]byte(s.of.arguments(n)), evaluation.DefaultLimits())
		if err != nil {
			return exchange{}, err
		}
		proof, err := holder.Prove(capability.Claim{Capability: grant.ID, Audience: "bench", Tool: "bench:" + s.of.tool, Arguments: arguments, Nonce: nonce})
		meta := fmt.Sprintf(`"_meta":{"io.policy-service/capability":%q,"io.policy-service/proof":%q,%s`, grant.Token, proof, mcpMeta[len(`"_meta":{`):])
		return s.exchange("tools/call", s.of.tool, `{"name":"`+s.of.tool+`","arguments":`+s.of.arguments(n)+`,`+meta+`}`, token), err
	}
	first, err := call(0)
	if err != nil {
		return nil, err
	}
	// A PDP that has just started wants a nonce of its own.
	refused, err := s.ask(ctx, gateway, first)
	var said struct {
		Error struct{ Data struct{ Nonce string } }
	}
	if err := errors.Join(err, json.Unmarshal(refused, &said)); err != nil || said.Error.Data.Nonce == "" {
		return nil, errors.Join(fmt.Errorf("no nonce: %s", refused), err)
	}
	nonce = said.Error.Data.Nonce
	all := make([]exchange, mcpColdCalls)
	for n := range all {
		if all[n], err = call(n); err != nil {
			return nil, err
		}
	}
	return all, nil
}
