package evaluation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// TestActorsAreRefusedInAnyOtherForm: a member that says who is behind a request, and cannot be read, would be passed over where
// it is looked at, and policies would see it all the same. So the request is none, by whatever road it comes.
func TestActorsAreRefusedInAnyOtherForm(t *testing.T) {
	t.Parallel()
	limits := evaluation.DefaultLimits()
	forms := map[string]string{
		`"requester":"mia"`: "/context/requester", `"requester":7`: "/context/requester", `"requester":{}`: "/context/requester",
		`"requester":[{"type":"user","id":"mia"}]`: "/context/requester", `"requester":{"id":"mia"}`: "/context/requester",
		`"requester":{"type":"","id":"mia"}`: "/context/requester", `"requester":{"type":"user"}`: "/context/requester",
		`"requester":{"type":"user","id":7}`: "/context/requester", `"requester":{"type":"user","id":"mia","more":1}`: "/context/requester",
		`"on_behalf_of":"mia"`: "/context/on_behalf_of", `"on_behalf_of":true`: "/context/on_behalf_of",
		`"on_behalf_of":{}`: "/context/on_behalf_of", `"on_behalf_of":{"type":"user"}`: "/context/on_behalf_of",
		`"on_behalf_of":["mia"]`: "/context/on_behalf_of/0", `"on_behalf_of":[null]`: "/context/on_behalf_of/0",
		`"on_behalf_of":[{"type":"user","id":"mia"},{"type":"","id":"mia"}]`: "/context/on_behalf_of/1",
		`"on_behalf_of":[[{"type":"user","id":"mia"}]]`:                      "/context/on_behalf_of/0",
		`"person":"mia"`: "/context/person", `"person":[]`: "/context/person", `"person":{}`: "/context/person",
	}
	for form, at := range forms {
		question := `"subject":{"type":"u","id":"1"},"action":{"name":"a"},"resource":{"type":"t","id":"2"},"context":{` + form + `}`
		ask := map[string]func() error{
			"AuthZEN": func() error { _, err := evaluation.DecodeAuthZEN([]byte("{"+question+"}"), "", limits); return err },
			"native": func() error {
				_, err := evaluation.DecodeNative(fmt.Appendf(nil, `{"tenant_id":"t","actor":{"actor_type":"u","actor_id":"1"},"action":"a","resource":{"type":"t","id":"2"},"context":{%s}}`, form), limits)
				return err
			},
			"search": func() error {
				_, err := evaluation.DecodeSearch(evaluation.SubjectSearch, []byte("{"+question+"}"), "", limits)
				return err
			},
			"item": func() error {
				b, err := evaluation.DecodeBatch([]byte(`{"evaluations":[{`+question+`}]}`), "", limits)
				if err != nil || b.Items[0].Err == nil {
					return err
				}
				return fmt.Errorf("%w", b.Items[0].Err)
			},
			"items that inherit it": func() error {
				b, err := evaluation.DecodeBatch([]byte(`{`+question+`,"evaluations":[{},{"context":{}}]}`), "", limits)
				if err != nil || b.Items[0].Err == nil || b.Items[1].Err != nil {
					return err
				}
				return fmt.Errorf("%w", b.Items[0].Err)
			},
		}
		for road, ask := range ask {
			want := at
			if road == "item" {
				want = "/evaluations/0" + at
			}
			var wrong *evaluation.Error
			if err := ask(); !errors.As(err, &wrong) || wrong.Pointer != want || strings.Contains(err.Error(), "mia") {
				t.Errorf("%s, %s: got %v, want %s", form, road, err, want)
			}
		}
	}
}
