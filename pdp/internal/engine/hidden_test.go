package engine_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// hiddenBundle is a bundle with one policy that a test writes, and a schema.
func hiddenBundle(t *testing.T, policies string, more map[string]string) *pdp.Bundle {
	t.Helper()
	files := fstest.MapFS{"policies.cedar": {Data: []byte(policies)}, "bundle.yaml": {Data: []byte("allow_trivial: true\n" + more["bundle.yaml"])}}
	for name, text := range more {
		if name != "bundle.yaml" {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	b, problems := pdp.Load(pdp.FS(files))
	if problems.Refuse() {
		t.Fatal(problems.Error())
	}
	return b
}

const hiddenSchema = `
entity Group;
entity User in [Group] = { secret_level?: Long, secret_group?: Group, secret_ip?: ipaddr };
entity Doc = { token?: decimal };
action read appliesTo { principal: User, resource: Doc, context: {
  token: String, secret_n: Long, secret_flag?: Bool, secret_at?: datetime, secrets?: Set<String>, secret?: { a: Long, b?: String } } };
`

// Each policy decides this request, of which the named values are hidden. want is the decision, or the places on which
// it may hang.
func TestHidden(t *testing.T) {
	t.Parallel()
	const body = `{"subject":{"type":"User","id":"u","properties":{"secret_level":7,"secret_group":"g","secret_ip":"10.0.0.1"}},"action":{"name":"read"},
		"resource":{"type":"Doc","id":"d","properties":{"token":1.5}},
		"context":{"token":"t","secret_n":5,"secret_flag":true,"secret_at":"2026-01-01","secrets":["a","b"],"secret":{"a":1,"b":"x"}}}`
	request, err := evaluation.Decode([]byte(body), "default", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{
		"/subject/properties/secret_level": "number", "/subject/properties/secret_group": "string", "/subject/properties/secret_ip": "string",
		"/resource/properties/token": "number", "/context/token": "string", "/context/secret_n": "number", "/context/secret_flag": "bool",
		"/context/secret_at": "string", "/context/secrets": "array", "/context/secret": "object", "/context/secrets/0": "string",
	}
	var all []string
	for at := range types {
		if at != "/context/secrets/0" {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	for name, tt := range map[string]struct {
		policies string
		hidden   []string
		want     string
	}{
		"nothing is read":               {`permit (principal, action, resource);`, all, "allow"},
		"presence alone":                {`permit (principal, action, resource) when { context has secret_flag && principal has secret_level && context has secret };`, all, "allow"},
		"a text":                        {`permit (principal, action, resource) when { context.token == "t" };`, all, "/context/token"},
		"a text that cannot matter":     {`permit (principal, action, resource) when { context.token == "t" && resource == Doc::"other" };`, all, "deny"},
		"any text will do":              {`permit (principal, action, resource) when { context.token == "t" || context.token != "t" };`, all, "/context/token"},
		"every text is like one":        {`permit (principal, action, resource) when { context.token like "*" };`, all, "/context/token"},
		"patterns that exclude another": {`permit (principal, action, resource) when { context.token like "a*" && context.token like "b*" };`, all, "/context/token"},
		"another number":                {`permit (principal, action, resource) when { context.secret_n > 3 };`, all, "/context/secret_n"},
		"every number":                  {`permit (principal, action, resource) when { context.secret_n > 3 || context.secret_n <= 3 };`, all, "/context/secret_n"},
		"a sum":                         {`permit (principal, action, resource) when { context.secret_n + 1 > 3 };`, all, "/context/secret_n"},
		"a forbid holds anyway":         {`permit (principal, action, resource) when { context.token == "t" }; forbid (principal, action, resource);`, all, "deny"},
		"a permit holds anyway":         {`permit (principal, action, resource) when { context.token == "t" }; permit (principal, action, resource);`, all, "allow"},
		"two are compared":              {`permit (principal, action, resource) when { principal has secret_level && context.secret_n == principal.secret_level };`, all, "/context/secret_n /subject/properties/secret_level"},
		"a set":                         {`permit (principal, action, resource) when { context has secrets && context.secrets.contains("a") };`, all, "/context/secrets"},
		"a set that holds both":         {`permit (principal, action, resource) when { context has secrets && context.secrets.contains("a") && !context.secrets.contains("a") };`, all, "/context/secrets"},
		"an element":                    {`permit (principal, action, resource) when { context has secrets && context.secrets.contains("z") };`, []string{"/context/secrets/0"}, "/context/secrets/0"},
		"the other element":             {`permit (principal, action, resource) when { context has secrets && context.secrets.contains("b") };`, []string{"/context/secrets/0"}, "/context/secrets/0"},
		"beside a known one":            {`permit (principal, action, resource) when { resource == Doc::"d" || context.token == "t" };`, all, "allow"},
		"a forbid that may apply":       {`permit (principal, action, resource); forbid (principal, action, resource) when { context.secret_n > 3 };`, all, "/context/secret_n"},
		"no permit, whatever a forbid":  {`permit (principal, action, resource == Doc::"other"); forbid (principal, action, resource) when { context.secret_n > 3 };`, all, "deny"},
		"what a forbid says":            {`@id("a") forbid (principal, action, resource); @id("b") @reason_user("no") forbid (principal, action, resource) when { context.secret_n > 3 };`, all, "/context/secret_n"},
		"inside an object":              {`permit (principal, action, resource) when { context has secret && context.secret.a == 1 };`, all, "/context/secret"},
		"an extension value":            {`permit (principal, action, resource) when { context has secret_at && context.secret_at < datetime("2027-01-01") };`, all, "/context/secret_at"},
		"a decimal":                     {`permit (principal, action, resource) when { resource has token && resource.token.lessThan(decimal("2.0")) };`, all, "/resource/properties/token"},
		"an entity":                     {`permit (principal, action, resource) when { principal has secret_group && principal.secret_group == Group::"g" };`, all, "/subject/properties/secret_group"},
		"an ip":                         {`permit (principal, action, resource) when { principal has secret_ip && principal.secret_ip.isIpv4() };`, all, "/subject/properties/secret_ip"},
		"a boolean":                     {`permit (principal, action, resource) when { context has secret_flag && context.secret_flag };`, all, "/context/secret_flag"},
		"through the entity":            {`permit (principal, action, resource) when { (if context has secret then principal else principal) has secret_level && (if context has secret then principal else principal).secret_level > 3 };`, all, "/subject/properties/secret_level"},
	} {
		t.Run(name, func(t *testing.T) {
			b := hiddenBundle(t, tt.policies, map[string]string{"schema.cedarschema": hiddenSchema})
			call := pdp.Call{Request: request}
			for _, at := range tt.hidden {
				call.Hidden = append(call.Hidden, evaluation.Hidden{At: at, Type: types[at], Fit: evaluation.Fits})
				masked, _ := evaluation.Text("masked:0123456789012345678901")
				call.Request = put(call.Request, at, masked)
			}
			if got := decidedAgain(t, b, call); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestHiddenOfAnUnknownType: if a type is not known, nothing else was looked at, whatever is hidden.
func TestHiddenOfAnUnknownType(t *testing.T) {
	t.Parallel()
	b := hiddenBundle(t, `permit (principal, action, resource);`, nil)
	request, err := evaluation.Decode([]byte(`{"subject":{"type":"__cedar::X","id":"u"},"action":{"name":"read"},"resource":{"type":"Doc","id":"d"}}`), "default", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	call := pdp.Call{Request: request, Hidden: []evaluation.Hidden{{At: "/context", Type: "object"}, {At: "/nowhere", Type: "string"}}}
	if got := decidedAgain(t, b, call); got != "deny unknown_type" {
		t.Errorf("got %s", got)
	}
}

// TestHiddenIsFilledIn: a decision whose obligation says a masked value hangs on it.
func TestHiddenIsFilledIn(t *testing.T) {
	t.Parallel()
	const schema = `entity User, Doc; action read appliesTo { principal: User, resource: Doc, context: { arguments: { amount: decimal, who?: String } } };`
	const permit = `permit (principal, action == Action::"read", resource)`
	files := func(yaml string) map[string]string {
		return map[string]string{"schema.cedarschema": schema, "obligations.yaml": yaml}
	}
	const (
		amount  = "o: {type: step-up, properties: {acr_value: \"${context.arguments.amount}\"}}\n"
		who     = "o: {type: step-up, properties: {acr_value: \"${context.arguments.who}\"}}\n"
		another = "p: {type: step-up, properties: {acr_value: \"500.0\"}}\n"
		inside  = "o: {type: step-up, properties: {acr_value: \"${context.arguments.who}\"}}\np: {type: step-up, properties: {acr_value: abc}}\n"
	)
	for name, tt := range map[string]struct {
		policies, definitions string
		hidden                evaluation.Hidden
		want                  string
	}{
		"a decimal":                      {`@obligation("o") ` + permit + `;`, amount, evaluation.Hidden{At: "/context/arguments/amount", Type: "number", Fit: evaluation.Fits}, "/context/arguments/amount"},
		"a decimal, or the same":         {`@obligation("o, p") ` + permit + `;`, amount + another, evaluation.Hidden{At: "/context/arguments/amount", Type: "number", Fit: evaluation.Fits}, "/context/arguments/amount"},
		"a text, empty or not":           {`@obligation("o") ` + permit + `;`, who, evaluation.Hidden{At: "/context/arguments/who", Type: "string", Fit: evaluation.Fits}, "/context/arguments/who"},
		"a text, or the same":            {`@obligation("o, p") ` + permit + `;`, inside, evaluation.Hidden{At: "/context/arguments/who", Type: "string", Fit: evaluation.Fits}, "/context/arguments/who"},
		"it may be in what is hidden":    {`@obligation("o") ` + permit + `;`, who, evaluation.Hidden{At: "/context/arguments", Type: "object", Fit: evaluation.Fits}, "/context/arguments"},
		"it is beside what is hidden":    {`@obligation("o") ` + permit + `;`, amount, evaluation.Hidden{At: "/context/arguments/who", Type: "string", Fit: evaluation.Fits}, "allow"},
		"a name that only begins as one": {`@obligation("log") ` + permit + `;`, amount, evaluation.Hidden{At: "/context/arguments/amount", Type: "number", Fit: evaluation.Fits}, "allow"},
	} {
		t.Run(name, func(t *testing.T) {
			b := hiddenBundle(t, tt.policies, files(tt.definitions))
			call := pdp.Call{
				Request: decoded(t, between(`{}`, `{}`, `{"arguments":{"amount":7,"who":"x"},"supported_obligations":["step-up","log"]}`)),
				Hidden:  []evaluation.Hidden{tt.hidden},
			}
			if got := decidedAgain(t, b, call); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestHiddenOfWhatIsPossible: what a mask hides is as unknown as the rest, and the answer hangs on it if anything looks at
// it.
func TestHiddenOfWhatIsPossible(t *testing.T) {
	t.Parallel()
	const permit, forbid = `permit (principal, action, resource)`, `forbid (principal, action, resource)`
	schema := map[string]string{"schema.cedarschema": hiddenSchema}
	for name, tt := range map[string]struct {
		policies string
		more     map[string]string
		at       string
		fit      evaluation.Fit
		want     string
	}{
		"read":                         {permit + ` when { context.token == "t" && context.arguments.n == 1 };`, nil, "/context/token", evaluation.Fits, "/context/token"},
		"not read":                     {permit + ` when { context.arguments.n == 1 };`, nil, "/context/token", evaluation.Fits, "possible"},
		"read by what cannot apply":    {permit + `; permit (principal, action, resource == Doc::"other") when { context.token == "t" };`, nil, "/context/token", evaluation.Fits, "possible"},
		"denied with any value":        {forbid + `; ` + permit + ` when { context.token == "t" };`, nil, "/context/token", evaluation.Fits, "impossible"},
		"denied, and why is not known": {permit + ` when { context.token == "t" }; ` + forbid + ` when { context.missing };`, nil, "/context/token", evaluation.Fits, "/context/token"},
		"denied, and why is known":     {permit + `; ` + forbid + ` when { context.missing };`, nil, "/context/token", evaluation.Fits, "deny policy_error"},
		"denied, if it applies at all": {`@obligation("o") ` + permit + ` when { context.token == "t" };`, map[string]string{"obligations.yaml": "o: {type: step-up, properties: {acr_value: \"${context.missing}\"}}"}, "/context/token", evaluation.Fits, "/context/token"},
		"denied, if it is no other":    {`@obligation("o,p,q") ` + permit + `;`, map[string]string{"obligations.yaml": "o: {type: step-up, properties: {acr_value: \"${context.token}\"}}\np: {type: step-up, properties: {acr_value: \"${context.missing}\"}}\nq: {type: step-up, properties: {acr_value: q}}"}, "/context/token", evaluation.Fits, "/context/token"},
		"denied, if it fits":           {forbid + `; ` + permit + ` when { context.token == "t" };`, nil, "/context/token", evaluation.FitUnknown, "/context/token"},
		"not read, if it fits":         {permit + ` when { context.arguments.n == 1 };`, nil, "/context/token", evaluation.FitUnknown, "possible"},
		"in what was unknown":          {permit + ` when { context.arguments.n == 1 };`, nil, "/context/arguments/n", evaluation.FitUnknown, "possible"},
		"around what was unknown":      {permit + ` when { context.arguments.n == 1 };`, nil, "/context", evaluation.Fits, "/context"},
		"what no policy sees":          {permit + `;`, nil, "/context/supported_obligations", evaluation.FitUnknown, "possible"},
		"where nothing is":             {permit + `;`, nil, "/nowhere", evaluation.FitUnknown, "/nowhere"},
		"it fits the schema":           {permit + `;`, schema, "/context/token", evaluation.Fits, "possible"},
		"it may not fit the schema":    {permit + `;`, schema, "/context/secret_n", evaluation.FitUnknown, "/context/secret_n"},
		"every text fits the schema":   {permit + `;`, schema, "/context/token", evaluation.FitUnknown, "possible"},
		"it is filled in":              {`@obligation("o") ` + permit + `;`, map[string]string{"obligations.yaml": "o: {type: step-up, properties: {acr_value: \"${context.token}\"}}"}, "/context/token", evaluation.Fits, "/context/token"},
		"it gives parents":             {permit + `; forbid (principal in Group::"g", action, resource);`, map[string]string{"bundle.yaml": "parents: {User: {group: Group}}\n"}, "/subject/properties/group", evaluation.Fits, "/subject/properties/group"},
	} {
		t.Run(name, func(t *testing.T) {
			call := pdp.Call{Request: decoded(t, notKnowing(between(`{"group":"x"}`, `{}`, `{"token":"x","secret_n":1}`), "/context/arguments"))}
			call.Hidden = []evaluation.Hidden{{At: tt.at, Type: "string", Fit: tt.fit}}
			if got := decidedAgain(t, hiddenBundle(t, tt.policies, tt.more), call); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
