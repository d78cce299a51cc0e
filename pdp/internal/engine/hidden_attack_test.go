package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest/night"
)

// hiddenAttack is a request that was sent, and what of it is hidden: whatever is made of it, the answer
// must not be a wrong one.
type hiddenAttack struct {
	files    files
	policies string
	sent     string
	hidden   places
	masked   string // what is on record; "" has a placeholder at each place
	approved string
}

type (
	places = []evaluation.Hidden
	files  = map[string]string
)

const (
	permits = `permit (principal, action, resource)`
	forbids = `forbid (principal, action, resource)`
	stepUps = "a: {type: step-up, properties: {acr_value: \"${context.s}\"}}\nb: {type: step-up, properties: {acr_value: abcdefghijklm}}\n"
)

func known(at, typ string) evaluation.Hidden {
	return evaluation.Hidden{At: at, Type: typ, Fit: evaluation.Fits}
}

func unfit(at, typ string) evaluation.Hidden { return evaluation.Hidden{At: at, Type: typ} }

// between is a request of a user about a doc, acting one with properties of the action, and ofOne one of a
// user about the same user.
func between(subject, resource, context string) string {
	return acting(subject, "{}", resource, context)
}

func acting(subject, action, resource, context string) string {
	return `{"subject":{"type":"User","id":"u","properties":` + subject + `},"action":{"name":"read","properties":` + action + `},"resource":{"type":"Doc","id":"d","properties":` + resource + `},"context":` + context + `}`
}

func ofOne(subject, resource, context string) string {
	return `{"subject":{"type":"User","id":"u","properties":` + subject + `},"action":{"name":"read"},"resource":{"type":"User","id":"u","properties":` + resource + `},"context":` + context + `}`
}

// typed is a schema with these attributes and this context.
func typed(user, doc, context string) files {
	return files{"schema.cedarschema": `entity Group; entity Color enum ["red","green"]; entity User in [Group, Color] = ` + user + `; entity Doc = ` + doc + `; action read appliesTo { principal: User, resource: [Doc,User], context: ` + context + ` };`}
}

func and(f files, name, text string) files {
	f = maps.Clone(f)
	f[name] += text
	return f
}

// saidOf is what a caller would see of an answer, or that it is unknown.
func saidOf(d evaluation.Decision, err error) string {
	var unknown *pdp.Unknown
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprint("unknown ", unknown)
	case err != nil:
		return "error " + err.Error()
	}
	s := fmt.Sprint(d.Allow, d.Reason, d.ReasonUser, d.Required, d.LeftOut)
	for _, o := range d.Obligations {
		s += " " + o.ID + ":" + o.Type
	}
	return s
}

// TestHiddenAttacks: no exact answer is another than that to what was sent.
func TestHiddenAttacks(t *testing.T) {
	t.Parallel()
	placeholders := map[string]any{"string": "masked:0123456789012345678901", "number": 0, "bool": true, "object": map[string]any{}, "array": []any{}}
	for name, tt := range map[string]hiddenAttack{
		"enum parents text":                      {and(typed(`{group: String}`, `{}`, `{}`), "bundle.yaml", "parents: {User: {group: Color}}\n"), permits + ";", between(`{"group":"red"}`, `{}`, `{}`), places{known("/subject/properties/group", "string")}, "", ""},
		"reference as object":                    {typed(`{}`, `{}`, `{owner: User}`), permits + ";", between(`{}`, `{}`, `{"owner":{"type":"User","id":"a"}}`), places{known("/context/owner", "object")}, "", ""},
		"decimal as text":                        {typed(`{}`, `{}`, `{d: decimal}`), permits + ";", between(`{}`, `{}`, `{"d":"1.5"}`), places{known("/context/d", "string")}, "", ""},
		"contains a sum":                         {nil, permits + ` when { context.l.contains(context.n + 1) };`, between(`{}`, `{}`, `{"l":[5,6],"n":4}`), places{known("/context/n", "number")}, "", ""},
		"parents of declared entity":             {and(typed(`{group: Group}`, `{}`, `{}`), "bundle.yaml", "parents: {User: {group: Group}}\n"), permits + ` when { principal in Group::"g" };`, between(`{"group":"g"}`, `{}`, `{}`), places{known("/subject/properties/group", "string")}, "", ""},
		"parents of declared set":                {and(typed(`{groups: Set<Group>}`, `{}`, `{}`), "bundle.yaml", "parents: {User: {groups: Group}}\n"), permits + ` when { principal in Group::"g" };`, between(`{"groups":["g"]}`, `{}`, `{}`), places{known("/subject/properties/groups", "array")}, "", ""},
		"element of declared set":                {and(typed(`{groups: Set<Group>}`, `{}`, `{}`), "bundle.yaml", "parents: {User: {groups: Group}}\n"), permits + ` when { principal in Group::"g" };`, between(`{"groups":["g"]}`, `{}`, `{}`), places{known("/subject/properties/groups/0", "string")}, "", ""},
		"whole resource of one":                  {nil, permits + ` when { !(principal has role) };`, ofOne(`{}`, `{"role":"x"}`, `{}`), places{unfit("/resource/properties", "object")}, "", ""},
		"whole subject of one":                   {nil, permits + ` when { principal has role && principal.role == "admin" };`, ofOne(`{"role":"admin"}`, `{"role":"admin"}`, `{}`), places{known("/subject/properties", "object")}, "", ""},
		"whole context unusable name":            {nil, permits + ` when { !(principal has level) };`, between(`{}`, `{}`, `{"level":0.5}`), places{unfit("/context", "object")}, "", ""},
		"whole context, forbid_errors ignore":    {files{"bundle.yaml": "forbid_errors: ignore\n"}, permits + `; ` + forbids + ` when { context.flag && resource.locked };`, between(`{}`, `{"locked":false}`, `{"flag":0.5}`), places{unfit("/context", "object")}, "", ""},
		"whole context misfits schema":           {typed(`{}`, `{}`, `{flag?: Bool}`), permits + `;`, between(`{}`, `{}`, `{"flag":1}`), places{unfit("/context", "object")}, "", ""},
		"object misfit optional":                 {typed(`{}`, `{}`, `{o: {a?: Long}}`), permits + `;`, between(`{}`, `{}`, `{"o":{"a":"s"}}`), places{unfit("/context/o", "object")}, "", ""},
		"object Misfits optional":                {typed(`{}`, `{}`, `{o: {a?: Long}}`), permits + `;`, between(`{}`, `{}`, `{"o":{"a":"s"}}`), places{{At: "/context/o", Type: "object", Fit: evaluation.Misfits}}, "", ""},
		"subject misfits":                        {typed(`{x?: Long}`, `{}`, `{}`), permits + `;`, between(`{"x":"s"}`, `{}`, `{}`), places{{At: "/subject/properties", Type: "object", Fit: evaluation.Misfits}}, "", ""},
		"context with pdp":                       {typed(`{}`, `{}`, `{pdp: {now: datetime, tenant: String, caller: String, approved: Bool}, flag: Bool}`), permits + `;`, between(`{}`, `{}`, `{"flag":1}`), places{unfit("/context", "object")}, "", ""},
		"whole context Misfits no schema":        {nil, permits + ` when { !(context has flag) };`, between(`{}`, `{}`, `{"flag":true,"y":0.5}`), places{{At: "/context", Type: "object", Fit: evaluation.Misfits}}, "", ""},
		"id of a reference":                      {typed(`{}`, `{}`, `{owner: User}`), permits + ` when { context.owner == User::"alice" };`, between(`{}`, `{}`, `{"owner":{"type":"User","id":"alice"}}`), places{known("/context/owner/id", "string")}, "", ""},
		"id in a set":                            {typed(`{}`, `{}`, `{owners: Set<User>}`), permits + ` when { context.owners.contains(User::"alice") };`, between(`{}`, `{}`, `{"owners":[{"type":"User","id":"alice"}]}`), places{known("/context/owners/0/id", "string")}, "", ""},
		"nested sets":                            {nil, permits + ` when { context.l.contains(["a"]) };`, between(`{}`, `{}`, `{"l":[["a"]]}`), places{known("/context/l", "array")}, "", ""},
		"nested equals":                          {nil, permits + ` when { context.l == [["a"]] };`, between(`{}`, `{}`, `{"l":[["a"]]}`), places{known("/context/l", "array")}, "", ""},
		"set holds record of another":            {nil, permits + ` when { context.l.contains(resource.rec) };`, between(`{}`, `{"rec":{"a":1}}`, `{"l":[{"a":1}]}`), places{known("/context/l", "array")}, "", ""},
		"set of bools":                           {typed(`{}`, `{}`, `{l: Set<Bool>}`), permits + ` when { context.l.isEmpty() || context.l.contains(true) };`, between(`{}`, `{}`, `{"l":[false]}`), places{known("/context/l", "array")}, "", ""},
		"set of bools empty":                     {typed(`{}`, `{}`, `{l: Set<Bool>}`), permits + ` when { context.l.isEmpty() };`, between(`{}`, `{}`, `{"l":[false]}`), places{known("/context/l", "array")}, "", ""},
		"max":                                    {typed(`{}`, `{}`, `{l: Set<Long>}`), permits + ` when { context.l.isEmpty() || context.l.contains(9223372036854775807) };`, between(`{}`, `{}`, `{"l":[1]}`), places{known("/context/l", "array")}, "", ""},
		"renamed member, pdp declared":           {typed(`{}`, `{}`, `{pdp: {now: datetime, tenant: String, caller: String, approved: Bool}, n: Long}`), permits + ` when { context.n == 5 };`, between(`{}`, `{}`, `{"n":5,"k":1}`), places{{At: "/context", Type: "object", Part: true, Fit: evaluation.Fits}}, between(`{}`, `{}`, `{"n":5,"masked:abc":1}`), ""},
		"renamed required member":                {typed(`{}`, `{}`, `{n: Long, key: String}`), permits + ` when { context.n == 5 };`, between(`{}`, `{}`, `{"n":5,"key":"v"}`), places{{At: "/context", Type: "object", Part: true, Fit: evaluation.Fits}}, between(`{}`, `{}`, `{"n":5,"masked:abc":"v"}`), ""},
		"renamed of unknown fit (named wrongly)": {nil, permits + ` when { context.n == 5 };`, between(`{}`, `{}`, `{"n":5,"key":"v"}`), places{{At: "/context", Type: "object", Part: true}}, between(`{}`, `{}`, `{"n":5,"masked:abc":"v"}`), ""},
		"renamed unusable":                       {nil, permits + ` when { !(principal has level) };`, between(`{}`, `{}`, `{"n":5,"level":0.5}`), places{{At: "/context", Type: "object", Part: true}}, between(`{}`, `{}`, `{"n":5,"masked:abc":0.5}`), ""},
		"hard and empty":                         {files{"obligations.yaml": "a: {type: step-up, properties: {acr_value: \"${context.s}\"}}\n"}, `@obligation("a") ` + permits + `; ` + permits + ` when { context.s like "*aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };`, between(`{}`, `{}`, `{"s":"","supported_obligations":["step-up"]}`), places{known("/context/s", "string")}, "", ""},
		"in within in":                           {files{"bundle.yaml": "parents: {User: {group: Group}}\n", "entities/e.json": `[{"uid":{"type":"Doc","id":"d"},"attrs":{"team":{"__entity":{"type":"Group","id":"t"}}},"parents":[]},{"uid":{"type":"User","id":"v"},"attrs":{},"parents":[{"type":"Group","id":"z"}]}]`}, permits + ` when { (if principal in resource.team then User::"v" else principal) in Group::"z" };`, between(`{"group":"t"}`, `{}`, `{}`), places{known("/subject/properties/group", "string")}, "", ""},
		"removed below a removed":                {nil, permits + ` when { context.a.b == "x" };`, between(`{}`, `{}`, `{"a":{"b":"x"}}`), places{{At: "/context/a/b", Type: "string", Removed: true, Fit: evaluation.Fits}}, between(`{}`, `{}`, `{}`), ""},
		"whole subject":                          {nil, permits + ` when { principal.x == "x" };`, between(`{"x":"x"}`, `{}`, `{}`), places{{At: "/subject", Type: "object", Fit: evaluation.Fits}}, between(`{}`, `{}`, `{}`), ""},
		"overlapping":                            {nil, permits + ` when { context.l.contains("b") };`, between(`{}`, `{}`, `{"l":["b"]}`), places{known("/context/l", "array"), known("/context/l/0", "string")}, between(`{}`, `{}`, `{"l":["masked:q"]}`), ""},
		"enum set other":                         {typed(`{}`, `{}`, `{c: Color}`), permits + ` when { context.c == Color::"red" };`, between(`{}`, `{}`, `{"c":"red"}`), places{known("/context/c", "string")}, "", ""},
		"set of sets":                            {typed(`{}`, `{}`, `{l: Set<Set<Long>>}`), permits + ` when { context.l.contains([1]) };`, between(`{}`, `{}`, `{"l":[[1]]}`), places{known("/context/l/0/0", "number")}, between(`{}`, `{}`, `{"l":[[0]]}`), ""},
		"set of records":                         {typed(`{}`, `{}`, `{l: Set<{a: Long}>}`), permits + ` when { context.l.contains({a: 1}) };`, between(`{}`, `{}`, `{"l":[{"a":1}]}`), places{known("/context/l/0/a", "number")}, between(`{}`, `{}`, `{"l":[{"a":0}]}`), ""},
		"ip set":                                 {typed(`{}`, `{}`, `{l: Set<ipaddr>}`), permits + ` when { context.l.contains(ip("1.1.1.1")) };`, between(`{}`, `{}`, `{"l":["1.1.1.1"]}`), places{known("/context/l/0", "string")}, "", ""},
		"enum none (named wrongly)":              {and(typed(`{groups: Set<String>}`, `{}`, `{}`), "bundle.yaml", "parents: {User: {groups: Color}}\n"), permits + ` when { principal in Color::"red" || true };`, between(`{"groups":["red"]}`, `{}`, `{}`), places{known("/subject/properties/groups", "array")}, "", ""},
		"arguments parts":                        {typed(`{}`, `{}`, `{o: {a: Long, b?: String}}`), permits + ` when { context.o.a == 5 };`, between(`{}`, `{}`, `{"o":{"a":5,"b":"x"}}`), places{{At: "/context/o", Type: "object", Part: true, Fit: evaluation.Fits}}, between(`{}`, `{}`, `{"o":{"a":5,"masked:x":"x"}}`), ""},
		"action":                                 {nil, permits + ` when { context.action.a == "x" };`, acting(`{}`, `{"a":"x"}`, `{}`, `{}`), places{known("/action/properties/a", "string")}, "", ""},
		"action whole":                           {nil, permits + ` when { context.action.a == "x" };`, acting(`{}`, `{"a":"x"}`, `{}`, `{}`), places{known("/action/properties", "object")}, "", ""},
		"optional members hidden":                {typed(`{o?: {a?: Long}}`, `{}`, `{}`), permits + ` when { principal has o && principal.o has a };`, between(`{"o":{"a":1}}`, `{}`, `{}`), places{known("/subject/properties/o", "object")}, "", ""},
		"whole context Fits, has":                {nil, permits + ` when { !(principal has level) };`, between(`{}`, `{}`, `{"level":1}`), places{known("/context", "object")}, "", ""},
		"hard and filled":                        {files{"obligations.yaml": "a: {type: custom, properties: {to: \"${context.s}\"}}\nb: {type: custom, properties: {to: abcdefghijklm}}\n"}, `@obligation("a") ` + permits + `; @obligation("b") ` + permits + `;`, between(`{}`, `{}`, `{"s":"abcdefghijklm","supported_obligations":["custom"]}`), places{known("/context/s", "string")}, "", ""},
		"one-only":                               {files{"obligations.yaml": stepUps}, `@obligation("a") ` + permits + `; @obligation("b") ` + permits + `;`, between(`{}`, `{}`, `{"s":"abcdefghijklm","supported_obligations":["step-up"]}`), places{known("/context/s", "string")}, "", ""},
		"in within in 2":                         {files{"bundle.yaml": "parents: {User: {group: Group}}\n", "entities/e.json": `[{"uid":{"type":"Doc","id":"d"},"attrs":{"team":{"__entity":{"type":"Group","id":"t"}}},"parents":[]},{"uid":{"type":"User","id":"v"},"attrs":{},"parents":[{"type":"Group","id":"z"}]}]`}, permits + ` when { (if principal in resource.team then User::"v" else User::"w") in Group::"z" };`, between(`{"group":"t"}`, `{}`, `{}`), places{known("/subject/properties/group", "string")}, "", ""},
		"approved":                               {files{"obligations.yaml": "ask: {type: approval_required}\n"}, `@obligation("ask") ` + permits + ` when { !context.pdp.approved }; ` + permits + `; ` + forbids + ` when { context.pdp.approved && context.l.contains(context.pdp.approved) };`, between(`{}`, `{}`, `{"l":[true],"supported_obligations":["approval_required"]}`), places{known("/context/l", "array")}, "", "x"},
		"long text in a set":                     {nil, permits + ` when { context.l.isEmpty() || context.l.contains("` + strings.Repeat("a", 70) + `") };`, between(`{}`, `{}`, `{"l":["z"]}`), places{known("/context/l", "array")}, "", ""},
		"ip in a record in a set":                {typed(`{}`, `{}`, `{l: Set<{ip: ipaddr}>}`), permits + `;`, between(`{}`, `{}`, `{"l":[{"ip":"1.1.1.1"}]}`), places{known("/context/l/0/ip", "string")}, "", ""},
		"decimal in a record in a set":           {typed(`{}`, `{}`, `{l: Set<{d: decimal}>}`), permits + `;`, between(`{}`, `{}`, `{"l":[{"d":1e300}]}`), places{unfit("/context/l/0/d", "number")}, "", ""},
		"the subject's own id":                   {files{"bundle.yaml": "parents: {Doc: {owner: User}}\n"}, permits + ` when { resource in principal };`, between(`{}`, `{"owner":"u"}`, `{}`), places{known("/resource/properties/owner", "string")}, "", ""},
		"whole both":                             {nil, permits + ` when { principal has a };`, ofOne(`{"a":1}`, `{"a":1}`, `{}`), places{known("/subject/properties", "object"), known("/resource/properties", "object")}, "", ""},
		"renamed both in one":                    {nil, permits + ` when { principal has a && principal.a == 1 };`, ofOne(`{"a":1}`, `{"a":1}`, `{}`), places{{At: "/subject/properties", Type: "object", Part: true, Fit: evaluation.Fits}}, ofOne(`{"masked:a":1}`, `{"a":1}`, `{}`), ""},
		"part object in other":                   {nil, permits + ` when { context.o == {a: 1} };`, between(`{}`, `{}`, `{"o":{"a":1}}`), places{{At: "/context/o", Type: "object", Part: true, Fit: evaluation.Fits}}, between(`{}`, `{}`, `{"o":{"masked:a":1}}`), ""},
		"tenants own":                            {nil, permits + ` when { context.o has a };`, between(`{}`, `{}`, `{"o":{"a":1}}`), places{{At: "/context/o", Type: "object", Part: true, Fit: evaluation.Fits}}, between(`{}`, `{}`, `{"o":{"masked:a":1}}`), ""},
		"store mode whole":                       {files{"entities/e.json": `[{"uid":{"type":"User","id":"u"},"attrs":{"b":1},"parents":[]}]`}, permits + ` when { principal has a };`, between(`{"a":1}`, `{}`, `{}`), places{known("/subject/properties", "object")}, "", ""},
		"through stored ref":                     {files{"entities/e.json": `[{"uid":{"type":"Doc","id":"d"},"attrs":{"owner":{"__entity":{"type":"User","id":"u"}}},"parents":[]}]`}, permits + ` when { resource.owner.level == 3 };`, between(`{"level":3}`, `{}`, `{}`), places{known("/subject/properties/level", "number")}, "", ""},
		"through nested ref eq":                  {files{"entities/e.json": `[{"uid":{"type":"Doc","id":"d"},"attrs":{"owner":{"__entity":{"type":"User","id":"u"}}},"parents":[]}]`}, permits + ` when { context.n == resource.owner.level };`, between(`{"level":3}`, `{}`, `{"n":3}`), places{known("/subject/properties/level", "number")}, "", ""},
		"two through ref eq":                     {files{"entities/e.json": `[{"uid":{"type":"Doc","id":"d"},"attrs":{"owner":{"__entity":{"type":"User","id":"u"}}},"parents":[]}]`}, permits + ` when { context.n == resource.owner.level };`, between(`{"level":3}`, `{}`, `{"n":3}`), places{known("/subject/properties/level", "number"), known("/context/n", "number")}, "", ""},
		"contains through ref":                   {files{"entities/e.json": `[{"uid":{"type":"Doc","id":"d"},"attrs":{"owner":{"__entity":{"type":"User","id":"u"}}},"parents":[]}]`}, permits + ` when { [resource.owner].contains(principal) && principal.level*2 == resource.owner.level + 3 };`, between(`{"level":3}`, `{}`, `{}`), places{known("/subject/properties/level", "number")}, "", ""},
		"multiply":                               {nil, permits + ` when { context.n * 3 - 1 == 8 };`, between(`{}`, `{}`, `{"n":3}`), places{known("/context/n", "number")}, "", ""},
		"neg overflow":                           {nil, permits + ` when { -context.n < 0 || -context.n >= 0 };`, between(`{}`, `{}`, `{"n":-9223372036854775808}`), places{known("/context/n", "number")}, "", ""},
		"unusable has":                           {nil, permits + ` when { !(principal has n) };`, between(`{}`, `{}`, `{"n":0.5}`), places{unfit("/context/n", "number")}, "", ""},
		"like star":                              {nil, permits + ` when { context.s like "\*a*" };`, between(`{}`, `{}`, `{"s":"*a1"}`), places{known("/context/s", "string")}, "", ""},
		"nested element":                         {nil, permits + ` when { context.l == [["a"]] };`, between(`{}`, `{}`, `{"l":[["a"]]}`), places{known("/context/l/0/0", "string")}, between(`{}`, `{}`, `{"l":[["masked:x"]]}`), ""},
		"element pair":                           {nil, permits + ` when { context.l == ["a"] };`, between(`{}`, `{}`, `{"l":["a","a"]}`), places{known("/context/l/0", "string"), known("/context/l/1", "string")}, between(`{}`, `{}`, `{"l":["masked:x","masked:y"]}`), ""},
		"element pair dup":                       {nil, permits + ` when { context.l == context.m };`, between(`{}`, `{}`, `{"l":["a","a"],"m":["a"]}`), places{known("/context/l/0", "string"), known("/context/l/1", "string"), known("/context/m/0", "string")}, between(`{}`, `{}`, `{"l":["masked:x","masked:y"],"m":["masked:z"]}`), ""},
		"set elements contained in both":         {nil, permits + ` when { [context.a, context.b] == ["k"] };`, between(`{}`, `{}`, `{"a":"k","b":"k"}`), places{known("/context/a", "string"), known("/context/b", "string")}, "", ""},
		"set of two literals eq":                 {nil, permits + ` when { [context.a, context.b] == [context.c] };`, between(`{}`, `{}`, `{"a":"q","b":"q","c":"q"}`), places{known("/context/a", "string"), known("/context/b", "string"), known("/context/c", "string")}, "", ""},
		"whole subject, ignore":                  {nil, forbids + ` when { principal.x.y }; ` + permits + `;`, between(`{"x":{"y":true}}`, `{}`, `{}`), places{known("/subject/properties/x", "object")}, "", ""},
		"required optional whole with schema":    {typed(`{lvl: Long}`, `{}`, `{}`), permits + ` when { principal.lvl == 3 };`, between(`{"lvl":3}`, `{}`, `{}`), places{known("/subject/properties", "object")}, "", ""},
		"record reference member required":       {typed(`{o: {owner: User, n: Long}}`, `{}`, `{}`), permits + ` when { principal.o.n == 3 };`, between(`{"o":{"owner":{"type":"User","id":"x"},"n":3}}`, `{}`, `{}`), places{known("/subject/properties/o", "object")}, "", ""},
		"self string parent":                     {files{"bundle.yaml": "parents: {User: {boss: User}}\n"}, permits + ` when { principal in resource };`, `{"subject":{"type":"User","id":"u","properties":{"boss":"w"}},"action":{"name":"read"},"resource":{"type":"User","id":"w"}}`, places{known("/subject/properties/boss", "string")}, "", ""},
		"an element gives enumerated parents":    {and(typed(`{groups: Set<String>}`, `{}`, `{}`), "bundle.yaml", "parents: {User: {groups: Color}}\n"), permits + `;`, between(`{"groups":["red"]}`, `{}`, `{}`), places{known("/subject/properties/groups/0", "string")}, "", ""},
		"both send it, and one is masked":        {nil, permits + ` when { principal.a == 1 };`, ofOne(`{"a":1}`, `{"a":1}`, `{}`), places{known("/subject/properties/a", "number")}, "", ""},
		"the resource alone sends it":            {nil, permits + ` when { !(principal has a) };`, ofOne(`{}`, `{"a":1}`, `{}`), places{known("/resource/properties/a", "number")}, "", ""},
		"a forbid that may err":                  {nil, permits + `; ` + forbids + ` when { context.o.a == 1 && resource.off };`, between(`{}`, `{"off":false}`, `{"o":{}}`), places{known("/context/o", "object")}, "", ""},
		"actors":                                 {nil, permits + `;`, between(`{}`, `{}`, `{"agent":"x"}`), places{known("/context/agent", "string")}, "", ""},
		"like with long suffix and equality":     {nil, permits + ` when { context.s == "\u{10FFFF}" };`, between(`{}`, `{}`, "{\"s\":\"\U0010FFFF\"}"), places{known("/context/s", "string")}, "", ""},
		"null char":                              {nil, permits + ` when { context.s == "\0" };`, between(`{}`, `{}`, `{"s":"\u0000"}`), places{known("/context/s", "string")}, "", ""},
		"set duplicates":                         {typed(`{}`, `{}`, `{l: Set<Long>}`), permits + ` when { context.l == [1,2] };`, between(`{}`, `{}`, `{"l":[1,2]}`), places{known("/context/l/0", "number")}, "", ""},
		"container in other path is record":      {nil, permits + ` when { [context.s, {a: 1}].contains(resource.rec) };`, between(`{}`, `{"rec":"k"}`, `{"s":"k"}`), places{known("/context/s", "string"), known("/resource/properties/rec", "object")}, "", ""},
		"approved 2":                             {files{"obligations.yaml": "ask: {type: approval_required, properties: {template: t}}\n"}, `@obligation("ask") ` + permits + ` when { !context.pdp.approved }; ` + permits + `; ` + forbids + ` when { context.pdp.approved && context.l.contains(context.pdp.approved) };`, between(`{}`, `{}`, `{"l":[true],"supported_obligations":["approval_required"]}`), places{known("/context/l", "array")}, "", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			b := hiddenBundle(t, tt.policies, tt.files)
			p := pdp.Of(b, pdp.Options{})
			call := pdp.Call{Request: decoded(t, tt.sent), Now: time.Unix(1e9, 0), Approved: tt.approved}
			truth := saidOf(p.Evaluate(t.Context(), call))
			if tt.masked != "" {
				call.Request = decoded(t, tt.masked)
			}
			for _, h := range tt.hidden {
				if tt.masked == "" && !h.Part {
					o, err := evaluation.NewObject(map[string]any{"v": placeholders[h.Type]})
					if err != nil {
						t.Fatal(err)
					}
					v, _ := o.Get("v")
					call.Request = put(call.Request, h.At, v)
				}
			}
			call.Hidden = tt.hidden
			if got := saidOf(p.Evaluate(t.Context(), call)); got != truth && !strings.HasPrefix(got, "unknown ") {
				t.Errorf("got %s, and what was sent gives %s", got, truth)
			}
		})
	}
}

// put returns the request with another value at a place, if a value can be there.
func put(r evaluation.Request, at string, v evaluation.Value) evaluation.Request {
	for above, o := range map[string]*evaluation.Object{
		"/subject/properties": &r.Subject.Properties, "/action/properties": &r.Action.Properties,
		"/resource/properties": &r.Resource.Properties, "/context": &r.Context,
	} {
		if rest, ok := strings.CutPrefix(at, above); ok {
			if made, ok := o.Value().Put(evaluation.Tokens(rest), v); ok {
				*o = made.Object()
			}
		}
	}
	return r
}

// TestHiddenNonsense: places that are none, and types that are none, neither panic nor make an answer
// that differs from one time to the next.
func TestHiddenNonsense(t *testing.T) {
	t.Parallel()
	reads := permits + ` when { context.l.contains("a") && context.o.a == 1 && principal in Group::"g" && context.s like "a*" && context.n + 1 > 2 };`
	bundles := []*pdp.Bundle{
		hiddenBundle(t, reads, files{"bundle.yaml": "parents: {User: {g: Group}, Doc: {folder: Doc}}\n", "obligations.yaml": "x: {type: custom, properties: {a: \"${context.s}\"}}\n"}),
		hiddenBundle(t, reads, and(typed(`{g?: Set<Group>, x?: Long, r?: User}`, `{x?: Long, folder?: String}`, `{l: Set<String>, o: {a: Long, r?: User, s?: Set<{a: Long}>}, s: String, n: Long}`), "bundle.yaml", "parents: {User: {g: Group}}\n")),
	}
	requests := []evaluation.Request{
		decoded(t, between(`{"g":["a","g"],"x":1,"r":{"type":"User","id":"z"}}`, `{"x":1,"folder":"f"}`, `{"l":["a","b"],"o":{"a":1,"r":"u","s":[{"a":1}]},"s":"ab","n":4}`)),
		decoded(t, ofOne(`{"g":["a","g"],"x":1}`, `{"x":1,"folder":"f"}`, `{"l":["a","b"],"o":{"a":1,"s":[{"a":1}]},"s":"ab","n":4,"supported_obligations":["custom"]}`)),
		decoded(t, `{"subject":{"type":"User","id":"u"},"action":{"name":"read"},"resource":{"type":"Doc","id":"d"}}`),
		decoded(t, `{"subject":{"type":"__cedar::X","id":"u"},"action":{"name":"nope"},"resource":{"type":"__cedar::X","id":"u"}}`),
	}
	words := strings.Split("subject action resource context properties l o s n g x r a 0 1 -1 99999999999999999999 folder id type name  ~1 pdp supported_obligations masked:x", " ")
	types := strings.Split("string number bool object array  null String", " ")
	g := rand.New(rand.NewPCG(17, 17))
	pick := func(from []string) string { return from[g.IntN(len(from))] }
	for range night.Cases(3000) {
		call := pdp.Call{Request: requests[g.IntN(len(requests))], Now: time.Unix(1e9, 0)}
		for range 1 + g.IntN(3) {
			at := ""
			if g.IntN(20) > 0 {
				at = "/" + pick([]string{"context", "subject/properties", "resource/properties", "action/properties", pick(words)})
			}
			for range g.IntN(4) {
				at += "/" + pick(words)
			}
			call.Hidden = append(call.Hidden, evaluation.Hidden{At: at, Type: pick(types), Part: g.IntN(4) == 0, Removed: g.IntN(4) == 0, Fit: evaluation.Fit(g.IntN(3))})
		}
		if g.IntN(3) == 0 {
			call.Approved = "x"
		}
		p := pdp.Of(bundles[g.IntN(2)], pdp.Options{})
		if one, other := saidOf(p.Evaluate(t.Context(), call)), saidOf(p.Evaluate(t.Context(), call)); one != other {
			t.Fatalf("%s, and then %s: %+v", one, other, call.Hidden)
		}
	}
}
