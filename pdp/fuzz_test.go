package pdp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/pdptest/worst"
)

// FuzzUntyped compares the conversion of a value that no schema types with one that reads JSON and numbers another way.
func FuzzUntyped(f *testing.F) {
	for _, seed := range []string{
		`1`, `1.0`, `1e3`, `-0`, `0.5`, `1e18`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `1e-400`, `10e-1`, `1E+2`,
		`true`, `""`, `"10.0.0.1"`, `"2024-01-01"`, `{"type":"u","id":"1"}`, `[]`, `[1,1.0,"1",true]`, `[null]`, `[[1,5],[2,4]]`, `{"a":null,"b":{}}`, `{"a":[0.5]}`,
		`{"a":{"b":{"c":[{"d":1}]}}}`, `[true,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,true,true,true]`, `18446744073709551617`, `"\ud83d\ude00"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, ok := sent(text)
		if !ok {
			return
		}
		got, usable := engine.Untyped(v)
		want, expected := plainly(t, v)
		switch {
		case usable != expected && (usable || len(text) < 2*bundle.FewElements): // a long array may collide
			t.Errorf("%s is usable: %v", text, usable)
		case usable && (!got.Equal(want) || !want.Equal(got) || !reflect.DeepEqual(got, want)):
			t.Errorf("%s becomes %v, and not %v", text, got, want)
		}
	})
}

// sent is a value as a request sends it, where it may be sent at all.
func sent(text []byte) (evaluation.Value, bool) {
	r, err := evaluation.DecodeAuthZEN([]byte(worst.Request(`"u","id":"1"`, `"r","id":"2"`, `{"v":`+string(text)+`}`)), "", evaluation.DefaultLimits())
	if err != nil || r.Context.Len() != 1 {
		return evaluation.Value{}, false
	}
	return r.Context.Get("v")
}

// plainly converts by way of encoding/json and math/big.
func plainly(t *testing.T, v evaluation.Value) (types.Value, bool) {
	text, err := v.MarshalJSON()
	must(t, err)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var plain any
	if err := dec.Decode(&plain); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return plainValue(plain)
}

func plainValue(v any) (types.Value, bool) {
	switch v := v.(type) {
	case bool:
		return types.Boolean(v), true
	case string:
		return types.String(v), true
	case json.Number:
		n, ok := plainNumber(string(v), 0)
		return types.Long(n), ok
	case []any:
		elements := []types.Value{}
		for _, e := range v {
			c, ok := plainValue(e)
			if !ok {
				return nil, false
			}
			elements = append(elements, c)
		}
		return types.NewSet(elements...), true
	case map[string]any:
		members := types.RecordMap{}
		for name, e := range v {
			c, ok := plainValue(e)
			if !ok {
				return nil, false
			}
			members[types.String(name)] = c
		}
		return types.NewRecord(members), true
	}
	return nil, false
}

// plainNumber is a literal times 10^places, where that is an int64. The fraction is reckoned out, so an exponent beyond
// what the digits of a body could bring back is settled first.
func plainNumber(literal string, places int) (int64, bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	if strings.Trim(mantissa, "-0.") == "" {
		return 0, true
	}
	if e, err := strconv.Atoi(exponent); exponent != "" && (err != nil || max(e, -e) > 10_000+len(mantissa)) {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(literal)
	if !ok {
		panic("no number: " + literal)
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil)))
	return r.Num().Int64(), r.IsInt() && r.Num().IsInt64()
}

// typedSchema declares a member of the context for each type that a schema can give.
const typedSchema = `
	entity u, r;
	entity colour enum ["red", "green"];
	action a appliesTo { principal: u, resource: r, context: {
		bool: Bool, long: Long, string: String, decimal: decimal, ip: ipaddr, datetime: datetime, duration: duration,
		entity: u, colour: colour, longs: Set<Long>, decimals: Set<decimal>, record: { n: Long, s?: String } } };
`

// FuzzTyped compares the conversion that a schema directs with another reading of each type's texts and numbers.
func FuzzTyped(f *testing.F) {
	var problems Problems
	s := bundle.ParseSchema([]bundle.SchemaFile{{Name: "schema.cedarschema", Text: []byte(typedSchema)}}, &bundle.Config{}, &problems)
	if problems.Refuse() {
		f.Fatal(problems)
	}
	declared := s.ContextOf(types.NewEntityUID("Action", "a"))
	for name, seeds := range map[string][]string{
		"bool": {`true`, `"true"`, `1`}, "long": {`1`, `1.0`, `1.5`, `"1"`, `9223372036854775808`}, "string": {`"x"`, `1`, `null`},
		"decimal":  {`1`, `1.5`, `0.00001`, `922337203685477.5807`, `922337203685477.5808`, `-922337203685477.5808`, `"1.5"`, `"1"`, `"+1.5"`, `"1.+5"`, `"-0.0"`, `"1.00000"`, `".5"`, `"01.5"`, `"922337203685477.5808"`, `"1_0.0"`},
		"ip":       {`"10.0.0.1"`, `"10.0.0.0/8"`, `"::1"`, `"10.0.0.01"`, `"::ffff:1.2.3.4"`, `"fe80::1%eth0"`, `""`, `1`},
		"datetime": {`"2024-02-29"`, `"2023-02-29"`, `"2024-01-01T00:00:00Z"`, `"2024-01-01T23:59:59.999Z"`, `"2024-01-01T00:00:00+0100"`, `"2024-01-01T00:00:00.000-2359"`, `"2024-01-01T00:00:00+2400"`, `"2024-01-01t00:00:00z"`, `"2024-01-01T24:00:00Z"`, `"2024-01-01T00:00:60Z"`, `0`},
		"duration": {`"1d2h3m4s5ms"`, `"-1ms"`, `"1h1d"`, `""`, `"-"`, `"1"`, `"1.5h"`, `"9223372036854775807ms"`, `"9223372036854775808ms"`, `"+1h"`, `60`},
		"entity":   {`"x"`, `{"type":"u","id":"x"}`, `{"type":"v","id":"x"}`, `{"type":"u"}`, `{"type":"u","id":"x","y":1}`},
		"colour":   {`"red"`, `"blue"`, `{"type":"colour","id":"green"}`, `{"type":"colour","id":"blue"}`},
		"longs":    {`[]`, `[1,2.0]`, `[1,"2"]`, `[null]`, `1`}, "decimals": {`[1,"1.0",2.5]`},
		"record": {`{"n":1}`, `{"n":1,"s":"x","y":2}`, `{"s":"x"}`, `{"n":null}`, `[]`},
	} {
		for _, seed := range seeds {
			f.Add(name, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		v, ok := sent(text)
		a, known := declared[name]
		if !ok || !known || name == "pdp" || name == "action" {
			return
		}
		c := engine.Converter{Config: &bundle.Config{}}
		got, fits := c.Convert(v, a.Shape)
		want, expected := typedPlainly(name, v)
		switch {
		case fits != expected && (fits || len(text) < 2*bundle.FewElements):
			t.Errorf("%s as %s fits: %v", text, name, fits)
		case fits && !got.Equal(want):
			t.Errorf("%s as %s becomes %v, and not %v", text, name, got, want)
		}
		if !fits && c.Fault.Want == nil && len(c.Fault.At) == 0 {
			t.Errorf("%s as %s does not fit, and nothing is said to be missing", text, name)
		}
		c = engine.Converter{Config: &bundle.Config{}, Reject: true}
		if _, fits := c.Convert(v, a.Shape); c.Fault.Undeclared && (fits || len(c.Fault.At) == 0) {
			t.Errorf("%s as %s: %+v", text, name, c.Fault)
		}
	})
}

// typedPlainly converts a value as the declared member of that name does.
func typedPlainly(name string, v evaluation.Value) (types.Value, bool) {
	var text string
	if v.Kind() == evaluation.String {
		text = v.Text()
	}
	switch name {
	case "bool":
		return types.Boolean(v.True()), v.Kind() == evaluation.Bool
	case "string":
		return types.String(text), v.Kind() == evaluation.String
	case "long":
		if v.Kind() != evaluation.Number {
			return nil, false
		}
		n, ok := plainNumber(v.Text(), 0)
		return types.Long(n), ok
	case "decimal":
		return plainDecimal(v)
	case "datetime":
		return plainDatetime(text)
	case "duration":
		return plainDuration(text)
	case "ip": // not reckoned anew: cedar-go alone says what an address is
		ip, err := types.ParseIPAddr(text)
		return ip, err == nil && v.Kind() == evaluation.String
	case "entity", "colour":
		return plainReference(map[string]string{"entity": "u", "colour": "colour"}[name], v)
	case "longs", "decimals":
		return plainSet(strings.TrimSuffix(name, "s"), v)
	}
	return plainRecord(v)
}

func plainSet(element string, v evaluation.Value) (types.Value, bool) {
	var elements []types.Value
	for _, e := range v.Elements {
		c, ok := typedPlainly(element, e)
		if !ok {
			return nil, false
		}
		elements = append(elements, c)
	}
	return types.NewSet(elements...), v.Kind() == evaluation.Array
}

func plainRecord(v evaluation.Value) (types.Value, bool) {
	members := types.RecordMap{}
	for name, kind := range map[string]string{"n": "long", "s": "string"} {
		e, sent := v.Object().Get(name)
		if !sent && name == "s" {
			continue
		}
		c, ok := typedPlainly(kind, e)
		if !ok {
			return nil, false
		}
		members[types.String(name)] = c
	}
	return types.NewRecord(members), v.Kind() == evaluation.Map
}

func plainReference(typ string, v evaluation.Value) (types.Value, bool) {
	id := v
	if v.Kind() == evaluation.Map {
		named, _ := v.Object().Get("type")
		id, _ = v.Object().Get("id")
		if v.Len() != 2 || named.Kind() != evaluation.String || named.Text() != typ {
			return nil, false
		}
	}
	enumerated := typ != "colour" || id.Text() == "red" || id.Text() == "green"
	return types.NewEntityUID(types.EntityType(typ), types.String(id.Text())), id.Kind() == evaluation.String && enumerated
}

var (
	decimalText  = regexp.MustCompile(`^-?[0-9]+\.[0-9]{1,4}$`)
	datetimeText = regexp.MustCompile(`^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{3})?(Z|[+-]([01]\d|2[0-3])[0-5]\d))?$`)
	durationText = regexp.MustCompile(`^(-?)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$`)
)

// plainDecimal reads Cedar's decimals: a number of JSON, or a text of the form that Cedar gives them.
func plainDecimal(v evaluation.Value) (types.Value, bool) {
	if v.Kind() != evaluation.Number && (v.Kind() != evaluation.String || !decimalText.MatchString(v.Text())) {
		return nil, false
	}
	n, ok := plainNumber(v.Text(), 4)
	d, err := types.NewDecimal(n, -4)
	return d, ok && err == nil
}

func plainDatetime(text string) (types.Value, bool) {
	if !datetimeText.MatchString(text) {
		return nil, false
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700"} {
		if at, err := time.Parse(layout, text); err == nil {
			return types.NewDatetime(at), true
		}
	}
	return nil, false
}

func plainDuration(text string) (types.Value, bool) {
	parts := durationText.FindStringSubmatch(text)
	if parts == nil || strings.Trim(text, "-") == "" {
		return nil, false
	}
	sum := new(big.Int)
	for i, unit := range []int64{86_400_000, 3_600_000, 60_000, 1000, 1} {
		if n, ok := new(big.Int).SetString(parts[i+2], 10); ok {
			sum.Add(sum, n.Mul(n, big.NewInt(unit)))
		}
	}
	if parts[1] == "-" {
		sum.Neg(sum)
	}
	return types.NewDurationFromMillis(sum.Int64()), sum.IsInt64()
}

// FuzzLoad gives the loader four files of anything. What loads must answer, and must be the same when loaded again.
func FuzzLoad(f *testing.F) {
	const policy = `@id("p") @reason_user("no") permit(principal in Role::"a", action in [Action::"r"], resource is doc in Folder::"f") when { resource.x has y.z && context.n == 1 } unless { principal.name like "*a" };`
	for _, seed := range [][4]string{
		{policy, "", "", ""},
		{policy, "", `[{"uid":{"type":"user","id":"1"},"attrs":{"name":"x","ip":{"__extn":{"fn":"ip","arg":"::1"}}},"parents":[{"type":"Role","id":"a"}]}]`,
			"allow_trivial: true\nforbid_errors: ignore\nparents: {user: {roles: Role}}\nattributes: {user: store}\nknown: [user]\n"},
		{"permit(principal, action, resource);", typedSchema, "[]", "allow_trivial: true"},
		{policy, "entity user { a: datetime, b?: Set<ipaddr> } tags Long;", `[{"uid":{"type":"user","id":"1"},"attrs":{"a":{"__extn":{"fn":"offset","args":[{"__extn":{"fn":"datetime","arg":"1970-01-01"}},{"fn":"duration","arg":"1d"}]}},"b":[{"fn":"ip","args":["::1"]}]},"tags":{"__entity":1},"parents":[]}]`, "unknown_entities: evaluate"},
		{"permit(principal is N::u, action, resource) when { context.long > 1 };", "namespace N {" + typedSchema + "}", "", "namespace: N\ntypes: {user: u}\nunknown_properties: reject\n"},
		{"forbid(principal, action, resource); // comment only?", "entity u;", "{}", "? [a, b]\n: &x *x\n"},
		{strings.Repeat("(", 300), strings.Repeat("{", 300), strings.Repeat("[", 300), strings.Repeat("[", 300)},
		{"permit(principal,action,resource) when { context" + strings.Repeat(` has a.a.a.a`, 9) + " };", "entity a in a { a: a };", `[{"uid":{"__entity":{"type":"a","id":"a"}},"attrs":{"a":null},"parents":[]}]`, "a: &a [*a]"},
		{"\xff", "\xff", "\xff", "\xff"}, {"\x00", "\x00", "\x00", "\x00"}, {"//", "//", "//", "#"},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]), []byte(seed[2]), []byte(seed[3]))
	}
	f.Fuzz(func(t *testing.T, policies, schema, entities, settings []byte) {
		files := fstest.MapFS{}
		for name, text := range map[string][]byte{"p.cedar": policies, "schema.cedarschema": schema, "entities/e.json": entities, "bundle.yaml": settings} {
			if len(text) > 0 {
				files[name] = &fstest.MapFile{Data: text}
			}
		}
		// Far above what any text of this size takes, on a machine however busy.
		hang := time.AfterFunc(time.Minute, func() { panic("it hangs") })
		defer hang.Stop()
		bundle, problems := Load(FS(files))
		if problems.Refuse() == (bundle != nil) {
			t.Fatalf("a bundle %v with problems %v", bundle, problems)
		}
		for _, p := range problems {
			if p.Message == "" || p.Code == "" || p.Line < 0 || strings.ContainsAny(p.String(), "\n\x00") {
				t.Errorf("a problem that tells nobody: %q", p)
			}
		}
		if bundle != nil {
			sameAnswers(t, bundle, files)
		}
	})
}

// sameAnswers loads the files once more, and puts questions to both bundles.
func sameAnswers(t *testing.T, bundle *Bundle, files fstest.MapFS) {
	t.Helper()
	again, problems := Load(FS(files))
	if again == nil || again.Digest() != bundle.Digest() {
		t.Fatalf("loaded again it is %v, with %v", again, problems)
	}
	for _, body := range questions(bundle) {
		r, err := evaluation.DecodeAuthZEN([]byte(body), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		call := Call{Request: r, Now: time.UnixMilli(0), Asker: evaluation.Asker{Name: "key:x"}, Explain: true}
		one, err1 := decideBy(context.Background(), bundle, call)
		two, err2 := decideBy(context.Background(), again, call)
		if !reflect.DeepEqual(one, two) || !reflect.DeepEqual(err1, err2) {
			t.Errorf("%s\nis answered %+v, %v\nand by the same files %+v, %v", body, one, err1, two, err2)
		}
		if e := new(evaluation.Error); err1 != nil && !errors.As(err1, &e) {
			t.Errorf("%s: %v", body, err1)
		}
	}
}

// questions name what the bundle's own policies name, with values of every kind.
func questions(b *Bundle) []string {
	const values = `{"name":"bab","n":1,"x":{"y":{"z":true}},"half":0.5,"roles":["a"],"ip":"::1","long":2,"list":[1,{"a":[]}]}`
	entity := func(uid types.EntityUID) string {
		id, _ := json.Marshal(string(uid.ID))
		typ, _ := json.Marshal(string(uid.Type))
		return `{"type":` + string(typ) + `,"id":` + string(id) + `,"properties":` + values + `}`
	}
	uids := []types.EntityUID{types.NewEntityUID("user", "1"), types.NewEntityUID("doc", "2"), types.NewEntityUID("Action", "r")}
	for _, p := range b.Views[evaluation.DefaultTenant].Policies {
		uids = append(uids, p.Facts.Uids...)
	}
	uids = uids[:min(len(uids), 6)]
	var all []string
	for i, subject := range uids {
		action, _ := json.Marshal(string(uids[(i+2)%len(uids)].ID))
		all = append(all, `{"subject":`+entity(subject)+`,"action":{"name":`+string(action)+`,"properties":{"n":1}},"resource":`+entity(uids[(i+1)%len(uids)])+`,"context":`+values+`}`)
	}
	return all
}
