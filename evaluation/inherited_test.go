package evaluation_test

import (
	"fmt"
	"testing"

	"policy-service/evaluation"
)

// TestInherited: what an item has itself and what it inherits are apart, and are together
// what is decided.
func TestInherited(t *testing.T) {
	t.Parallel()
	const defaults = `"subject":{"type":"user","id":"a","properties":{"p":1}},"action":{"name":"r","properties":{"q":1}},"resource":{"type":"doc","id":"1","properties":{"r":1}},"context":{"c":1,"supported_obligations":["log"]}`
	for _, c := range []struct{ defaults, item, members, own, shared string }{
		{defaults, `{}`, `[subject action resource context]`, `map[]`, `map[/action:{"q":1} /context:{"c":1,"supported_obligations":["log"]} /resource:{"r":1} /subject:{"p":1}]`},
		{defaults, `{"subject":{"id":"b"}}`, `[action resource context]`, `map[]`, `map[/action:{"q":1} /context:{"c":1,"supported_obligations":["log"]} /resource:{"r":1}]`},
		{defaults, `{"subject":{"properties":{"p":2}},"action":{},"resource":{},"context":{"d":1}}`, `[supported_obligations]`, `map[/context:{"d":1} /subject:{"p":2}]`, `map[/context:{"supported_obligations":["log"]}]`},
		{defaults, `{"subject":{},"action":{},"resource":{},"context":{"supported_obligations":[]}}`, `[]`, `map[/context:{"supported_obligations":[]}]`, `map[]`},
		{defaults, `{"context":null}`, `[subject action resource context]`, `map[]`, `map[/action:{"q":1} /context:{"c":1,"supported_obligations":["log"]} /resource:{"r":1} /subject:{"p":1}]`},
		{`"subject":{"type":"user","id":"a","properties":{}},"action":{"name":"r"},"resource":{"type":"doc","id":"1"},"context":{}`, `{}`, `[]`, `map[]`, `map[]`},
	} {
		body := []byte(`{` + c.defaults + `,"evaluations":[` + c.item + `,{"subject":{"type":"user","id":"z","properties":{}}}]}`)
		batch, err := evaluation.DecodeBatch(body, "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if batch.Size != len(body) {
			t.Errorf("the size is %d, want %d", batch.Size, len(body))
		}
		item := batch.Items[0]
		i, r := item.Inherits(), item.Request
		own, shared := i.Own(r), i.Shared(r, evaluation.Request{})
		if got := fmt.Sprint(i.Members()); got != c.members || i.Any() != (c.members != "[]") {
			t.Errorf("%s inherits %s, want %s", c.item, got, c.members)
		}
		if own.Subject.ID != r.Subject.ID || own.Action.Name != r.Action.Name || own.Resource.Type != r.Resource.Type || shared.Subject.Type != "" || shared.Action.Name != "" {
			t.Errorf("%s: types, ids and names are the item's: %v, %v", c.item, own, shared)
		}
		if got := fmt.Sprint(filled(own)); got != c.own {
			t.Errorf("%s has %s itself, want %s", c.item, got, c.own)
		}
		if got := fmt.Sprint(filled(shared)); got != c.shared {
			t.Errorf("%s has %s from others, want %s", c.item, got, c.shared)
		}
	}
}

// TestSharedByAll: one item inherits all of the context, another a member of it.
func TestSharedByAll(t *testing.T) {
	t.Parallel()
	batch, err := evaluation.DecodeBatch([]byte(`{"subject":{"type":"u","id":"a"},"action":{"name":"r"},"resource":{"type":"d","id":"1"},"context":{"c":1,"supported_obligations":["log"]},"evaluations":[{"context":{}},{},{"context":{"d":1}}]}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	var shared evaluation.Request
	for n, want := range []string{`map[/context:{"supported_obligations":["log"]}]`, `map[/context:{"c":1,"supported_obligations":["log"]}]`, `map[/context:{"c":1,"supported_obligations":["log"]}]`} {
		item := batch.Items[n]
		shared = item.Inherits().Shared(item.Request, shared)
		if got := fmt.Sprint(filled(shared)); got != want {
			t.Errorf("after item %d all share %s, want %s", n, got, want)
		}
	}
}

func filled(r evaluation.Request) map[string]string {
	all := map[string]string{}
	for name, o := range map[string]evaluation.Object{"/subject": r.Subject.Properties, "/action": r.Action.Properties, "/resource": r.Resource.Properties, "/context": r.Context} {
		if text, err := o.MarshalJSON(); err == nil && o.Len() > 0 {
			all[name] = string(text)
		}
	}
	return all
}
