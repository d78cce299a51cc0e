package ask

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/rpc"
)

// Of all that a server sends, only JSON leaves, without the fields and without members that we do not know.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{
		`{"structuredContent":{"secret":"s3cr3t","a":[{"secret":1}]},"content":[{"type":"text","text":"{\"secret\":\"s3cr3t\"}"}]}`,
		`{"contents":[{"uri":"a","text":"[]"},{"uri":"b","blob":"eA=="}]}`, `{"messages":[{"role":"user","content":{"type":"text","text":"x"}}]}`,
		`{"resultType":"input_required"}`, `{"structuredContent":[],"_meta":{"a":1},"isError":true}`, `{}`,
	} {
		f.Add(seed)
	}
	fields := []pointer{{"secret"}, {"a", "*", "secret"}, {"a", "0"}}
	known := "structuredContent content contents messages resultType isError ttlMs cacheScope"
	f.Fuzz(func(t *testing.T, text string) {
		if !jsontext.Value(text).IsValid() {
			return // it would not have been read
		}
		for _, method := range []string{toolsCall, resourcesRead, promptsGet} {
			m, ok := redactResponse(method, rpc.Answer(rpc.IntID(1), jsontext.Value(text)), fields)
			if !ok {
				continue
			}
			var out map[string]json.RawMessage
			if !m.Result.IsValid() || json.Unmarshal(m.Result, &out) != nil {
				t.Fatalf("%s\nleaves as %s", text, m.Result)
			}
			for name := range out {
				if !strings.Contains(known, name) {
					t.Errorf("%s leaves", name)
				}
			}
			again := redactor{fields: fields[:1]}
			if left, ok := again.structured(jsontext.Value(out["structuredContent"])); ok && left.Kind() == '{' && string(left) != string(out["structuredContent"]) {
				t.Errorf("%s\nleaves as %s", text, m.Result)
			}
		}
	})
}

// A question without a request has no answer, which is a deny.
func TestNothingAskedIsDenied(t *testing.T) {
	t.Parallel()
	if all := (question{}).ask(t.Context(), nil, nil, Answered{}); len(all) != 1 || !all[0].Denied() {
		t.Errorf("%v", all)
	}
}

// A text that is not UTF-8 leaves a member in a question, never none.
func TestTextStandsInTheQuestion(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"alice": `{"person":"alice"}`, "al\xffce": `{"person":"al` + "\uFFFD" + `ce"}`, "": `{"person":""}`} {
		if got := string((evaluation.Object{}).With(personMember, text(given)).AppendJSON(nil)); got != want {
			t.Errorf("%q: %s", given, got)
		}
	}
}
