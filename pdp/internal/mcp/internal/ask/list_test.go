package ask_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/mcp/internal/ask"
)

// A list shows the items that some arguments permit, hides the others, and asks, files and spends nothing besides.
func TestFilter(t *testing.T) {
	t.Parallel()
	s := open(t, map[string]string{"a.cedar": `
		@id("free") permit(principal, action, resource == tool::"jira-server-1:free");
		@id("some") permit(principal, action, resource == tool::"jira-server-1:small") when { context.arguments.amount < 100 };
		@id("asks") @obligation("approval_required") permit(principal, action, resource == tool::"jira-server-1:asks");
		@id("logs") @obligation("log") permit(principal, action, resource == tool::"jira-server-1:logs");
		@id("kept") forbid(principal, action, resource == tool::"jira-server-1:kept");
		@id("kept too") permit(principal, action, resource == tool::"jira-server-1:kept") when { context.arguments.force };
		@id("label") permit(principal, action, resource) when { resource has labels && resource.labels has impact && resource.labels.impact == "read" };
		@id("mail") permit(principal, action == Action::"prompts/get", resource == prompt::"mail");
		@id("note") permit(principal, action == Action::"resources/read", resource == resource::"mem://notes/1");
		@id("list") permit(principal, action == Action::"tools/list", resource == mcp_server::"` + resource + `");`})
	item := func(name string, labels map[string]string) ask.Item {
		return ask.Item{Tool: s.tool(`{"name":"`+name+`","x-authzen-mapping":{"evaluation":{}}}`, labels)}
	}
	items := []ask.Item{item("free", nil), item("small", nil), item("asks", nil), item("logs", nil), item("kept", nil), item("other", nil),
		item("reads", map[string]string{"impact": "read"}), item("writes", map[string]string{"impact": "write"})}
	s.lists("tools/list", "[true true true true false false true false]", items...)
	bodies := s.taken()
	if len(bodies) != 1 || strings.Count(bodies[0], `"unknown":["/context/arguments","/context/pdp/approved","/context/pdp/capability"]`) != 1 || strings.Count(bodies[0], `"subject":`) != 1 {
		t.Errorf("asked %q", bodies)
	}
	for _, test := range []struct{ method, ids, want string }{
		{"prompts/list", "mail other", "[true false]"},
		{"resources/list", "mem://notes/1 mem://notes/2", "[true false]"},
		{"resources/templates/list", "mem://notes/{n} mem://notes/1 mem://notes/2 mem://secret/{n}", "[true true false true]"},
	} {
		var items []ask.Item
		for _, id := range strings.Fields(test.ids) {
			items = append(items, ask.Item{ID: id})
		}
		s.lists(test.method, test.want, items...)
	}
	s.taken()
	if keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), nil); keep == nil || len(keep) != 0 || refusal != nil || len(s.taken()) > 0 {
		t.Errorf("of nothing: %v, %+v", keep, refusal)
	}
	alone := s.beside(func(o *ask.Options) { o.Declared = ask.Instead })
	own := alone.tool(declares("other", `{"evaluation":{"action":{"name":"x"},"resource":{"type":"x","id":"1"}}}`), nil)
	alone.lists("tools/list", "[true false]", ask.Item{Tool: own}, item("other", nil))
	letter := s.beside(func(o *ask.Options) { o.Ask, o.Strict = ask.COAZ, true })
	letter.lists("tools/list", "[true true]", item("other", nil), item("kept", nil))
	if bodies := letter.taken(); len(bodies) > 0 {
		t.Errorf("by the letter: asked %q", bodies)
	}
	nobody := alice(t)
	nobody.Claims = parsed(t, `{"client_id":"orchestrator"}`)
	if keep, refusal := s.Filter(t.Context(), request(nobody, "prompts/list", ``), []ask.Item{{ID: "mail"}}); keep != nil || refusal == nil || refusal.Code != -32602 {
		t.Errorf("of nobody: %v, %+v", keep, refusal)
	}
	if keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/call", ``), items); keep != nil || refusal == nil {
		t.Errorf("of no list: %v", keep)
	}
	if keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), []ask.Item{{ID: "free"}}); keep != nil || refusal == nil {
		t.Errorf("no tool: %v", keep)
	}
	// The list as such is a question like others, and nothing that was listed left a receipt.
	if got, _ := s.outcome(request(alice(t), "tools/list", ``)); got != "permit" {
		t.Error(got)
	}
	if got, _ := s.outcome(request(alice(t), "prompts/list", ``)); !strings.Contains(got, "-32001") {
		t.Error(got)
	}
	if receipts := s.records("receipt"); len(receipts) > 0 {
		t.Errorf("receipts %v", receipts)
	}
}

// Long lists are asked about in as few requests as the PDP takes, and each answer goes to its own item.
func TestManyItems(t *testing.T) {
	t.Parallel()
	s := open(t, map[string]string{"a.cedar": `permit(principal, action, resource) when { resource.annotations.title == "even" };`})
	for _, test := range []struct{ items, most int }{{200, 1}, {1000, 6}, {1500, 9}} {
		var items []ask.Item
		for n := range test.items {
			title := []string{"even", "odd"}[n%2]
			items = append(items, ask.Item{Tool: s.tool(fmt.Sprintf(`{"name":"t%d","annotations":{"title":%q,"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false},"authorization":{"required":true,"mode":"delegated","timeout":60,"message":"m"}}`, n, title),
				map[string]string{"category": "sensitive", "integration": "jira", "impact": "write"})})
		}
		keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), items)
		if refusal != nil {
			t.Fatalf("%+v", refusal)
		}
		for n, kept := range keep {
			if kept != (n%2 == 0) {
				t.Fatalf("item %d: %v", n, kept)
			}
		}
		if asked := len(s.taken()); asked > test.most {
			t.Errorf("%d items in %d requests", test.items, asked)
		}
	}
	// Items that are large by themselves are divided by their size.
	var items []ask.Item
	for n := range 300 {
		items = append(items, ask.Item{ID: fmt.Sprintf("mem://%d/%s", n, strings.Repeat("x", 8<<10))})
	}
	if keep, refusal := s.Filter(t.Context(), request(alice(t), "resources/list", ``), items); refusal != nil || len(keep) != 300 {
		t.Errorf("%+v", refusal)
	}
}

// An operator's mapping goes before ours, for calls and for lists; nothing is added to it.
func TestOperatorMappings(t *testing.T) {
	t.Parallel()
	bundle := map[string]string{"a.cedar": `
		@id("pay") permit(principal == user::"alice", action == Action::"pay", resource == account::"bank/jira-server-1") when { context.amount < 100 && context.by == "orchestrator" };
		@id("note") permit(principal, action == Action::"open", resource == note::"n1");
		@id("ours") permit(principal, action == Action::"tool.invoke", resource);`}
	mappings := map[string]string{
		"tools/call jira-server-1:pay":   `{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"$tool.name"},"resource":{"type":"account","id":"$tool.labels.bank + '/' + server.name"},"context":{"amount":"$params.arguments.?amount","by":"$client.id","server":"$server.resource"}}}`,
		"tools/call jira-server-1:open":  `{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"open"},"resource":{"type":"note","id":"$params.arguments.id"}}}`,
		"tools/call jira-server-1:shown": `{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"open"},"resource":{"type":"note","id":"$params.name"}}}`,
		"prompts/get":                    `{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"open"},"resource":{"type":"note","id":"$params.name"}}}`,
		"acme/own":                       `{"evaluations":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"open"},"evaluations":[{"resource":{"type":"note","id":"n1"}},{"resource":{"type":"note","id":"$params.note"}}]}}`,
	}
	s := open(t, bundle, func(o *ask.Options) {
		o.Mappings = mapped(t, mappings)
		o.Labels = map[string]map[string]string{"jira-server-1": {"bank": "bank"}}
	})
	pay, opens, shown, other := s.tool(`{"name":"pay"}`, nil), s.tool(`{"name":"open"}`, nil), s.tool(`{"name":"shown"}`, nil), s.tool(`{"name":"other"}`, nil)
	for _, test := range []struct {
		op   ask.Operation
		want string
	}{
		{s.call(alice(t), pay, `{"amount":99}`), "permit"},
		{s.call(alice(t), pay, `{"amount":100}`), "-32001"},
		{s.call(alice(t), pay, `{}`), "-32001"},
		{s.call(himself(t, "alice"), pay, `{"amount":1}`), "-32602"}, // he has no client
		{s.call(alice(t), opens, `{"id":"n1"}`), "permit"},
		{s.call(alice(t), opens, `{"id":"n2"}`), "-32001"},
		{s.call(alice(t), opens, `{}`), "-32602"},
		{s.call(alice(t), shown, `{}`), "-32001"}, // it is called shown__shown
		{s.call(alice(t), other, `{}`), "permit"},
		{request(alice(t), "prompts/get", `{"name":"n1"}`), "permit"},
		{request(alice(t), "prompts/get", `{"name":"n2"}`), "-32001"},
		{request(alice(t), "acme/own", `{"note":"n1"}`), "permit"},
		{request(alice(t), "acme/own", `{"note":"n2"}`), "-32001"},
		{request(alice(t), "acme/own", `{}`), "-32602"},
	} {
		if got, _ := s.outcome(test.op); !strings.Contains(got, test.want) {
			t.Errorf("%s %s: %s", test.op.Method, test.op.Params.Value(), got)
		}
	}
	s.taken()
	s.outcome(s.call(alice(t), pay, `{"amount":99}`))
	if bodies := s.taken(); len(bodies) != 1 || text(t, anyOf(t, bodies[0])) != `{"action":{"name":"pay"},"context":{"amount":99,"by":"orchestrator","server":"`+resource+`"},"resource":{"id":"bank/jira-server-1","type":"account"},"subject":{"id":"alice","type":"user"}}` {
		t.Errorf("asked %q", bodies)
	}
	// A tool whose permit depends on arguments is shown.
	s.lists("tools/list", "[true true false true]", ask.Item{Tool: pay}, ask.Item{Tool: opens}, ask.Item{Tool: shown}, ask.Item{Tool: other})
	s.lists("prompts/list", "[true false]", ask.Item{ID: "n1"}, ask.Item{ID: "n2"})
	both := s.beside(func(o *ask.Options) {
		o.Mappings = mapped(t, map[string]string{"prompts/get": `{"evaluations":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"open"},"evaluations":[{"resource":{"type":"note","id":"$params.name"}},{"resource":{"type":"note","id":"n1"}}]}}`})
	})
	both.lists("prompts/list", "[true false true]", ask.Item{ID: "n1"}, ask.Item{ID: "n2"}, ask.Item{ID: "n1"})
	for key, mapping := range map[string]string{"tools/call": `{}`, "prompts/get": `{"evaluation":{"subject":{"type":"user","id":"$nobody.sub"},"action":{"name":"x"},"resource":{"type":"x","id":"x"}}}`, "tasks/get": mappings["prompts/get"]} {
		if _, err := ask.New(ask.Options{PDP: s.clients(), Resource: resource, Mappings: mapped(t, map[string]string{key: mapping})}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A list of so many items, of which a server says so much, that it takes many questions, is asked about to its end.
func TestListOfManyQuestions(t *testing.T) {
	t.Parallel()
	s := open(t, map[string]string{"a.cedar": `@id("last") permit(principal, action, resource == tool::"jira-server-1:t999");`})
	var said []string
	for n := range 60 {
		said = append(said, fmt.Sprintf(`"a%d":{"x":{},"y":{},"z":{}}`, n))
	}
	var items []ask.Item
	var tools []*ask.Tool
	for n := range 1000 {
		tool := s.tool(fmt.Sprintf(`{"name":"t%d","annotations":{%s}}`, n, strings.Join(said, ",")), nil)
		items, tools = append(items, ask.Item{Tool: tool}), append(tools, tool)
	}
	keep, refusal := s.Filter(t.Context(), request(alice(t), "tools/list", ``), items)
	if got := len(s.taken()); refusal != nil || slices.Index(keep, true) != 999 || got < 32 {
		t.Errorf("by %d questions %d is the first to be listed: %+v", got, slices.Index(keep, true), refusal)
	}
	for last, want := range map[int]bool{999: false, 1000: true} {
		if may, refusal := s.MayUse(t.Context(), request(alice(t), "tools/list", ``), tools[:last], nil); may != want || refusal != nil {
			t.Errorf("of %d: %t, %+v", last, may, refusal)
		}
	}
	// Such an answer is kept for a while, so it must not depend on what the gateway can discharge.
	for _, body := range s.taken() {
		if strings.Contains(body, `"supported_`) {
			t.Errorf("a kept answer depends on declarations: %.200s", body)
		}
	}
}
