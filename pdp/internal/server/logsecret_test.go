package server_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

func logTo(to *written.Text) pdptest.Option {
	return func(c *server.Config) {
		c.Program.Logger = slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

// Secrets are sent in every place that is not an identifier, and looked for byte by
// byte in all that is left afterwards.
func TestNoSecretIsLeftAnywhere(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	var log, stdout written.Text
	reader := addKey(t, data, "reader", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search, auth.LogRead}})
	s := pdptest.Start(t, telling(), withData(data), logTo(&log), withStdout(0, &stdout), func(c *server.Config) {
		c.DecisionLog.Mask = []string{"/context/arguments/*/pin", "/subject/properties/ssn"}
	})
	n, secrets := 0, []string{}
	secret := func() string { // as JSON writes it, so that escapes are in the way
		n++
		secrets = append(secrets, fmt.Sprintf("hunter-%04d-zebra", n))
		return secrets[n-1]
	}
	errors := ""
	ask := func(path, body string, want int) {
		t.Helper()
		got := s.Post(path, body, "X-Request-ID", "r-1", "Authorization", reader)
		if got.Status != want {
			t.Errorf("%s: got %d %s", path, got.Status, got.Body)
		}
		if got.Status != 200 {
			errors += got.Body
		}
	}
	a, b, c, d, e := secret(), secret(), secret(), secret(), secret()
	question := func(action, context string) string {
		return `{"subject":{"type":"user","id":"alice","properties":{"Password":"` + a + `","note":"it is ` + a + `!","ssn":"` + b + `"}},
			"action":{"name":"` + action + `","properties":{"api_key":{"deep":["` + c + `"]},"copy":"` + c + `"}},
			"resource":{"type":"doc","id":"plan","properties":{"cookies":["` + d + `"],"list":["` + d + `",{"x":"` + d + `"}]}},
			"context":{"arguments":{"card":{"pin":"` + e + `"},"text":"pin: ` + e + `","` + e + `":1},"note":"see ` + e + `","supported_obligations":["notification"]` + context + `}}`
	}
	ask(evaluationPath, question("write", ""), 200)
	ask(evaluationPath, question("read", `,"token":"keys-of-the-kingdom","\u0070roof":"hunter-\u0030999-zebra"`), 200)
	ask(evaluationPath, question("delete", `,"token":"keys-of-the-kingdom"`), 200)
	secrets = append(secrets, "hunter-0999-zebra")
	ask(evaluationPath, question("read", `,"pdp":"`+e+`"`), 400)
	ask(evaluationPath, question("read", `,"__entity":"`+e+`"`), 400)
	ask(evaluationPath, strings.Replace(question("read", ""), `"context"`, `"context":{"token":"`+e+`"},"context"`, 1), 400)
	ask(evaluationPath, question("read", "")[:300], 400)
	f := secret()
	ask(authorizePath, `{"tenant_id":"default","actor":{"actor_id":"alice","actor_type":"user","secret":"`+f+`"},"action":"read","resource":{"type":"doc","id":"plan","labels":{"token":"`+f+`"}},"purpose":"because `+f+`","context":{}}`, 200)
	for _, kind := range []string{"subject", "resource", "action"} {
		ask("/access/v1/search/"+kind, question("read", ""), 200)
	}
	ask("/access/v1/evaluations", strings.TrimSuffix(question("read", ""), "}")+`,"evaluations":[{},{"context":{"password":"`+secret()+`"}},{"context":{"pdp":"`+e+`"}},{"subject":"`+e+`"},"`+e+`"]}`, 200)
	var places [][2]string
	for _, form := range []string{"format=ndjson", "format=csv", "proofs=true"} {
		got := s.Get("/v1/log/export?"+form, "Authorization", reader, "Accept-Encoding", "identity")
		if n := strings.Count(got.Body, "\n"); got.Status != 200 || n < 12 || !strings.Contains(got.Body, "plan") {
			t.Fatalf("the export %s: got %d with %d lines", form, got.Status, n)
		}
		places = append(places, [2]string{"the export " + form, got.Body})
	}
	stopAndWait(t, s)

	all := linesFrom(t, data, 1)
	if len(all) < 12 {
		t.Fatalf("there are %d records only", len(all))
	}
	records, checkpoints := apart(t, stdout.String())
	if equal(t, records, all); len(checkpoints) == 0 {
		t.Error("standard output has no checkpoint")
	}
	places = append(places, everyFile(t, data)...)
	places = append(places, [2]string{"the log", log.String()}, [2]string{"standard output", stdout.String()}, [2]string{"an error", errors})
	secrets = append(secrets, "hunter-", "zebra")
	for _, place := range places {
		for _, text := range secrets {
			if i := strings.Index(place[1], text); i >= 0 {
				t.Errorf("%s holds %s: …%q…", place[0], text, place[1][max(0, i-100):min(len(place[1]), i+50)])
				break
			}
		}
	}
	for _, l := range lines(t, data) {
		if l.Request.Context["token"] != nil && strings.Contains(l.ReasonUser, "kingdom") {
			t.Errorf("the reason holds what the caller calls a token: %q", l.ReasonUser)
		}
	}
}

// everyFile is the name and content of every file below a directory.
func everyFile(t *testing.T, dir string) (all [][2]string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all = append(all, [2]string{path, string(content)})
		if info, e := entry.Info(); e == nil && strings.HasSuffix(path, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
	return all
}

// A mask's key stays: what is masked today must join with what was masked before.
func TestDigestsJoinAcrossRestarts(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	digest := func() any {
		s := pdptest.Start(t, telling(), withData(data), func(c *server.Config) { c.Program.PDP.NewID = nil })
		id := s.Post(evaluationPath, strings.TrimSuffix(readQuestion, "}")+`,"context":{"token":"s"}}`).Header.Get("X-Decision-Id")
		stopAndWait(t, s)
		return byID(lines(t, data))[id].Request.Context["token"]
	}
	if first, second := digest(), digest(); first != second || first == nil {
		t.Errorf("%v and %v", first, second)
	}
	name := filepath.Join(data, "mask.key")
	key, err := os.ReadFile(name)
	if err != nil || len(key) != 32 || bytes.Equal(key, make([]byte, 32)) {
		t.Fatal(err, len(key))
	}
	must(t, os.WriteFile(name, key[:31], 0o600))
	s, err := server.New(server.Config{Program: server.Program{Source: telling(), PDP: pdp.Options{}}, Listen: "127.0.0.1:0", Data: data})
	must(t, err)
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "mask.key") {
		t.Errorf("a damaged key: got %v", err)
	}
}
