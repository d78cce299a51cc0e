package evaluation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
)

// shapes are the two wire shapes: a body that holds every member each knows, how it is decoded, and the form of each
// member.
var shapes = map[string]struct {
	body    string
	decode  func(body string, limits evaluation.Limits) (evaluation.Request, error)
	members map[string]form
}{
	"AuthZEN": {
		`{"subject":{"type":"user","id":"alice","properties":{"p":1}},"action":{"name":"read","properties":{"q":2}},
		"resource":{"type":"doc","id":"7","properties":{"r":3}},"context":{"s":4}}`,
		decodeAuthZEN,
		map[string]form{
			"/subject": requiredObject, "/subject/type": requiredString, "/subject/id": requiredString, "/subject/properties": optionalObject,
			"/action": requiredObject, "/action/name": requiredString, "/action/properties": optionalObject,
			"/resource": requiredObject, "/resource/type": requiredString, "/resource/id": requiredString, "/resource/properties": optionalObject,
			"/context": optionalObject,
		},
	},
	"native": {
		`{"tenant_id":"t1","actor":{"actor_id":"alice","actor_type":"user","roles":["a"],"department_id":"d"},"action":"read",
		"resource":{"type":"doc","id":"7","labels":{"l":1}},"purpose":"why","context":{"s":4}}`,
		decodeNative,
		map[string]form{
			"/tenant_id": requiredString, "/actor": requiredObject, "/actor/actor_id": requiredString, "/actor/actor_type": requiredString,
			"/actor/roles": anything, "/actor/department_id": anything, "/action": requiredString,
			"/resource": requiredObject, "/resource/type": requiredString, "/resource/id": requiredString, "/resource/labels": optionalObject,
			"/purpose": optionalString, "/context": optionalObject,
		},
	},
}

// form is what a member must be.
type form struct {
	kind     string // string, object, or "" for anything
	required bool
}

var (
	requiredString = form{"string", true}
	requiredObject = form{"object", true}
	optionalString = form{"string", false}
	optionalObject = form{"object", false}
	anything       = form{}
)

func decodeAuthZEN(body string, limits evaluation.Limits) (evaluation.Request, error) {
	return evaluation.DecodeAuthZEN([]byte(body), "", limits)
}

func decodeNative(body string, limits evaluation.Limits) (evaluation.Request, error) {
	return evaluation.DecodeNative([]byte(body), limits)
}

// TestMembers puts everything in the place of every known member, and takes each away.
func TestMembers(t *testing.T) {
	t.Parallel()
	values := map[string]any{
		"missing": nil, "null": nil, "true": true, "number": 1.5, "string": "s", "empty string": "", "array": []any{"s"},
		"empty object": map[string]any{}, "object": map[string]any{"type": "x", "id": "y", "name": "z", "actor_type": "a", "actor_id": "b"},
	}
	for name, shape := range shapes {
		for pointer, form := range shape.members {
			for what, value := range values {
				body := replaced(t, shape.body, pointer, value, what == "missing")
				_, err := shape.decode(body, evaluation.DefaultLimits())
				if want := form.refusal(value); !refusedAt(err, pointer, want) && !belowEmpty(err, pointer, value) {
					t.Errorf("%s with %s as %s: %s, not %q there", name, what, pointer, told(err), want)
				}
			}
		}
	}
}

// refusal is the detail of the error for a value of the wrong form, "" for none.
func (f form) refusal(value any) string {
	article := map[string]string{"string": "a string", "object": "an object"}[f.kind]
	_, isString := value.(string)
	_, isObject := value.(map[string]any)
	switch {
	case value == nil && f.required:
		return "missing; it must be " + article
	case value == nil, f.kind == "", f.kind == "string" && isString, f.kind == "object" && isObject:
		return ""
	}
	return "not " + article
}

// belowEmpty reports whether an empty object is refused for what it lacks.
func belowEmpty(err error, pointer string, value any) bool {
	o, isObject := value.(map[string]any)
	var e *evaluation.Error
	return isObject && len(o) == 0 && errors.As(err, &e) && strings.HasPrefix(e.Pointer, pointer+"/") && strings.HasPrefix(e.Detail, "missing")
}

func refusedAt(err error, pointer, detail string) bool {
	if detail == "" {
		return err == nil
	}
	var e *evaluation.Error
	return errors.As(err, &e) && e.Pointer == pointer && strings.HasPrefix(e.Detail, detail) && !e.TooLarge
}

func told(err error) string {
	if err == nil {
		return "accepted"
	}
	return fmt.Sprintf("refused with %q", err.Error())
}

// replaced returns the body with another value at a pointer, or with none.
func replaced(t *testing.T, body, pointer string, value any, remove bool) string {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal([]byte(body), &root); err != nil {
		t.Fatal(err)
	}
	path := strings.Split(pointer[1:], "/")
	at := root
	for _, name := range path[:len(path)-1] {
		at = at[name].(map[string]any)
	}
	at[path[len(path)-1]] = value
	if remove {
		delete(at, path[len(path)-1])
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// in puts a value into the context of an AuthZEN body.
func in(context string) string {
	return `{"subject":{"type":"u","id":"1"},"action":{"name":"a"},"resource":{"type":"r","id":"2"},"context":` + context + `}`
}

// notKnowing says which places of a body are not known.
func notKnowing(unknown string) string {
	return strings.TrimSuffix(in("{}"), "}") + `,"options":{"unknown":` + unknown + `}}`
}

func TestAuthZENBodies(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ body, pointer, detail string }{
		"the shortest":                    {strings.Replace(in("1"), `,"context":1`, "", 1), "", ""},
		"white space around it":           {" \t\r\n" + in("{}") + " \t\r\n", "", ""},
		"unknown members":                 {strings.Replace(in("{}"), "{", `{"x":{"y":[1,null]},"option":1,"type":2,`, 1), "", ""},
		"names that differ in case":       {in(`{"a":1,"A":2}`), "", ""},
		"names that differ in form":       {in("{\"\u00e9\":1,\"e\u0301\":2}"), "", ""},
		"an empty name":                   {in(`{"":1}`), "", ""},
		"null members of any name":        {in(`{"a":null,"action":null,"pdp":null}`), "", ""},
		"null in an array":                {in(`{"a":[null]}`), "", ""},
		"a surrogate pair":                {in(`{"a":"\ud83d\ude00","\ud83d\ude00":1}`), "", ""},
		"NUL":                             {in(`{"a":"\u0000"}`), "", ""},
		"protocol members":                {in(`{"supported_obligations":["x"],"justification":2,"approval":{"id":"3","state":4},"approval_id":"3","approved":5,"access_request":6,"evaluation_id":7}`), "", ""},
		"no approval":                     {in(`{"approval":null,"approval_id":null}`), "", ""},
		"approval as its id":              {in(`{"approval":"x"}`), "/context/approval", "not an object"},
		"approval in a list":              {in(`{"approval":[{"id":"x"}]}`), "/context/approval", "not an object"},
		"approval of nothing":             {in(`{"approval":{"approved":true}}`), "/context/approval/id", "missing"},
		"approval without an id":          {in(`{"approval":{"id":null}}`), "/context/approval/id", "missing"},
		"approval of a number":            {in(`{"approval":{"id":7}}`), "/context/approval/id", "not a string"},
		"approval of an empty id":         {in(`{"approval":{"id":""}}`), "/context/approval/id", "empty"},
		"approval_id that is no string":   {in(`{"approval_id":7}`), "/context/approval_id", "not a string"},
		"approval_id as an object":        {in(`{"approval_id":{"id":"x"}}`), "/context/approval_id", "not a string"},
		"empty approval_id":               {in(`{"approval_id":""}`), "/context/approval_id", "empty"},
		"two approvals":                   {in(`{"approval":{"id":"x"},"approval_id":"y"}`), "/context/approval_id", "another approval"},
		"declaration of another form":     {in(`{"supported_obligations":"log"}`), "/context/supported_obligations", "not an array of strings"},
		"declaration of other things":     {in(`{"supported_obligations":["log",1]}`), "/context/supported_obligations/1", "not a string"},
		"names that hold reserved ones":   {in(`{"__entity_":1,"_entity":2,"__ENTITY":3,"a__extn":4}`), "", ""},
		"reserved names as values":        {in(`{"a":"__entity"}`), "", ""},
		"unknown places":                  {notKnowing(`["/context","/context/a","/context/a~1b/0","/subject/properties","/subject/properties/x/y","/action/properties/x","/resource/properties/","/context/pdp/approved","/context/pdp/capability"]`), "", ""},
		"no unknown place":                {notKnowing(`[]`), "", ""},
		"unknown places are null":         {notKnowing(`null`), "", ""},
		"unknown of another form":         {notKnowing(`"/context/a"`), "/options/unknown", "not an array of JSON Pointers"},
		"unknown of other things":         {notKnowing(`["/context/a",1]`), "/options/unknown/1", "not a JSON Pointer, which is a string"},
		"unknown, and the whole":          {notKnowing(`[""]`), "/options/unknown/0", "not a JSON Pointer into the request"},
		"unknown, and no pointer":         {notKnowing(`["/context/a","context/b"]`), "/options/unknown/1", "not a JSON Pointer into the request"},
		"unknown, with a bad escape":      {notKnowing(`["/context/a~2"]`), "/options/unknown/0", "not a JSON Pointer into the request"},
		"unknown, with half an escape":    {notKnowing(`["/context/a~"]`), "/options/unknown/0", "not a JSON Pointer into the request"},
		"unknown subject":                 {notKnowing(`["/subject"]`), "/options/unknown/0", "types, ids and names must be known"},
		"unknown id":                      {notKnowing(`["/subject/id"]`), "/options/unknown/0", "types, ids and names must be known"},
		"unknown type":                    {notKnowing(`["/resource/type"]`), "/options/unknown/0", "types, ids and names must be known"},
		"unknown name":                    {notKnowing(`["/action/name"]`), "/options/unknown/0", "types, ids and names must be known"},
		"unknown action":                  {notKnowing(`["/action"]`), "/options/unknown/0", "types, ids and names must be known"},
		"unknown properties, misspelt":    {notKnowing(`["/resource/property/x"]`), "/options/unknown/0", "types, ids and names must be known"},
		"unknown tenant":                  {notKnowing(`["/tenant_id"]`), "/options/unknown/0", "no part of a request that policies see"},
		"unknown context.action":          {notKnowing(`["/context/action/x"]`), "/options/unknown/0", "only the PDP sets this member"},
		"unknown context.pdp":             {notKnowing(`["/context/pdp"]`), "/options/unknown/0", "only the PDP sets this member"},
		"unknown clock":                   {notKnowing(`["/context/pdp/now"]`), "/options/unknown/0", "only the PDP sets this member"},
		"unknown, below approved":         {notKnowing(`["/context/pdp/approved/x"]`), "/options/unknown/0", "only the PDP sets this member"},
		"unknown approval":                {notKnowing(`["/context/approval"]`), "/options/unknown/0", "no policy sees this member"},
		"unknown approved":                {notKnowing(`["/context/approved"]`), "/options/unknown/0", "no policy sees this member"},
		"unknown capability":              {notKnowing(`["/context/capability"]`), "/options/unknown/0", "no policy sees this member"},
		"sixteen unknown":                 {notKnowing(`["/context/a"` + strings.Repeat(`,"/context/a"`, 15) + `]`), "", ""},
		"seventeen unknown":               {notKnowing(`["/context/a"` + strings.Repeat(`,"/context/a"`, 16) + `]`), "/options/unknown", "more than 16 places are unknown"},
		"a long unknown":                  {notKnowing(`["/context/` + strings.Repeat("a", 248) + `"]`), "/options/unknown/0", "a pointer of more than 256 bytes"},
		"options of another form":         {strings.Replace(notKnowing("[]"), `{"unknown":[]}`, "[]", 1), "/options", "not an object"},
		"nothing":                         {"", "", "the body is not a JSON object"},
		"white space":                     {" \n", "", "the body is not a JSON object"},
		"null":                            {"null", "", "the body is not a JSON object"},
		"an array":                        {"[" + in("{}") + "]", "", "the body is not a JSON object"},
		"a string":                        {`"{}"`, "", "the body is not a JSON object"},
		"a number":                        {`1`, "", "the body is not a JSON object"},
		"a byte order mark":               {"\xEF\xBB\xBF" + in("{}"), "", "not valid JSON at byte 0"},
		"UTF-16":                          {"\xFF\xFE{\x00}\x00", "", "not valid JSON at byte 0"},
		"two objects":                     {in("{}") + in("{}"), "", "something follows the JSON object"},
		"a brace too many":                {in("{}") + "}", "", "something follows the JSON object"},
		"garbage after it":                {in("{}") + "\x00", "", "something follows the JSON object"},
		"a brace too few":                 {strings.TrimSuffix(in("{}"), "}"), "", "the JSON ends too early"},
		"an end within a string":          {`{"subject":{"type":"u`, "/subject/type", "the JSON ends too early"},
		"an end after a name":             {`{"subject":{"type"`, "/subject/type", "the JSON ends too early"},
		"a comment":                       {in("{/**/}"), "/context", "not valid JSON at byte"},
		"a trailing comma":                {in(`{"a":1,}`), "/context", "not valid JSON at byte"},
		"a comma too few":                 {in(`{"a":1 "b":2}`), "/context", "not valid JSON at byte"},
		"single quotes":                   {in(`{'a':1}`), "/context", "not valid JSON at byte"},
		"NaN":                             {in(`{"a":NaN}`), "/context/a", "not valid JSON at byte"},
		"a leading zero":                  {in(`{"a":01}`), "/context", "not valid JSON at byte"},
		"a plus sign":                     {in(`{"a":+1}`), "/context/a", "not valid JSON at byte"},
		"a bare point":                    {in(`{"a":1.}`), "/context/a", "not valid JSON at byte"},
		"True":                            {in(`{"a":True}`), "/context/a", "not valid JSON at byte"},
		"a raw newline in a string":       {in("{\"a\":\"\n\"}"), "/context/a", "not valid JSON at byte"},
		"an unknown escape":               {in(`{"a":"\x"}`), "/context/a", "not valid JSON at byte"},
		"invalid UTF-8 in a string":       {in("{\"a\":\"\xFF\"}"), "/context/a", "not valid JSON at byte"},
		"invalid UTF-8 in a name":         {in("{\"\xC3\":1}"), "/context", "not valid JSON at byte"},
		"an overlong form":                {in("{\"a\":\"\xC0\x80\"}"), "/context/a", "not valid JSON at byte"},
		"a surrogate as UTF-8":            {in("{\"a\":\"\xED\xA0\x80\"}"), "/context/a", "not valid JSON at byte"},
		"a high surrogate alone":          {in(`{"a":"\ud83d"}`), "/context/a", "not valid JSON at byte"},
		"a low surrogate alone":           {in(`{"a":"\ude00"}`), "/context/a", "not valid JSON at byte"},
		"surrogates the wrong way round":  {in(`{"a":"\ude00\ud83d"}`), "/context/a", "not valid JSON at byte"},
		"a lone surrogate in a name":      {in(`{"\ud83d":1}`), "/context", "not valid JSON at byte"},
		"one in a member that is ignored": {strings.Replace(in("{}"), "{", `{"x":"\ud83d",`, 1), "/x", "not valid JSON at byte"},
		"a member twice":                  {in(`{"a":1,"b":2,"a":1}`), "/context/a", "the member occurs twice"},
		"twice, once escaped":             {in(`{"a":1,"\u0061":1}`), "/context/a", "the member occurs twice"},
		"twice, first as null":            {in(`{"a":null,"a":1}`), "/context/a", "the member occurs twice"},
		"twice, below an array":           {in(`{"a":[0,{"b/c~":{"d":1,"d":2}}]}`), "/context/a/1/b~1c~0/d", "the member occurs twice"},
		"subject twice":                   {strings.Replace(in("{}"), "{", `{"subject":1,`, 1), "/subject", "the member occurs twice"},
		"an unknown member twice":         {strings.Replace(in("{}"), "{", `{"x":1,"x":1,`, 1), "/x", "the member occurs twice"},
		"__entity":                        {in(`{"a":{"__entity":{"type":"u","id":"1"}}}`), "/context/a/__entity", "a member may not have this name"},
		"__extn":                          {in(`{"a":[{"b":1,"__extn":{"fn":"ip","arg":"::1"}}]}`), "/context/a/0/__extn", "a member may not have this name"},
		"__entity, escaped":               {in(`{"\u005f_entit\u0079":1}`), "/context/__entity", "a member may not have this name"},
		"__entity as null":                {in(`{"__entity":null}`), "/context/__entity", "a member may not have this name"},
		"__entity at the top":             {strings.Replace(in("{}"), "{", `{"__entity":1,`, 1), "/__entity", "a member may not have this name"},
		"__extn in what is ignored":       {strings.Replace(in("{}"), "{", `{"x":{"__extn":1},`, 1), "/x/__extn", "a member may not have this name"},
		"__entity in a property":          {strings.Replace(in("{}"), `"id":"1"`, `"id":"1","properties":{"__entity":1}`, 1), "/subject/properties/__entity", "a member may not have this name"},
		"context.action":                  {in(`{"action":{}}`), "/context/action", "only the PDP sets this member"},
		"context.pdp":                     {in(`{"pdp":{"approved":true}}`), "/context/pdp", "only the PDP sets this member"},
		"the native shape":                {shapes["native"].body, "/subject", "missing"},
	} {
		if _, err := decodeAuthZEN(c.body, evaluation.DefaultLimits()); !refusedAt(err, c.pointer, c.detail) {
			t.Errorf("%s: %s, not %q at %q", what, told(err), c.detail, c.pointer)
		}
	}
}

func TestNativeBodies(t *testing.T) {
	t.Parallel()
	with := func(old, new string) string {
		if !strings.Contains(shapes["native"].body, old) {
			t.Fatalf("no %s in the body", old)
		}
		return strings.Replace(shapes["native"].body, old, new, 1)
	}
	for what, c := range map[string]struct{ body, pointer, detail string }{
		"other members are ignored":      {with(`{"tenant_id"`, `{"x":1,"subject":2,"tenant_id"`), "", ""},
		"so they are in the resource":    {with(`"labels":{`, `"properties":1,"x":[],"labels":{`), "", ""},
		"no labels":                      {with(`,"labels":{"l":1}`, ""), "", ""},
		"purpose in the context alone":   {with(`"purpose":"why","context":{`, `"context":{"purpose":"x",`), "", ""},
		"purpose in the context as null": {with(`"context":{`, `"context":{"purpose":null,`), "", ""},
		"purpose twice":                  {with(`"context":{`, `"context":{"purpose":"why",`), "/context/purpose", "the purpose is given twice"},
		"context.action":                 {with(`"context":{`, `"context":{"action":{},`), "/context/action", "only the PDP sets this member"},
		"context.pdp":                    {with(`"context":{`, `"context":{"pdp":1,`), "/context/pdp", "only the PDP sets this member"},
		"__entity in the actor":          {with(`"roles":`, `"__entity":`), "/actor/__entity", "a member may not have this name"},
		"the AuthZEN shape":              {shapes["AuthZEN"].body, "/actor", "missing"},
	} {
		if _, err := decodeNative(c.body, evaluation.DefaultLimits()); !refusedAt(err, c.pointer, c.detail) {
			t.Errorf("%s: %s, not %q at %q", what, told(err), c.detail, c.pointer)
		}
	}
}

// TestDecodeEither holds how a file's request finds its shape and its tenant.
func TestDecodeEither(t *testing.T) {
	t.Parallel()
	native, authzen := shapes["native"].body, shapes["AuthZEN"].body
	for what, c := range map[string]struct{ body, beside, tenant, pointer, detail string }{
		"AuthZEN":                         {authzen, "", "default", "", ""},
		"AuthZEN, a tenant beside":        {authzen, "t2", "t2", "", ""},
		"native":                          {native, "", "t1", "", ""},
		"native, the same beside":         {native, "t1", "t1", "", ""},
		"native, another beside":          {native, "t2", "", "/tenant_id", "the request is for another tenant"},
		"native without its tenant":       {strings.Replace(native, `"tenant_id":"t1",`, "", 1), "", "", "/tenant_id", "missing"},
		"native without its actor":        {`{"tenant_id":"t1"}`, "", "", "/actor", "missing"},
		"AuthZEN with a tenant_id":        {strings.Replace(authzen, "{", `{"tenant_id":"t1",`, 1), "", "default", "", ""},
		"neither":                         {`{}`, "", "", "/subject", "missing"},
		"neither, and not even an object": {`[]`, "", "", "", "the body is not a JSON object"},
		"native with a subject":           {strings.Replace(native, "{", `{"subject":{"type":"user","id":"mallory"},`, 1), "", "t1", "", ""},
		"native with no subject":          {strings.Replace(native, "{", `{"subject":null,`, 1), "", "t1", "", ""},
		"AuthZEN with all native ones":    {strings.Replace(authzen, "{", `{"tenant_id":"t1","actor":{"actor_id":"mallory","actor_type":"user"},"purpose":1,`, 1), "t2", "t2", "", ""},
		"both, and no action":             {`{"tenant_id":"t1","actor":{},"subject":{}}`, "", "", "/action", "missing"},
	} {
		r, err := evaluation.Decode([]byte(c.body), c.beside, evaluation.DefaultLimits())
		if !refusedAt(err, c.pointer, c.detail) || r.Tenant != c.tenant {
			t.Errorf("%s: %s in tenant %q, not %q at %q in tenant %q", what, told(err), r.Tenant, c.detail, c.pointer, c.tenant)
		}
	}
}

// TestDecodeEitherIsItsEndpoint holds that a file's request is what the one endpoint that
// takes it makes of it, whatever members of the other shape stand beside.
func TestDecodeEitherIsItsEndpoint(t *testing.T) {
	t.Parallel()
	members := []string{
		`"subject":{"type":"user","id":"a"}`, `"subject":1`, `"actor":{"actor_type":"user","actor_id":"b"}`, `"actor":1`, `"tenant_id":"t1"`, `"tenant_id":1`,
		`"action":{"name":"read"}`, `"action":"read"`, `"action":null`, `"resource":{"type":"doc","id":"7"}`, `"purpose":1`,
	}
	taken := map[evaluation.Shape]int{}
	for set := range 1 << len(members) {
		var body []string
		for n, m := range members {
			if set&(1<<n) != 0 {
				body = append(body, m)
			}
		}
		text := "{" + strings.Join(body, ",") + "}"
		a, errA := decodeAuthZEN(text, evaluation.DefaultLimits())
		n, errN := decodeNative(text, evaluation.DefaultLimits())
		r, err := evaluation.Decode([]byte(text), "", evaluation.DefaultLimits())
		switch {
		case errA == nil && errN == nil:
			t.Errorf("%s: both shapes take it", text)
		case errA == nil && (err != nil || !equal(r, a)), errN == nil && (err != nil || !equal(r, n)), errA != nil && errN != nil && err == nil:
			t.Errorf("%s: %+v, %v\nAuthZEN %+v, %v\nnative %+v, %v", text, r, err, a, errA, n, errN)
		case err == nil:
			taken[r.Shape]++
		}
	}
	if taken[evaluation.AuthZEN] < 10 || taken[evaluation.Native] < 3 {
		t.Errorf("taken %v: this shows little", taken)
	}
}

// TestLimits takes each limit to its bound and one beyond.
func TestLimits(t *testing.T) {
	t.Parallel()
	limits := evaluation.DefaultLimits()
	long := limits.Body - len(in(`{"s":""}`))
	array := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	nested := func(depth int) string { return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth) }
	// The body in() makes holds 10 values around what is in the context; the array is one more.
	wide := func(n int) string {
		full := array(4096, "1")
		rest := n - 10 - 4*(4096+1) - 1
		return in(`{"a":` + full + `,"b":` + full + `,"c":` + full + `,"d":` + full + `,"e":` + array(rest, "1") + `}`)
	}
	for what, c := range map[string]struct{ body, pointer, detail string }{
		"a body of 1 MiB":            {in(`{"s":"` + strings.Repeat("x", long) + `"}`), "", ""},
		"16 deep":                    {in(nested(15)), "", ""},
		"17 deep":                    {in(nested(16)), "/context" + strings.Repeat("/a", 15), "objects and arrays nest more than 16 deep"},
		"17 deep, the last an array": {in(strings.Replace(nested(15), "1", "[]", 1)), "/context" + strings.Repeat("/a", 15), "objects and arrays nest more than 16 deep"},
		"17 deep in what is ignored": {strings.Replace(in("{}"), "{", `{"x":`+nested(16)+`,`, 1), "/x" + strings.Repeat("/a", 15), "objects and arrays nest more than 16 deep"},
		"an array of 19,989":         {in(`{"a":` + array(19_989, "1") + `}`), "", ""},
		"arrays 14 deep":             {in(`{"a":` + strings.Repeat("[", 14) + strings.Repeat("]", 14) + `}`), "", ""},
		"arrays 15 deep":             {in(`{"a":` + strings.Repeat("[", 15) + strings.Repeat("]", 15) + `}`), "/context/a" + strings.Repeat("/0", 14), "objects and arrays nest more than 16 deep"},
		"4,000 objects in an array":  {in(`{"a":` + array(4_000, `{"b":[1]}`) + `}`), "", ""},
		"128 who are acted for":      {in(`{"on_behalf_of":` + array(128, `{"type":"t","id":"i"}`) + `}`), "", ""},
		"129 who are acted for":      {in(`{"on_behalf_of":` + array(129, `{"type":"t","id":"i"}`) + `}`), "/context/on_behalf_of", "more than 128"},
		"20,000 values":              {wide(20_000), "", ""},
		"20,001 values":              {wide(20_001), "/context/e/3601", "the body holds more than 20000 values"},
	} {
		if _, err := decodeAuthZEN(c.body, limits); !refusedAt(err, c.pointer, c.detail) {
			t.Errorf("%s: %s, not %q at %q", what, told(err), c.detail, c.pointer)
		}
	}

	_, err := decodeAuthZEN(in(`{"s":"`+strings.Repeat("x", long+1)+`"}`), limits)
	var e *evaluation.Error
	if !errors.As(err, &e) || !e.TooLarge || e.Pointer != "" || e.Detail != "the body has more than 1048576 bytes" {
		t.Errorf("a body of 1 MiB and a byte: %s", told(err))
	}
}

// TestLongNamesInErrors holds that an error repeats a caller's name only so far, and remains a JSON Pointer.
func TestLongNamesInErrors(t *testing.T) {
	t.Parallel()
	for what, name := range map[string]string{
		"letters": strings.Repeat("n", 2000), "tildes": strings.Repeat("~", 2000), "tildes, one byte on": "x" + strings.Repeat("~", 2000),
		"of two bytes": strings.Repeat("é", 1000), "of two bytes, one byte on": "x" + strings.Repeat("é", 1000),
	} {
		_, err := decodeAuthZEN(in(`{"`+name+`":{"__entity":1}}`), evaluation.DefaultLimits())
		var e *evaluation.Error
		if !errors.As(err, &e) || len(e.Pointer) > 600 || !validPointer(e.Pointer) {
			t.Errorf("%s: %s", what, told(err))
		}
	}
}

// validPointer reports whether a text is a JSON Pointer (RFC 6901).
func validPointer(s string) bool {
	if s != "" && s[0] != '/' {
		return false
	}
	for rest := s; ; {
		_, after, found := strings.Cut(rest, "~")
		if !found {
			return strings.ToValidUTF8(s, "") == s
		}
		if after == "" || after[0] != '0' && after[0] != '1' {
			return false
		}
		rest = after
	}
}

// TestDecoded holds what a request is once it is decoded.
func TestDecoded(t *testing.T) {
	t.Parallel()
	r, err := decodeAuthZEN(`{"subject":{"type":"","id":"","properties":{"b":null,"z":[1,null,"a"],"a":{"d":null}}},"action":{"name":""},
		"resource":{"type":"A::b","id":"\u0000é\ud83d\ude00"},"context":{"n":1.50,"m":-0,"x":1e400,"ok":true}}`, evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	want := `{"subject":{"type":"","id":"","properties":{"a":{},"z":[1,null,"a"]}},"action":{"name":""},"resource":{"type":"A::b","id":"\u0000é😀"},"context":{"m":-0,"n":1.50,"ok":true,"x":1e400}}`
	if err != nil || string(text) != want {
		t.Errorf("it is written %s, %v\nand should be %s", text, err, want)
	}
	if r.Shape != evaluation.AuthZEN || r.Tenant != evaluation.DefaultTenant {
		t.Errorf("shape %v, tenant %q", r.Shape, r.Tenant)
	}
	names := slices.Collect(maps.Keys(maps.Collect(r.Context.Members)))
	if slices.Sort(names); !slices.Equal(names, []string{"m", "n", "ok", "x"}) {
		t.Errorf("members %q", names)
	}
}
