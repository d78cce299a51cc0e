package main

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var commandsOnPage = regexp.MustCompile(`<code data-copy="the command"><bdi class="text">([^<]*)</bdi>`)

// The commands that the console shows about records do what it says, as they stand there.
func TestTheCommandsOnARecordsPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policies, err := filepath.Abs(filepath.Join(root, "policies/starter"))
	must(t, err)
	data, config := filepath.Join(dir, "data"), filepath.Join(dir, "serve.yaml")
	key, err := exec.CommandContext(t.Context(), "policy-service", "keys", "add", "--data", data, "--name", "auditor", "--tenant", "*",
		"--permission", "decide", "--permission", "log.read", "--permission", "explain").Output()
	must(t, err)
	must(t, os.WriteFile(config, fmt.Appendf(nil, "policies: %s\ndata: %s\nconsole: {}\n", policies, data), 0o600))
	_, addr := serveIn(t, "--config", config)
	jar, err := cookiejar.New(nil)
	must(t, err)
	client := http.Client{Jar: jar}
	send := func(method, path, body string, headers ...string) (text, id string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
		must(t, err)
		for n := 0; n < len(headers); n += 2 {
			r.Header.Set(headers[n], headers[n+1])
		}
		answer, err := client.Do(r)
		must(t, err)
		defer func() { _ = answer.Body.Close() }()
		all, err := io.ReadAll(answer.Body)
		must(t, err)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %d %s", path, answer.StatusCode, all)
		}
		return string(all), answer.Header.Get("X-Decision-Id")
	}
	secret := strings.TrimSpace(string(key))
	_, id := send("POST", "/access/v1/evaluation", `{"subject":{"type":"user","id":"o'neil and co"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`,
		"Content-Type", "application/json", "Authorization", "Bearer "+secret)
	send("POST", "/console/login", url.Values{"key": {secret}}.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
	ran := 0
	for _, path := range []string{"/console/decisions/" + id, "/console/decisions?subject=" + url.QueryEscape("user/o'neil and co")} {
		page, _ := send("GET", path, "")
		for _, found := range commandsOnPage.FindAllStringSubmatch(page, -1) {
			command := exec.CommandContext(t.Context(), "sh", "-c", html.UnescapeString(found[1]))
			command.Dir, command.Env = dir, append(os.Environ(), "POLICY_SERVICE_KEY="+secret)
			if out, err := command.CombinedOutput(); err != nil || strings.Contains(found[1], " verify ") && !strings.Contains(string(out), "verified proof.ndjson") {
				t.Errorf("%s: %v\n%s", html.UnescapeString(found[1]), err, out)
			}
			ran++
		}
	}
	if records, err := os.ReadFile(filepath.Join(dir, "records.ndjson")); err != nil || strings.Count(string(records), `"id":"`+id+`"`) != 1 {
		t.Errorf("got %v %s", err, records)
	}
	if ran != 4 {
		t.Errorf("%d commands", ran)
	}
}
