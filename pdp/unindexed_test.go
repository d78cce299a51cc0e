package pdp

import (
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
)

// A search without the index examines all that there is, and finds the same. That a
// decision is the same is a property (property_index_test.go).
func TestSearchWithoutIndex(t *testing.T) {
	t.Parallel()
	b, problems := Load(FS(fstest.MapFS{
		"p.cedar":         {Data: []byte(`permit (principal, action, resource == doc::"b");`)},
		"entities/d.json": {Data: []byte(`[{"uid":{"type":"doc","id":"a"},"attrs":{},"parents":[]},{"uid":{"type":"doc","id":"b"},"attrs":{},"parents":[]},{"uid":{"type":"doc","id":"c"},"attrs":{},"parents":[]}]`)},
	}))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	search := SearchCall{Search: evaluation.Search{Kind: evaluation.ResourceSearch, Request: evaluation.Request{
		Subject: evaluation.Entity{Type: "user", ID: "u"}, Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "doc"},
	}}, Limit: evaluation.MaxPage}
	for examined, b := range map[int]*Bundle{1: b, 3: b.WithoutIndex()} {
		answer, err := Of(b, Options{}).Search(t.Context(), search)
		if err != nil || answer.Examined != examined || len(answer.Found) != 1 || answer.Found[0].ID != "b" {
			t.Errorf("%d examined, want %d: found %v, %v", answer.Examined, examined, answer.Found, err)
		}
	}
}
