package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest/night"
)

// allRequired are members of the context, all of which a schema requires, and their types.
const allRequired = `{ d: decimal, i: ipaddr, t: datetime, s: duration, l: Set<Long>, r: { a: Long, b: { c: String } }, u: User, c: Color, b: Bool, n: Long, x: String }`

// TestUnknown: what is possible, for one rule at a time.
func TestUnknown(t *testing.T) {
	t.Parallel()
	const (
		arguments = "/context/arguments"
		approved  = "/context/pdp/approved"
		roles     = "/subject/properties/roles"
	)
	parents := files{"bundle.yaml": "parents: {User: {roles: Role}}\n"}
	stored := func(mode string) files {
		return files{
			"bundle.yaml": "parents: {User: {roles: Role}}\nattributes: {User: " + mode + "}\n",
			"entities/e.json": `[{"uid":{"type":"User","id":"u"},"attrs":{"roles":["old"],"profile":{"city":"a"},"boss":{"__entity":{"type":"User","id":"v"}}},"parents":[{"type":"Team","id":"t"}]},
				{"uid":{"type":"User","id":"v"},"attrs":{"level":1,"friend":{"__entity":{"type":"User","id":"u"}}},"parents":[]},{"uid":{"type":"Role","id":"sub"},"attrs":{},"parents":[{"type":"Role","id":"super"}]}]`,
		}
	}
	plain := between(`{}`, `{}`, `{}`)
	for name, tt := range map[string]struct {
		files    files
		policies string
		body     string
		unknown  []string
		want     string
	}{
		"no permit":                      {nil, permits + ` when { context.x == 1 };`, plain, []string{arguments}, "false"},
		"a permit reads it":              {nil, permits + ` when { context.arguments.amount < 100 };`, plain, []string{arguments}, "true"},
		"a permit reads beside it":       {nil, permits + ` when { context.arguments.to == "a" };`, between(`{}`, `{}`, `{"arguments":{}}`), []string{arguments + "/amount"}, "false"},
		"beside it, with nothing there":  {nil, permits + ` when { context.arguments.to == "a" };`, plain, []string{arguments + "/amount"}, "false"},
		"what it is in may be there":     {nil, permits + ` when { context has arguments && !(context.arguments has to) };`, plain, []string{arguments + "/amount"}, "true"},
		"what it is in is there":         {nil, permits + ` unless { context has arguments };`, between(`{}`, `{}`, `{"arguments":{}}`), []string{arguments + "/amount"}, "false"},
		"nothing can be there":           {nil, permits + ` when { context.arguments.amount == 1 };`, between(`{}`, `{}`, `{"arguments":"x"}`), []string{arguments + "/amount"}, "false"},
		"an element":                     {nil, permits + ` when { context.l.contains("a") };`, between(`{}`, `{}`, `{"l":["b"]}`), []string{"/context/l/0"}, "true"},
		"a permit applies":               {nil, permits + `;`, plain, []string{arguments}, "true"},
		"a forbid applies":               {nil, permits + `;` + forbids + ` when { resource.locked };`, between(`{}`, `{"locked":true}`, `{}`), []string{arguments}, "false never"},
		"a forbid may apply":             {nil, permits + `;` + forbids + ` when { context.arguments.amount > 5 };`, plain, []string{arguments}, "true"},
		"a forbid applies all the same":  {nil, permits + `;` + forbids + ` when { resource.locked && (context.pdp.tenant == "default" || context.pdp.approved) };`, between(`{}`, `{"locked":true}`, `{}`), []string{approved}, "false never"},
		"a forbid errs":                  {nil, permits + `;` + forbids + ` when { resource.locked };`, plain, []string{arguments}, "false policy_error"},
		"a forbid errs, or applies":      {nil, permits + `;` + forbids + ` when { resource.locked || context.pdp.approved };`, plain, []string{approved}, "false policy_error"},
		"a forbid may not err":           {nil, permits + `;` + forbids + ` when { context.pdp.approved && resource.locked };`, plain, []string{approved}, "true"},
		"errors are ignored":             {files{"bundle.yaml": "forbid_errors: ignore\n"}, permits + `;` + forbids + ` when { resource.locked || context.pdp.approved };`, plain, []string{approved}, "true"},
		"unusable errors are not":        {files{"bundle.yaml": "forbid_errors: ignore\n"}, permits + `;` + forbids + ` when { resource.level > 1 || context.pdp.approved };`, between(`{}`, `{"level":0.5}`, `{}`), []string{approved}, "false policy_error"},
		"a permit that errs blocks":      {nil, permits + `; @obligation("log") ` + permits + ` when { resource.locked && context.pdp.approved };`, plain, []string{approved}, "false policy_error"},
		"a permit that errs, or is none": {nil, permits + `; @obligation("log") ` + permits + ` when { context.pdp.approved && resource.locked };`, plain, []string{approved}, "true"},
		"a permit that may err does not": {nil, `@obligation("log") ` + permits + ` when { context.arguments.amount < 1 };`, plain, []string{arguments}, "true"},
		"together excluded":              {nil, permits + ` when { context.arguments.n == 1 };` + forbids + ` when { context.arguments.n == 1 };`, plain, []string{arguments}, "true"},

		"approved is not known":                {nil, permits + ` when { context.pdp.approved };`, plain, []string{arguments, approved}, "true"},
		"approved is known":                    {nil, permits + ` when { context.pdp.approved };`, plain, []string{arguments}, "false"},
		"an approval would be owed":            {nil, `@obligation("approval_required") ` + permits + `;`, plain, []string{arguments, approved}, "true"},
		"an approval would be owed, and known": {nil, `@obligation("approval_required") ` + permits + `;`, plain, []string{arguments}, "true"},
		"an obligation would be owed":          {files{"bundle.yaml": "undeclared_obligations: deny\n"}, `@obligation("log") ` + permits + `;`, plain, []string{arguments}, "true"},
		"a capability":                         {nil, permits + ` when { context.pdp has capability && context.pdp.capability.held };`, plain, []string{"/context/pdp/capability"}, "true"},
		"a capability that is read":            {nil, permits + ` when { context.pdp.capability.held };`, plain, []string{"/context/pdp/capability"}, "true"},
		"how deep a capability is":             {nil, permits + ` when { context.pdp.capability.depth > 1 };`, plain, []string{"/context/pdp/capability"}, "true"},
		"no capability, and that is known":     {nil, permits + ` when { context.pdp.capability.held };`, plain, []string{arguments}, "false"},
		"a forbid without a capability":        {nil, permits + `;` + forbids + ` unless { context.pdp.capability.held };`, plain, []string{"/context/pdp/capability"}, "true"},
		"ids in pdp are known":                 {nil, permits + ` when { context.pdp.resource.id like "z:*" };`, plain, []string{"/context", "/resource/properties", "/context/pdp/capability"}, "false"},
		"the rest of pdp is known":             {nil, permits + ` when { context.pdp.caller == "key:x" };`, plain, []string{"/context"}, "false"},
		"the whole context":                    {nil, permits + ` when { context.x == 1 };`, plain, []string{"/context"}, "true"},
		"the whole context is no action":       {nil, permits + ` when { context.action has x };`, plain, []string{"/context"}, "false"},
		"properties of the action":             {nil, permits + ` when { context.action has x };`, plain, []string{"/action/properties/x"}, "true"},
		"all properties of the action":         {nil, permits + ` when { context.action.x == 1 };`, plain, []string{"/action/properties"}, "true"},
		"nothing is unknown":                   {nil, permits + ` when { context.x == 1 };`, between(`{}`, `{}`, `{"x":1}`), nil, "true"},

		"obligations exclude each other":     {files{"obligations.yaml": stepUps}, `@obligation("b") ` + permits + `; @obligation("c") ` + permits + `;`, plain, []string{arguments}, "false obligation_conflict"},
		"unless a value makes them the same": {files{"obligations.yaml": stepUps}, `@obligation("a,b") ` + permits + `;`, plain, []string{"/context/s"}, "true"},
		"one cannot be filled":               {files{"obligations.yaml": stepUps}, `@obligation("a") ` + permits + `;`, plain, []string{arguments}, "false obligation_unfilled"},
		"one may be filled":                  {files{"obligations.yaml": stepUps}, `@obligation("a") ` + permits + `;`, plain, []string{"/context/s"}, "true"},
		"one that may apply cannot be":       {files{"obligations.yaml": stepUps}, `@obligation("a") ` + permits + ` when { context.arguments.x };`, plain, []string{arguments}, "false obligation_unfilled"},
		"another may apply without it":       {files{"obligations.yaml": stepUps}, `@obligation("a") ` + permits + ` when { context.arguments.x }; @id("other") ` + permits + ` when { context.arguments.y };`, plain, []string{arguments}, "true"},

		"an unknown type":       {nil, permits + `;`, strings.Replace(plain, `"User"`, `"__cedar::X"`, 1), []string{arguments}, "false unknown_type"},
		"an unknown entity":     {files{"bundle.yaml": "known: [User]\n"}, permits + `;`, plain, []string{arguments}, "false unknown_entity"},
		"unusable elsewhere":    {nil, permits + `;` + forbids + ` when { context has level };`, between(`{}`, `{}`, `{"level":0.5}`), []string{arguments}, "false policy_error"},
		"unusable in its place": {nil, permits + `;` + forbids + ` when { context has level && context.level > 3 };`, between(`{}`, `{}`, `{"level":0.5}`), []string{"/context/level"}, "true"},

		"parents":                               {parents, `permit (principal in Role::"a", action, resource);`, plain, []string{roles}, "true"},
		"parents, found by no index":            {parents, `permit (principal in Role::"a", action == Action::"read", resource is Doc) when { principal in Role::"b" };`, plain, []string{roles}, "true"},
		"parents of the parents":                {stored("request"), `permit (principal in Role::"super", action, resource);`, plain, []string{roles}, "true"},
		"parents of what is below":              {and(parents, "entities/e.json", `[{"uid":{"type":"Doc","id":"d"},"attrs":{},"parents":[{"type":"User","id":"u"}]}]`), `permit (principal, action, resource in Role::"a");`, plain, []string{roles}, "true"},
		"parents, in all properties":            {parents, `permit (principal in Role::"a", action, resource);`, plain, []string{"/subject/properties"}, "true"},
		"other parents are known":               {stored("request"), permits + `; forbid (principal in Team::"t", action, resource);`, plain, []string{roles}, "false never"},
		"stored parents may be replaced":        {stored("request"), permits + `; forbid (principal in Role::"old", action, resource);`, plain, []string{roles}, "true"},
		"stored parents count":                  {stored("fill"), permits + `; forbid (principal in Role::"old", action, resource);`, plain, []string{roles}, "false never"},
		"a stored property counts":              {stored("fill"), permits + ` when { principal.profile.city == "b" };`, plain, []string{"/subject/properties/profile"}, "false"},
		"a part replaces what is stored":        {stored("request"), permits + ` unless { principal has profile && principal.profile has city };`, plain, []string{"/subject/properties/profile/zip"}, "true"},
		"a part of what is sent does not":       {stored("request"), permits + ` unless { principal has profile && principal.profile has city };`, between(`{"profile":{"city":"b"}}`, `{}`, `{}`), []string{"/subject/properties/profile/zip"}, "false"},
		"through a reference":                   {stored("fill"), permits + ` when { principal.boss.friend.level == 7 };`, plain, []string{"/subject/properties/level"}, "true"},
		"a reference to another":                {stored("fill"), permits + ` when { principal.boss.level == 7 };`, plain, []string{"/subject/properties/level"}, "false"},
		"a literal":                             {nil, permits + ` when { User::"u".level == 7 };`, plain, []string{"/subject/properties/level"}, "true"},
		"a literal of another":                  {stored("fill"), permits + ` when { User::"v".level == 7 };`, plain, []string{"/subject/properties/level"}, "false"},
		"one entity, of the subject":            {nil, permits + ` when { resource.level == 7 };`, ofOne(`{}`, `{}`, `{}`), []string{"/subject/properties/level"}, "true"},
		"one entity, that the resource sends":   {nil, permits + ` when { principal.level == 7 };`, ofOne(`{}`, `{"level":7}`, `{}`), []string{"/subject/properties/level"}, "true"},
		"one entity, with what the other sends": {nil, permits + ` when { principal has x && principal.x.y == 1 };`, ofOne(`{}`, `{"x":{"y":1}}`, `{}`), []string{"/subject/properties/x/y"}, "true"},
		"one entity, and the other is known":    {nil, permits + ` when { principal has x && principal.x.y == 1 };`, ofOne(`{}`, `{"x":{"z":1}}`, `{}`), []string{"/resource/properties/x/y"}, "false"},
		"one entity, sent with two values":      {nil, permits + ` when { principal.level == 7 };`, ofOne(`{"level":6}`, `{"level":7}`, `{}`), []string{"/subject/properties/level"}, "true"},

		"all is required":             {typed(`{}`, `{}`, allRequired), permits + `;`, plain, []string{"/context"}, "true"},
		"each is required":            {typed(`{}`, `{}`, allRequired), permits + `;`, plain, []string{"/context/d", "/context/i", "/context/t", "/context/s", "/context/l", "/context/r", "/context/u", "/context/c", "/context/b", "/context/n", "/context/x"}, "true"},
		"one is required and missing": {typed(`{}`, `{}`, `{n: Long, x: String}`), permits + `;`, plain, []string{"/context/n"}, "false schema_mismatch"},
		"one does not fit":            {typed(`{}`, `{}`, `{n: Long, x: String}`), permits + `;`, between(`{}`, `{}`, `{"x":1}`), []string{"/context/n"}, "false schema_mismatch"},
		"it does not fit itself":      {typed(`{}`, `{}`, `{n: Long}`), permits + `;`, between(`{}`, `{}`, `{"n":"x"}`), []string{"/context/n"}, "true"},
		"required above it":           {typed(`{}`, `{}`, `{r: {a: Long, b?: Long}}`), permits + `;`, plain, []string{"/context/r/a"}, "true"},
		"required above it, optional": {typed(`{}`, `{}`, `{r: {b?: Long}}`), permits + `;`, plain, []string{"/context/r/b"}, "true"},
		"required beside it":          {typed(`{}`, `{}`, `{r: {a: Long, b?: Long}}`), permits + `;`, plain, []string{"/context/r/b"}, "false schema_mismatch"},
		"optional above it":           {typed(`{}`, `{}`, `{r?: {a: Long, b: Long}}`), permits + ` unless { context has r };`, plain, []string{"/context/r/b"}, "true"},
		"undeclared":                  {typed(`{}`, `{}`, `{}`), permits + `;`, plain, []string{"/context/odd", "/subject/properties/odd/x"}, "true"},
		"undeclared and refused":      {and(typed(`{}`, `{}`, `{}`), "bundle.yaml", "unknown_properties: reject\n"), permits + `;`, between(`{}`, `{}`, `{"odd":1}`), []string{"/context/odd"}, "true"},
		"required of the subject":     {typed(`{level: Long}`, `{}`, `{}`), permits + ` when { principal.level > 3 };`, plain, []string{"/subject/properties/level"}, "true"},
		"required, not evaluated":     {and(typed(`{level: Long}`, `{}`, `{}`), "bundle.yaml", "unknown_entities: evaluate\n"), permits + ` when { principal.level > 3 };`, plain, []string{arguments}, "false"},
		"an enumerated parent":        {and(typed(`{group: String}`, `{}`, `{}`), "bundle.yaml", "parents: {User: {group: Color}}\n"), `permit (principal in Color::"red", action, resource);`, plain, []string{"/subject/properties/group"}, "true"},
		"a typed reference":           {typed(`{level?: Long}`, `{}`, `{by?: User}`), permits + ` when { context has by && context.by has level && context.by.level > 3 };`, between(`{}`, `{}`, `{"by":"u"}`), []string{"/subject/properties/level"}, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			more := map[string]string{}
			for file, text := range tt.files {
				more[file] = text
			}
			if text, ok := more["obligations.yaml"]; ok {
				more["obligations.yaml"] = text + "c: {type: step-up, properties: {acr_value: other}}\n"
			}
			p := pdp.Of(hiddenBundle(t, tt.policies, more), pdp.Options{})
			body := notKnowing(tt.body, tt.unknown...)
			if tt.unknown == nil {
				body = strings.TrimSuffix(tt.body, "}") + `,"options":{"unknown":[]}}`
			}
			r := decoded(t, body)
			d, err := p.Evaluate(context.Background(), pdp.Call{Request: r})
			if err != nil {
				t.Fatal(err)
			}
			if got := possibleOf(d); got != tt.want {
				t.Errorf("%s\ngot %s %+v, want %s", body, got, d, tt.want)
			}
			if len(d.Obligations)+len(d.Required)+len(d.Met) > 0 || d.ReasonUser != "" {
				t.Errorf("the answer says too much: %+v", d)
			}
		})
	}
}

// possibleOf is a decision in a word or two: "false never" is a deny by a forbid.
func possibleOf(d evaluation.Decision) string {
	possible := d.Possible == evaluation.Possible
	switch {
	case d.Allow || d.Possible == evaluation.Decided:
		return "a decision"
	case d.Reason != "":
		return fmt.Sprintf("%t %s", possible, d.Reason)
	case !possible && len(d.Determining) > 0:
		return "false never"
	}
	return fmt.Sprint(possible)
}

// TestUnknownDetermining: the record of an answer names the permits that apply whatever the values are, or else those
// that may; and the forbids that apply whatever they are.
func TestUnknownDetermining(t *testing.T) {
	t.Parallel()
	const always, may, never = `@id("always") ` + permits + ` when { context.x }; `, `@id("may") ` + permits + ` when { context.arguments.n > 1 }; `,
		`@id("never") ` + forbids + ` when { context.y || context.arguments.n > 1 }; @id("perhaps") ` + forbids + ` when { context.arguments.n > 1 };`
	p := pdp.Of(hiddenBundle(t, always+may+never, map[string]string{"bundle.yaml": "forbid_errors: ignore\n"}), pdp.Options{})
	for context, want := range map[string]string{
		`{"x":true,"y":false}`: "true [always]", `{"x":false,"y":false}`: "true [may]", `{"x":true,"y":true}`: "false [never]",
	} {
		r := decoded(t, notKnowing(between(`{}`, `{}`, context), "/context/arguments"))
		d, err := p.Evaluate(t.Context(), pdp.Call{Request: r})
		if got := fmt.Sprint(d.Possible == evaluation.Possible, d.Determining); err != nil || got != want {
			t.Errorf("%s: got %s, want %s, %v", context, got, want, err)
		}
	}
}

// TestUnknownExplained: an explanation says which policies can apply, and which attributes are not known.
func TestUnknownExplained(t *testing.T) {
	t.Parallel()
	p := pdp.Of(hiddenBundle(t, `@id("reads") `+permits+` when { context.x && context.arguments.n > 1 }; @id("not") `+permits+` when { context.y };
		@id("near") `+permits+` when { context.arguments.n > 1 && context.y };`, nil), pdp.Options{})
	for body, want := range map[string]string{
		`{"x":true,"y":false}`: `near permit not_satisfied [{context.arguments.n unknown} {context.y sent}]; not permit not_satisfied [{context.y sent}]; ` +
			`reads permit unknown [{context.arguments.n unknown} {context.x sent}]; `,
		`{"x":false,"y":false}`: `near permit not_satisfied when { context.y } [{context.arguments.n unknown} {context.y sent}]; not permit not_satisfied when { context.y } [{context.y sent}]; ` +
			`reads permit not_satisfied when { context.x } [{context.arguments.n unknown} {context.x sent}]; `,
	} {
		r := decoded(t, notKnowing(between(`{}`, `{}`, body), "/context/arguments"))
		d, err := p.Evaluate(t.Context(), pdp.Call{Request: r, Explain: true})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range d.Explain.Policies {
			got += fmt.Sprint(e.ID, " ", e.Effect, " ", e.Verdict, " ", e.Failed, " ", e.Attributes, "; ")
		}
		if got = strings.ReplaceAll(got, "  ", " "); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
	}
}

// TestUnknownInManyIfs: what a policy can come to is found out part by part, and not for each way through it.
func TestUnknownInManyIfs(t *testing.T) {
	t.Parallel()
	condition := "context.arguments.last"
	for n := range 60 {
		condition = fmt.Sprintf("(if context.arguments.a%d then %s else false)", n, condition)
	}
	p := pdp.Of(hiddenBundle(t, permits+" when { "+condition+" };", nil), pdp.Options{})
	r := decoded(t, notKnowing(between(`{}`, `{}`, `{}`), "/context/arguments"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if d, err := p.Evaluate(ctx, pdp.Call{Request: r}); err != nil || d.Possible != evaluation.Possible {
		t.Errorf("got %+v, %v", d, err)
	}
}

// inAChain returns a function that asks what a policy of so many conditions can come to.
func inAChain(t *testing.T, links int, op string) func() {
	r := decoded(t, notKnowing(between(`{}`, `{}`, `{}`), "/context/arguments"))
	condition := strings.Repeat("context.arguments.n == 1"+op, links) + "false"
	p := pdp.Of(hiddenBundle(t, permits+" unless { "+condition+" };", nil), pdp.Options{})
	return func() {
		t.Helper()
		if d, err := p.Evaluate(t.Context(), pdp.Call{Request: r}); err != nil || d.Possible != evaluation.Possible {
			t.Errorf("got %+v, %v", d, err)
		}
	}
}

// TestUnknownInALongChain: what a long policy can come to is found out.
func TestUnknownInALongChain(t *testing.T) {
	t.Parallel()
	for _, op := range []string{" || ", " && "} {
		inAChain(t, 800, op)()
	}
}

// TestCostOfALongChain: that costs in proportion to its length.
func TestCostOfALongChain(t *testing.T) {
	night.Measures(t)
	cost := func(links int, op string) float64 { return testing.AllocsPerRun(2, inAChain(t, links, op)) }
	for _, op := range []string{" || ", " && "} {
		if few, many := cost(200, op), cost(800, op); many > 6*few {
			t.Errorf("%s: 200 links cost %.0f allocations, and 800 cost %.0f", op, few, many)
		}
	}
}

// TestUnknownEndsInTime: a question about many policies ends with its context, and then there is no answer.
func TestUnknownEndsInTime(t *testing.T) {
	t.Parallel()
	p := pdp.Of(hiddenBundle(t, permits+" when { context.arguments.n == 1 };", nil), pdp.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d, err := p.Evaluate(ctx, pdp.Call{Request: decoded(t, notKnowing(between(`{}`, `{}`, `{}`), "/context/arguments"))})
	if !errors.Is(err, context.Canceled) || d.Allow {
		t.Errorf("got %+v, %v", d, err)
	}
}

// TestSearchAsksNothingUnknown: a result of a search is a permit, so a search cannot ask what is possible.
func TestSearchAsksNothingUnknown(t *testing.T) {
	t.Parallel()
	p := pdp.Of(hiddenBundle(t, permits+` when { context.arguments.n == 1 };`, map[string]string{"entities/e.json": `[{"uid":{"type":"Doc","id":"d"},"attrs":{},"parents":[]}]`}), pdp.Options{})
	search := pdp.SearchCall{Limit: 10, Search: evaluation.Search{Kind: evaluation.ResourceSearch, Request: decoded(t, between(`{}`, `{}`, `{}`))}}
	if found, err := p.Search(t.Context(), search); err != nil || len(found.Found) != 0 || found.Examined != 1 {
		t.Fatalf("got %+v, %v", found, err)
	}
	search.Search.Request = decoded(t, notKnowing(between(`{}`, `{}`, `{}`), "/context/arguments"))
	found, err := p.Search(t.Context(), search)
	var bad *evaluation.Error
	if !errors.As(err, &bad) || bad.Pointer != "/options/unknown" || len(found.Found) != 0 {
		t.Errorf("got %+v, %v", found, err)
	}
}
