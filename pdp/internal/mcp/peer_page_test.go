package mcp_test

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// spoken are the messages that MESSAGES.md shows, by what they are, and those of them that were spoken as it shows them. A nil one
// looks at nothing.
type spoken struct {
	shown map[string]jsontext.Value
	mu    sync.Mutex
	was   map[string]bool
}

func readSpoken(t *testing.T) *spoken {
	t.Helper()
	text, err := os.ReadFile("../../mcp/MESSAGES.md")
	orFail(t, err)
	s := &spoken{shown: map[string]jsontext.Value{}, was: map[string]bool{}}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1) {
		what := whatIs(t, block[1])
		if s.shown[what] != nil {
			t.Fatalf("the page shows %s twice", what)
		}
		s.shown[what] = block[1]
	}
	return s
}

// whatIs names a message, or the definition of a tool.
func whatIs(t *testing.T, text jsontext.Value) string {
	t.Helper()
	var m struct {
		ID     jsontext.Value `json:"id"`
		Name   string         `json:"name"`
		Method string         `json:"method"`
		Params map[string]jsontext.Value
		Result map[string]jsontext.Value `json:"result"`
		Error  *fault                    `json:"error"`
	}
	if err := json.Unmarshal(text, &m, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	switch {
	case m.Error != nil:
		return fmt.Sprint("error ", m.Error.Code, " ", m.Error.Message)
	case m.Method != "" && m.Params["onBehalfOf"] != nil:
		return m.Method + " on behalf of another"
	case bytes.Contains(m.Params["_meta"], []byte("io.policy-service/capability")):
		return m.Method + " with a capability"
	case bytes.Contains(m.Params["reason"], []byte("No valid capability")):
		return m.Method + " without a capability"
	case m.Params["name"] != nil && m.Params["requestId"] != nil:
		return m.Method + " of one that waits"
	case m.Params["decision"] != nil && m.ID == nil:
		return m.Method + " without an id"
	case m.Params["participantId"] != nil:
		return m.Method + " " + string(m.Params["participantId"])
	case m.Method != "":
		return m.Method
	}
	for _, name := range []string{"token", "fulfilledBy", "authorizationId", "requestId", "content"} {
		if m.Result[name] != nil {
			return "result with " + name
		}
	}
	return cmp.Or(m.Name, "another message")
}

// speaks fails if the page shows such a message with what this one has not.
func (s *spoken) speaks(t *testing.T, message jsontext.Value) {
	t.Helper()
	if s == nil {
		return
	}
	what := whatIs(t, message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown[what] == nil {
		return
	}
	s.was[what] = true
	if faults := notAsPrinted("", s.shown[what], message); len(faults) > 0 {
		t.Errorf("%s is not as the page shows it: %s; it is\n%s", what, strings.Join(faults, ", "), message)
	}
}

// all fails unless all was spoken that the page shows.
func (s *spoken) all(t *testing.T) {
	t.Helper()
	for what, text := range s.shown {
		if !s.was[what] {
			t.Errorf("nobody spoke %s:\n%s", what, text)
		}
	}
}
