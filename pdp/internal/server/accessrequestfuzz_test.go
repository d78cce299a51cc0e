package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// fuzzedDesk is a desk that fuzz targets ask, each by its own t.
func fuzzedDesk(f *testing.F) *counter {
	c := openDesk(f)
	c.Client = ownClient()
	return c
}

// tokens are what the fuzzers begin with, beside the true one.
func tokens(f *testing.F, token string) []string {
	f.Helper()
	head, _, _ := strings.Cut(token, ".")
	return []string{"", "x", "a.b.c", "..", token + ".", token[:len(token)-1], head + "..", " " + token, "\x00", `{"protected":"e30","signatures":[]}`}
}

// FuzzApprovalState: of all texts there is one state that counts, with one id.
func FuzzApprovalState(f *testing.F) {
	c := fuzzedDesk(f)
	_, of := c.program("asker").granted(wants("push", push))
	approval := of.Result.Approval
	for _, state := range tokens(f, approval.State) {
		f.Add(approval.ID, state)
	}
	f.Fuzz(func(t *testing.T, id, state string) {
		c.t = t
		reference, err := json.Marshal(map[string]string{"id": id, "state": state})
		if err != nil || id == approval.ID && state == approval.State {
			return
		}
		status, text := c.do("asker", "POST", evaluationPath, "{"+wants("push", push+`,"approval":`+string(reference))+"}")
		if status != http.StatusOK && status != http.StatusBadRequest || strings.Contains(text, `"decision":true`) {
			t.Errorf("got %d %s", status, text)
		}
	})
}

// FuzzBindingToken: of all texts there is one token by which this can be asked for.
func FuzzBindingToken(f *testing.F) {
	c := fuzzedDesk(f)
	denied := c.program("asker").denied(wants("push", push))
	token := denied.Context.Request.BindingToken
	for _, other := range tokens(f, token) {
		f.Add(other)
	}
	f.Fuzz(func(t *testing.T, other string) {
		c.t = t
		text, err := json.Marshal(other)
		if err != nil || other == token {
			return
		}
		got := c.program("asker").submits(wants("push", push) + "," + strings.Replace(denied.denial(), fmt.Sprintf("%q", token), string(text), 1))
		if got.status != http.StatusBadRequest {
			t.Errorf("got %d %s", got.status, got.text)
		}
	})
}
