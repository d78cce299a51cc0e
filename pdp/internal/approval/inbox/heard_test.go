package inbox_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/approval/inbox"
)

// What a server says is text in its hint, and nothing else is.
func TestHeardServerSays(t *testing.T) {
	t.Parallel()
	for properties, want := range map[string]string{
		`{"approval_hint":{"required":true,"message":"take care\n"},"labels":{}}`: "take care\n",
		`{"approval_hint":{"message":" \n"}}`:                                     "",
		`{"approval_hint":{"message":7}}`:                                         "",
		`{"approval_hint":{"message":null}}`:                                      "",
		`{"approval_hint":"take care"}`:                                           "",
		`{"approval_hint":{"message":"take care"},"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`: "take care",
		`{"message":"take care"}`: "",
		`"take care"`:             "",
		`null`:                    "",
	} {
		var r inbox.Request
		if err := json.Unmarshal([]byte(`{"request":{"resource":{"properties":`+properties+`}}}`), &r); err != nil {
			t.Fatal(err)
		}
		if got := r.Request.ServerSays(); got != want {
			t.Errorf("%s: got %q, want %q", properties, got, want)
		}
	}
	if got := (inbox.Asked{}).ServerSays(); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
