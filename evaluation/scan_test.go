package evaluation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"policy-service/conformance"
	"policy-service/evaluation"
	"policy-service/pdp/pdptest/night"
)

// tight are limits that small bodies reach.
func tight() evaluation.Limits {
	return evaluation.Limits{Body: 1 << 20, Depth: 4, Values: 24, Batch: 2}
}

// entries are the ways to read one body.
type entries struct {
	authzen, native func() (evaluation.Request, error)
	batch           func() (evaluation.Batch, error)
	object, nulls   func() (evaluation.Object, error)
}

func entriesOf(body []byte, limits evaluation.Limits) entries {
	return entries{
		func() (evaluation.Request, error) { return evaluation.DecodeAuthZEN(body, "t1", limits) },
		func() (evaluation.Request, error) { return evaluation.DecodeNative(body, limits) },
		func() (evaluation.Batch, error) { return evaluation.DecodeBatch(body, "t1", limits) },
		func() (evaluation.Object, error) { return evaluation.ParseObject(body, limits) },
		func() (evaluation.Object, error) { return evaluation.ParseWithNulls(body, limits) },
	}
}

// strictEntriesOf are the entries if the parser reads every body.
func strictEntriesOf(body []byte, limits evaluation.Limits) entries {
	one, _, oneErr := evaluation.ParseStrictly(body, limits, "", evaluation.InBody)
	many, reserved, manyErr := evaluation.ParseStrictly(body, limits, "evaluations", evaluation.InBody)
	nulls, _, nullsErr := evaluation.ParseStrictly(body, limits, "", evaluation.InArguments)
	request := func(q evaluation.Request, err error) (evaluation.Request, error) {
		if oneErr != nil {
			return evaluation.Request{}, oneErr
		}
		return q, err
	}
	return entries{
		func() (evaluation.Request, error) { return request(evaluation.AuthZENOf(one, "t1")) },
		func() (evaluation.Request, error) { return request(evaluation.NativeOf(one)) },
		func() (evaluation.Batch, error) {
			if manyErr != nil {
				return evaluation.Batch{}, manyErr
			}
			return evaluation.BatchOf(many, reserved, "t1", len(body))
		},
		func() (evaluation.Object, error) { return one, oneErr },
		func() (evaluation.Object, error) { return nulls, nullsErr },
	}
}

// told is all that can be told of a body.
func (e entries) told() [5]string {
	with := func(what string, err error) string { return fmt.Sprintf("%s\nerror: %v, %+v", what, err, err) }
	authzen, authzenErr := e.authzen()
	native, nativeErr := e.native()
	batch, batchErr := e.batch()
	object, objectErr := e.object()
	nulls, nullsErr := e.nulls()
	return [...]string{
		with(requestTold(authzen), authzenErr), with(requestTold(native), nativeErr), with(batchTold(batch), batchErr),
		with(objectTold(object), objectErr), with(objectTold(nulls), nullsErr),
	}
}

func objectTold(o evaluation.Object) string {
	canonical, ok := o.Value().AppendCanonical(nil)
	var all []string
	for name, v := range o.All {
		found, there := o.Lookup(name)
		all = append(all, fmt.Sprint(name, v.Kind(), v.Text(), there, found.Equal(v)))
	}
	less := o.Without(func(name string) bool { return name < "b" })
	more := o.With("b", o.Value()).Beside(less)
	return fmt.Sprintf("%s %s %t %d %d %q %s %s", written(o), canonical, ok, o.Len(), o.Size(), all, written(less), written(more))
}

func written(v json.Marshaler) string {
	text, err := v.MarshalJSON()
	return fmt.Sprint(string(text), err)
}

func requestTold(q evaluation.Request) string {
	actors, ok := q.Actors()
	behind, _ := json.Marshal(actors)
	text := fmt.Sprintf("%d %q %s %q %s %t %q %t %v", q.Shape, q.Tenant, written(q), q.Unknown.Pointers(), behind, ok,
		q.Presented(), q.Justified(), q.Continues())
	for _, o := range []evaluation.Object{q.Subject.Properties, q.Action.Properties, q.Resource.Properties, q.Context} {
		text += "\n" + objectTold(o)
	}
	return text
}

func batchTold(b evaluation.Batch) string {
	text := fmt.Sprint(b.Single, b.Semantic, b.Size)
	for _, i := range b.Items {
		text += fmt.Sprintf("\n%s %v %+v %s %s", requestTold(i.Request), i.Err, i.Inherits(), i.Pointer("/subject/type"), i.Pointer("/context/a"))
	}
	return text
}

// scannedAsParsed holds that a body, if it is scanned, is what the parser makes of it. It reports in how many of two
// ways it was scanned.
func scannedAsParsed(t *testing.T, body []byte, limits evaluation.Limits) (scanned int) {
	t.Helper()
	check := func(o evaluation.Object, ok bool) func(evaluation.Object, bool, error) {
		return func(want evaluation.Object, reserved bool, err error) {
			t.Helper()
			if !ok {
				return
			}
			if scanned++; err != nil || reserved || !reflect.DeepEqual(o, want) {
				t.Fatalf("%q\nis scanned as\n%s\nand parsed as\n%s, %t, %v", body, written(o), written(want), reserved, err)
			}
		}
	}
	check(evaluation.Scan(body, limits, "evaluations", evaluation.InBody))(evaluation.ParseStrictly(body, limits, "evaluations", evaluation.InBody))
	check(evaluation.Scan(body, limits, "", evaluation.InArguments))(evaluation.ParseStrictly(body, limits, "", evaluation.InArguments))
	return scanned
}

// readAsParsed holds that all that can be told of a body is what it is if the parser reads every body.
func readAsParsed(t *testing.T, body []byte, limits evaluation.Limits) {
	t.Helper()
	if len(body) > limits.Body {
		return // nobody reads it
	}
	sent := string(body)
	got, want := entriesOf(body, limits).told(), strictEntriesOf(body, limits).told()
	for n := range want {
		if got[n] != want[n] {
			t.Fatalf("%q\nis read as\n%s\nand not as\n%s", body, got[n], want[n])
		}
	}
	if string(body) != sent {
		t.Fatalf("%q\nwas changed to %q", sent, body)
	}
}

// corpus are bodies of all kinds, right ones and others: those that other tests here and the conformance suite send,
// and what lies about as JSON.
var corpus = sync.OnceValues(func() (all []string, err error) {
	var mu sync.Mutex
	seen := map[string]bool{}
	add := func(body string) {
		mu.Lock()
		defer mu.Unlock()
		if !seen[body] && len(body) < 8<<10 { // a few are large for the sake of it
			seen[body] = true
			all = append(all, body)
		}
	}
	for _, body := range bodies {
		add(body)
	}
	for _, shape := range shapes {
		add(shape.body)
	}
	for _, pattern := range []string{"../schemas/*.json", "../schemas/obligations/*.json"} {
		names, err := filepath.Glob(pattern)
		if err != nil || names == nil {
			return nil, fmt.Errorf("%s: %d files, %w", pattern, len(names), err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			add(string(text))
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		add(string(body))
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	var plans []string
	for _, p := range conformance.Plans() {
		plans = append(plans, p.Name)
	}
	_, err = conformance.Run(context.Background(), conformance.Target{URL: server.URL, Plans: plans})
	return all, err
})

func corpusFor(t testing.TB) []string {
	t.Helper()
	all, err := corpus()
	if err != nil || len(all) < 300 {
		t.Fatalf("%d bodies: %v", len(all), err)
	}
	return all
}

func FuzzScan(f *testing.F) {
	for n, body := range corpusFor(f) {
		if n < 50 || n%25 == 0 { // most are much like others, and TestScan reads all of them
			f.Add([]byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		readAsParsed(t, body, evaluation.DefaultLimits())
		scannedAsParsed(t, body, tight())
		scannedAsParsed(t, body, wider())
	})
}

// TestScan: what is usual is scanned.
func TestScan(t *testing.T) {
	t.Parallel()
	batch := strings.TrimSuffix(in("{}"), "}") + `,"evaluations":[{},{"context":{"a":[1]}}],"options":{"evaluations_semantic":"execute_all"}}`
	for _, body := range []string{
		`{}`, in(`{}`), " \t\r\n" + in(` { } `) + " \t\r\n", batch, shapes["AuthZEN"].body, shapes["native"].body,
		in(`{"a":"é😀","b":"one\nline \"and\" \\ \/ \ud83d\ude00 \u00e9","c":[],"d":{},"":""}`),
		in(`{"a":[0,-0,1,-1.50,0.1,123456789012345678901234567890],"b":[true,false,null,[1],{"z":1,"a":2}]}`),
		in(`{"arguments":{"b":null,"a":[null,{"c":null}]},"other":null}`),
		in(`{"a":"` + strings.Repeat("x", 2*evaluation.SharedText) + `","b":"\n"}`),
	} {
		readAsParsed(t, []byte(body), evaluation.DefaultLimits())
		if scannedAsParsed(t, []byte(body), evaluation.DefaultLimits()) != 2 {
			t.Errorf("%.200q is not scanned", body)
		}
	}
	all := corpusFor(t)
	scanned := 0
	for _, body := range all {
		scanned += scannedAsParsed(t, []byte(body), evaluation.DefaultLimits())
	}
	if scanned < len(all) {
		t.Errorf("of %d bodies %d are scanned, in two ways each: the test shows little", len(all), scanned)
	}
}

// TestCorpusIsReadAsParsed: of each body, all that can be told is what the parser makes of it.
func TestCorpusIsReadAsParsed(t *testing.T) {
	t.Parallel()
	for half := range 2 {
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			t.Parallel()
			for n, body := range corpusFor(t) {
				if n%2 == half {
					readAsParsed(t, []byte(body), evaluation.DefaultLimits())
				}
			}
		})
	}
}

// TestScanWhereItCounts: depth, arrays and places are counted as the parser counts them.
func TestScanWhereItCounts(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"context":[{"arguments":{"a":null}}],"content":{"arguments":{"a":null}},"arguments":[{"a":null}]}`,
		`{"evaluations":[{"arguments":{"a":null},"context":{"arguments":{"a":null}}}]}`,
		`{"x":{"evaluations":[[1]]}}`, `{"evaluations":[[1]]}`, `{"evaluations":[[[1]]]}`, `{"evaluations":[{"a":[1]}]}`, `{"evaluations":{"a":[1]}}`,
		`{"x":{"evaluations":[1,2,3]}}`, `{"evaluations":[1,2]}`, `{"evaluations":[1,2,3]}`, `{"evaluations":[]}`, `{"evaluations":null}`,
	} {
		for _, limits := range []evaluation.Limits{tight(), evaluation.DefaultLimits()} {
			readAsParsed(t, []byte(body), limits)
			scannedAsParsed(t, []byte(body), limits)
		}
	}
	for n := range 70 {
		deep := strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n)
		for _, body := range []string{`{"evaluations":[` + deep + "]}", `{"a":` + deep + "}", `{"a":[` + deep + "]}"} {
			limits := wider()
			limits.Depth = n
			scannedAsParsed(t, []byte(body), limits)
			limits.Depth = n + 1
			scannedAsParsed(t, []byte(body), limits)
			limits.Depth = n + 2
			scannedAsParsed(t, []byte(body), limits)
		}
	}
}

// TestScanChangedBodies changes each byte of bodies in each way: it is another one, missing, or there twice.
func TestScanChangedBodies(t *testing.T) {
	t.Parallel()
	others := []byte("\x00\f \"\\,:[]{}0.-en\xc3\xff")
	bodies := []string{
		`{"subject":{"type":"user","id":"al\u0069ce","properties":{"p":-10.25,"é":"\ud83d\ude00 \\ \/\n"}},"action":{"name":"read"},"context":{"arguments":{"b":[null,{"c":null}],"a":null},"z":true,"y":false,"n":null}}`,
		`{"tenant_id":"t1","actor":{"actor_id":"a","actor_type":"u","roles":["r",[1]]},"action":"read","resource":{"type":"doc","labels":{"l":0}},"purpose":"why"}`,
		`{ "subject" : {"type":"u"}, "evaluations": [{"action":{"name":"b"},"context":{"x":[{},1]}}] , "options":{"unknown":["/context/a"]} }`,
	}
	scanned := 0
	for _, body := range bodies {
		for n := range len(body) {
			before, after := body[:n], body[n+1:]
			changed := []string{before, before + after, before + body[n:n+1] + body[n:], body[n:]}
			for bit := range 8 {
				changed = append(changed, before+string([]byte{body[n] ^ 1<<bit})+after)
			}
			for _, c := range others {
				changed = append(changed, before+string([]byte{c})+after, before+string([]byte{c})+body[n:])
			}
			for _, text := range changed {
				scanned += min(1, scannedAsParsed(t, []byte(text), evaluation.DefaultLimits()))
			}
		}
	}
	if scanned < 500 {
		t.Errorf("%d of the changed bodies are scanned: the test shows little", scanned)
	}
}

// TestPropertyScannedAsParsed makes requests, right ones and others.
func TestPropertyScannedAsParsed(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(25, 4))
	all, scanned := night.Cases(1000), 0
	usual := strings.NewReplacer(`"\u0000":`, `"u":`, `"\"":`, `"q":`, `1e400`, `1.4`, `"__entity"`, `"_e"`, `"__extn"`, `"_x"`)
	for n := range all {
		body := oddBody(r)
		if n%2 == 0 {
			body = usual.Replace(body)
		}
		readAsParsed(t, []byte(body), evaluation.DefaultLimits())
		scanned += min(1, scannedAsParsed(t, []byte(body), wider()))
		scannedAsParsed(t, []byte(body), tight())
	}
	if scanned < all/4 || scanned > all*3/4 {
		t.Errorf("of %d bodies %d are scanned: the test shows little", all, scanned)
	}
}

// oddBody is the body of a request in one of the shapes, with odd members, some of which are there twice.
func oddBody(r *rand.Rand) string {
	entity := func(names ...string) string {
		members := []string{`"properties":` + oddObject(r, 4)}
		for _, name := range names {
			members = append(members, quoted(name)+`:"x\n"`)
		}
		if r.IntN(9) == 0 {
			members = append(members, members[r.IntN(len(members))])
		}
		r.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
		return "{ " + strings.Join(members, " ,\t") + "\n}"
	}
	request := func() []string {
		return []string{
			`"subject":` + entity("type", "id"), `"action":` + entity("name"), `"resource":` + entity("id", "type"), `"context":` + oddObject(r, 5),
		}
	}
	members := request()
	switch r.IntN(4) {
	case 0:
		members = []string{
			`"tenant_id":"t1"`, `"actor":` + entity("actor_id", "actor_type"), `"action":"read"`, `"resource":` + entity("type", "id", "x"), `"context":` + oddObject(r, 5),
			`"purpose":` + oddValue(r, 0),
		}
	case 1:
		items := make([]string, r.IntN(4))
		for n := range items {
			own := request()
			items[n] = "{" + strings.Join(own[r.IntN(len(own)):], ",") + "}"
		}
		members = append(members, `"evaluations":[`+strings.Join(items, " , ")+"]")
	}
	if r.IntN(3) == 0 {
		members = append(members, quoted(oddNames[r.IntN(len(oddNames))])+":"+oddValue(r, 3))
	}
	r.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

// oddNames are those that mean something somewhere, or are read as something else.
var oddNames = []string{
	"a", "b", "arguments", "context", "content", "action", "pdp", "approval", "approval_id", "person", "supported_obligations",
	"__entity", "__extn", "é", "\x00", `"`, "options",
}

// oddValue is a JSON value such as no client would send, and many would.
func oddValue(r *rand.Rand, deep int) string {
	switch n := r.IntN(10); {
	case n < 3 || deep == 0:
		return []string{"null", "true", "1", "1.50", "1e400", `"x"`, `"\u2028<\u0000"`, `"` + strings.Repeat("x", r.IntN(900)) + `"`}[r.IntN(8)]
	case n < 5:
		all := make([]string, r.IntN(8))
		for i := range all {
			all[i] = oddValue(r, deep-1)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	return oddObject(r, deep-1)
}

func oddObject(r *rand.Rand, deep int) string {
	var all []string
	for _, n := range r.Perm(len(oddNames))[:r.IntN(4)] {
		if name := oddNames[n]; !strings.HasPrefix(name, "__") || r.IntN(9) == 0 {
			all = append(all, fmt.Sprintf("%s:%s", quoted(name), oddValue(r, deep)))
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

func quoted(name string) string {
	v, _ := evaluation.Text(name)
	text, _ := v.MarshalJSON()
	return string(text)
}
