package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest/organisation"
	"policy-service/policies"
)

// setup is a case made ready: files for the service, and requests with the answers
// that are right.
type setup struct {
	testCase
	policies, data, config string // paths; "" where there is none
	authorization          string // the header's value
	exchanges              []exchange
}

// manyRequests is how many different ones there are, as in make bench.
const manyRequests = 1024

func prepare(ctx context.Context, binary string, c testCase, dir string) (*setup, error) {
	dir = filepath.Join(dir, c.name)
	s := &setup{testCase: c, policies: filepath.Join(dir, "policies")}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	bodies, err := s.writeBundle()
	if err != nil {
		return nil, err
	}
	if c.log != "" {
		s.data = filepath.Join(dir, "data")
	}
	switch c.credential {
	case "key":
		err = s.addKey(ctx, binary)
	case "jwt":
		err = s.addIssuer(dir)
	}
	if err != nil {
		return nil, err
	}
	return s, s.answerAll(bodies)
}

// writeBundle writes the policies, and returns what is to be asked.
func (s *setup) writeBundle() ([]string, error) {
	if s.testCase.policies == 0 {
		return nativeBodies, os.CopyFS(s.policies, policies.Starter())
	}
	o := organisation.New(s.testCase.policies, cmp.Or(s.entities, 10_000))
	if err := os.CopyFS(s.policies, o.Files()); err != nil {
		return nil, err
	}
	bodies := o.Bodies(manyRequests)
	if s.batch {
		return batches(bodies)
	}
	return bodies, nil
}

// nativeBodies are answered with an obligation without properties, with one that has
// some, and with a no.
var nativeBodies = []string{
	`{"tenant_id":"tenant-xyz","actor":{"actor_id":"agent-workflow-123","actor_type":"agent","roles":["workflow_orchestrator"],"department_id":"dept-eng"},"action":"tool.invoke",` +
		`"resource":{"type":"tool","id":"jira-server-1:create_ticket","labels":{"category":"sensitive","integration":"jira","impact":"write"}},"purpose":"Resolve user issue #555",` +
		`"context":{"workflow_id":"wf-abc","agent_invocation_id":"inv-789","param_summary":"Creating ticket for server outage"}}`,
	`{"tenant_id":"default","actor":{"actor_id":"agent-desk","actor_type":"agent","department_id":"support"},"action":"tool.invoke",` +
		`"resource":{"type":"tool","id":"crm:read_customer"},"context":{"supported_obligations":["redact"]}}`,
	`{"tenant_id":"tenant-xyz","actor":{"actor_id":"agent-workflow-123","actor_type":"agent","roles":["workflow_orchestrator"],"department_id":"dept-eng"},"action":"tool.invoke",` +
		`"resource":{"type":"tool","id":"jira-server-1:delete_project"}}`,
}

// batches make one request of fifty: one subject and one context, as one PEP asks for
// one person, with an action and a resource each.
func batches(bodies []string) (all []string, err error) {
	for ; len(bodies) >= batchSize; bodies = bodies[batchSize:] {
		var batch, item map[string]json.RawMessage
		var items []map[string]json.RawMessage
		for _, body := range bodies[:batchSize] {
			item = nil
			if err := json.Unmarshal([]byte(body), &item); err != nil {
				return nil, err
			}
			items = append(items, map[string]json.RawMessage{"action": item["action"], "resource": item["resource"]})
		}
		batch = map[string]json.RawMessage{"subject": item["subject"], "context": item["context"]}
		if batch["evaluations"], err = json.Marshal(items); err != nil {
			return nil, err
		}
		text, err := json.Marshal(batch)
		if err != nil {
			return nil, err
		}
		all = append(all, string(text))
	}
	return all, nil
}

// addKey makes an API key. It may explain, because /readyz says the size of the log to
// nobody else.
func (s *setup) addKey(ctx context.Context, binary string) error {
	add := exec.CommandContext(ctx, binary, "keys", "add", "--data", s.data, "--name", "loadtest", "--tenant", "*", "--permission", "decide", "--permission", "explain")
	add.Stderr = os.Stderr
	key, err := add.Output()
	if err != nil {
		return fmt.Errorf("%v: %w; try make build", add, err)
	}
	s.authorization = "Bearer " + string(bytes.TrimSpace(key))
	return nil
}

// addIssuer configures an issuer of JWTs, and has it issue one.
func (s *setup) addIssuer(dir string) error {
	const issuer, audience, id = "https://issuer.example.com", "loadtest", "1"
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: id, Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		return err
	}
	s.config = filepath.Join(dir, "config.yaml")
	config := fmt.Sprintf("auth: {jwt: [{issuer: %q, audience: %s, jwks_file: jwks.json, algorithms: [RS256], tenants: ['*'], permissions: [decide]}]}\n", issuer, audience)
	err = errors.Join(os.WriteFile(filepath.Join(dir, "jwks.json"), set, 0o600), os.WriteFile(s.config, []byte(config), 0o600))
	if err != nil {
		return err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: private, KeyID: id}}, nil)
	if err != nil {
		return err
	}
	now := time.Now()
	claims := jwt.Claims{Issuer: issuer, Audience: jwt.Audience{audience}, Subject: "gateway", IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(24 * time.Hour))}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	s.authorization = "Bearer " + token
	return err
}

// answerAll asks the library what the service must answer.
func (s *setup) answerAll(bodies []string) error {
	bundle, problems := pdp.Load(pdp.Dir(s.policies))
	if problems.Refuse() {
		return problems
	}
	decider := pdp.Of(bundle, pdp.Options{})
	for _, body := range bodies {
		answer, err := s.answer(decider, []byte(body))
		if err != nil {
			return err
		}
		s.exchanges = append(s.exchanges, newExchange("127.0.0.1", s.path(), s.authorization, body, answer))
	}
	return nil
}

func (s *setup) answer(decider *pdp.PDP, body []byte) ([]byte, error) {
	limits := evaluation.DefaultLimits()
	if s.batch {
		batch, err := evaluation.DecodeBatch(body, evaluation.DefaultTenant, limits)
		if err != nil {
			return nil, err
		}
		answer, err := decider.EvaluateBatch(context.Background(), pdp.BatchCall{Batch: batch})
		if err != nil {
			return nil, err
		}
		return evaluation.Answers(answer.Items)
	}
	request, err := evaluation.Decode(body, "", limits)
	if err != nil {
		return nil, err
	}
	decision, err := decider.Evaluate(context.Background(), pdp.Call{Request: request})
	if err != nil {
		return nil, err
	}
	return request.Shape.Answer(decision)
}
