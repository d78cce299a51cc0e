package ask

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/rpc"
)

// Whatever a server sends, what leaves of it is JSON that has none of the fields, and nothing but what we know.
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

// What does it cost at the worst to take fields out of 4 MiB that were made to cost much?
func BenchmarkRedactHostile(b *testing.B) {
	many := func(n int, one string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = strings.ReplaceAll(one, "N", strconv.Itoa(i))
		}
		return strings.Join(all, ",")
	}
	for name, text := range map[string]string{
		"names":   `{"structuredContent":{"secret":"abcd",` + many(199_000, `"abcdN":1`) + `}}`,
		"numbers": `{"structuredContent":{"secret":"abcd","n":[` + many(199_000, `1N.5e3`) + `]}}`,
		"secrets": `{"structuredContent":{"a":[` + many(4_900, `{"secret":"abcdN"}`) + `],"x":"` + strings.Repeat("abcd", 900_000) + `"}}`,
		"blocks":  `{"content":[` + many(4_900, `{"type":"text","text":"{\"secret\":\"abcdN\",\"x\":\"abcdabcdabcd\"}"}`) + `]}`,
		"nesting": `{"structuredContent":{"secret":"abcd","n":[` + many(2_200, strings.Repeat("[", 90)+strings.Repeat("]", 90)) + `]}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := redactResponse(toolsCall, rpc.Answer(rpc.IntID(1), jsontext.Value(text)), []pointer{{"secret"}, {"a", "*", "secret"}}); !ok {
					b.Fatal("withheld")
				}
			}
		})
	}
}
