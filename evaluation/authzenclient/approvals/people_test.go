package approvals_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/server"
	"policy-service/policies"
)

// withPeople puts a server on the starter bundle where the examples look for one that knows
// a PEP and frank, who leads the team that owns github.push_code. What the examples ask for
// he has approved before, for as long and as often as they may run; that they were waiting
// for is kept where a service of systemd's keeps what it needs after a restart.
func withPeople() (stop func(), err error) {
	data, err := os.MkdirTemp("", "authzenclient")
	if err != nil {
		return nil, err
	}
	stopServer := func() {}
	stop = func() {
		stopServer()
		_ = os.RemoveAll(data)
	}
	var addr string
	pep, frank, err := keysIn(data)
	if err == nil {
		addr, stopServer, err = starterWithApprovals(data)
	}
	if err == nil {
		err = errors.Join(os.Setenv("PDP_URL", "http://"+addr), os.Setenv("PDP_KEY", pep), os.Setenv("STATE_DIRECTORY", data))
	}
	if err == nil {
		err = asked(frank)
	}
	return stop, err
}

func keysIn(data string) (pep, frank string, err error) {
	keys, err := auth.OpenKeys(data)
	if err != nil {
		return "", "", err
	}
	all := []string{"*"}
	if pep, err = keys.Add(auth.KeySpec{Name: "pep", Grant: auth.Grant{Tenants: all, Permissions: []auth.Permission{auth.Decide, auth.Request}}}); err != nil {
		return "", "", err
	}
	person := auth.KeySpec{Name: "frank", Grant: auth.Grant{Tenants: all, Permissions: []auth.Permission{auth.Approve}}}
	if person.Principal, err = auth.ParsePrincipal(`User::"frank"`); err == nil {
		frank, err = keys.Add(person)
	}
	return pep, frank, err
}

func starterWithApprovals(data string) (addr string, stop func(), err error) {
	const file, once = "obligations.yaml", "valid_for: 15m"
	files := fstest.MapFS{}
	err = fs.WalkDir(policies.Starter(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(policies.Starter(), name)
		if name == file {
			content = bytes.Replace(content, []byte(once), []byte("uses: 1000\n    valid_for: 12h"), 1)
		}
		files[name] = &fstest.MapFile{Data: content, Mode: 0o644}
		return err
	})
	if err != nil {
		return "", func() {}, err
	}
	return pdptest.Serve(pdp.FS(files), func(c *server.Config) { c.Data = data })
}

// asked does as the examples do, up to where people are asked, and has frank approve.
func asked(frank string) error {
	client, err := authzenclient.New(os.Getenv("PDP_URL"), authzenclient.WithKey(os.Getenv("PDP_KEY")))
	if err != nil {
		return err
	}
	denied := client.Enforce(context.Background(), evaluation.Request{
		Subject:  evaluation.Entity{Type: "user", ID: "alice"},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "github.push_code"},
	}, nil)
	standing, err := approvals.Ask(context.Background(), client, denied)
	if err != nil {
		return err
	}
	text, err := standing.Task().MarshalJSON()
	if err == nil {
		err = os.WriteFile(os.Getenv("STATE_DIRECTORY")+"/push.json", text, 0o600)
	}
	if err != nil {
		return err
	}
	inbox, err := by(frank, http.MethodGet, "/v1/approvals", "")
	if err != nil {
		return err
	}
	_, id, _ := strings.Cut(inbox, `"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	_, err = by(frank, http.MethodPost, "/v1/approvals/"+id+"/decision", `{"decision":"approve","reason":"it is urgent"}`)
	return err
}

func by(key, method, path, body string) (string, error) {
	r, err := http.NewRequest(method, os.Getenv("PDP_URL")+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	return string(text), err
}
