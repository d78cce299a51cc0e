package decisionlog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// aBatch are the entries of a batch of n items that inherit all that can be inherited,
// and the requests that they were, by their ids.
func aBatch(id, tenant string, n int, pick func(n int) int) (entries []record.Entry, whole map[string]string) {
	const shared = `{"team":"blue","level":3}`
	properties := `"properties":` + shared
	entries = []record.Entry{{ID: id, Kind: format.KindBatch, Tenant: tenant, Caller: "key:pep", Request: &record.Request{
		Subject: jsontext.Value("{" + properties + "}"), Action: jsontext.Value("{" + properties + "}"), Resource: jsontext.Value("{" + properties + "}"),
		Context: jsontext.Value(`{"purpose":"secret-of-` + id + `","supported_obligations":["log"]}`),
	}}}
	whole = map[string]string{}
	for i := range n {
		e := record.Entry{ID: fmt.Sprintf("%s.%d", id, i), Kind: format.KindDecision, Tenant: tenant, Caller: "key:pep", Decision: &record.Decision{Allow: pick(2) == 0, Determining: []string{"p1"}}}
		entity := func(member, names string) (line, all jsontext.Value) {
			switch pick(3) {
			case 0:
				e.Inherits = append(e.Inherits, member)
				return jsontext.Value("{" + names + "}"), jsontext.Value("{" + names + "," + properties + "}")
			case 1:
				own := jsontext.Value("{" + names + `,"properties":{"own":true}}`)
				return own, own
			}
			return jsontext.Value("{" + names + "}"), jsontext.Value("{" + names + "}")
		}
		var r, all record.Request
		r.Subject, all.Subject = entity(record.InheritsSubject, `"type":"user","id":"a"`)
		r.Action, all.Action = entity(record.InheritsAction, `"name":"read"`)
		r.Resource, all.Resource = entity(record.InheritsResource, fmt.Sprintf(`"type":"doc","id":"doc-%d"`, i))
		switch pick(4) {
		case 0:
			e.Inherits, all.Context = append(e.Inherits, record.InheritsContext), entries[0].Request.Context
		case 1:
			e.Inherits = append(e.Inherits, record.InheritsSupported)
			r.Context, all.Context = jsontext.Value(`{"own":1}`), jsontext.Value(`{"own":1,"supported_obligations":["log"]}`)
		case 2:
			r.Context, all.Context = jsontext.Value(`{"own":1}`), jsontext.Value(`{"own":1}`)
		}
		e.Request = &r
		entries = append(entries, e)
		body, _ := (&record.Entry{Request: &all}).AppendBody(nil)
		whole[e.ID] = strings.TrimPrefix(string(body), `,"request":`)
	}
	return entries, whole
}

// An item of a batch is read back as it was asked, whole, by whatever reads it; and once
// the record of its batch is redacted it says of each member that it inherited that it is
// gone, and of no other.
func TestItemsAreReadBackWithWhatTheyInherit(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	data := memory(t)
	l := mustOpen(t, data, Options{Index: true})
	entries, whole := aBatch("b1", "acme", 200, r.IntN)
	mustAppend(t, l, entries...)
	alone := record.Entry{ID: "alone", Kind: format.KindDecision, Tenant: "acme", Request: &record.Request{Subject: jsontext.Value(`{"type":"user","id":"a"}`)}, Decision: &record.Decision{}}
	mustAppend(t, l, alone, record.Entry{ID: "start", Kind: format.KindAdmin, Event: "start"})

	read := func() (gone int) {
		for id, want := range whole {
			record, err := l.ByID(id)
			must(t, err)
			got, err := l.Recorded(record.Line)
			must(t, err)
			gone += len(got.Gone)
			if got.Batch.Line != nil && string(got.Asked) != want {
				t.Fatalf("%s:\ngot  %s\nwant %s", id, got.Asked, want)
			}
			if got.Batch.Line != nil && len(got.Gone) > 0 || got.Batch.Line == nil && !slices.Equal(got.Gone, got.Inherits) || string(got.Line) != string(record.Line) {
				t.Fatalf("%s: got %+v", id, got)
			}
			var lacks, all struct{ Subject, Action, Resource, Context map[string]any }
			if json.Unmarshal(got.Asked, &lacks) != nil || json.Unmarshal([]byte(want), &all) != nil {
				t.Fatal(string(got.Asked))
			}
			for member, parts := range map[string][2]map[string]any{"subject": {lacks.Subject, all.Subject}, "action": {lacks.Action, all.Action}, "resource": {lacks.Resource, all.Resource}, "context": {lacks.Context, all.Context}} {
				says := slices.Contains(got.Gone, member) || member == "context" && slices.Contains(got.Gone, "supported_obligations")
				if same := reflect.DeepEqual(parts[0], parts[1]); same == says {
					t.Fatalf("%s: %s of %s is the same: %v, and gone are %v", id, member, got.Asked, same, got.Gone)
				}
			}
		}
		return gone
	}
	if gone := read(); gone != 0 {
		t.Errorf("%d members are gone", gone)
	}
	for _, id := range []string{"alone", "start", "b1"} { // what inherits nothing is as it stands
		record, err := l.ByID(id)
		must(t, err)
		if got, err := l.Recorded(record.Line); err != nil || got.Batch.Line != nil || got.Inherits != nil || got.Gone != nil || id == "start" && got.Asked != nil || id == "alone" && string(got.Asked) != `{"subject":{"type":"user","id":"a"}}` {
			t.Errorf("%s: got %+v, %v", id, got, err)
		}
	}
	must(t, l.Redact(t.Context(), "", "b1", "on request"))
	if gone := read(); gone < 200 {
		t.Errorf("the record of the batch is redacted, and %d members are gone", gone)
	}
}

// A record is never put together with that of another batch, of another tenant, or with
// one that is no batch's: nobody's properties are shown as somebody else's.
func TestItemsInheritFromTheirOwnBatch(t *testing.T) {
	t.Parallel()
	item := `{"sequence":9,"id":"b1.0","tenant":"acme","kind":"decision","request":{"subject":{"type":"user","id":"a"}},"inherits":["subject"]}`
	for _, batch := range []string{
		`{"sequence":8,"id":"b2","tenant":"acme","kind":"batch","request":{"subject":{"properties":{"x":1}}}}`,
		`{"sequence":8,"id":"b1","tenant":"globex","kind":"batch","request":{"subject":{"properties":{"x":1}}}}`,
		`{"sequence":8,"id":"b1","tenant":"acme","kind":"decision","request":{"subject":{"properties":{"x":1}}}}`,
		`{"sequence":8,`, `[]`,
	} {
		if got, err := record.Resolve([]byte(item), record.Record{Line: []byte(batch)}); err == nil {
			t.Errorf("%s: got %s", batch, got.Asked)
		}
	}
	for _, batch := range []string{ // what it says to inherit, and is not there, is gone
		`{"sequence":8,"id":"b1","tenant":"acme","kind":"batch","request":{"resource":{"properties":{"x":1}}}}`,
		`{"sequence":8,"id":"b1","tenant":"acme","kind":"batch","request":{"subject":{"type":"user"}}}`,
		`{"sequence":8,"id":"b1","tenant":"acme","kind":"batch"}`,
	} {
		if got, err := record.Resolve([]byte(item), record.Record{Line: []byte(batch)}); err != nil || !slices.Equal(got.Gone, []string{"subject"}) {
			t.Errorf("%s: got %s, gone %v, %v", batch, got.Asked, got.Gone, err)
		}
	}
	for _, bad := range []string{
		`{"sequence":9,"id":"b1.0","tenant":"acme","request":{"subject":{"type":"user","properties":{}}},"inherits":["subject"]}`,
		`{"sequence":9,"id":"b1.0","tenant":"acme","request":{"context":{}},"inherits":["context"]}`,
	} { // never merged
		if got, err := record.Resolve([]byte(bad), record.Record{Line: []byte(`{"id":"b1","tenant":"acme","kind":"batch","request":{"subject":{"properties":{"x":1}},"context":{"x":1}}}`)}); err == nil {
			t.Errorf("%s: got %s", bad, got.Asked)
		}
	}
	later := `{"sequence":9,"id":"b1.0","tenant":"acme","request":{},"inherits":["mood"]}`
	if got, err := record.Resolve([]byte(later), record.Record{Line: []byte(`{"id":"b1","tenant":"acme","kind":"batch","request":{}}`)}); err != nil || !slices.Equal(got.Gone, []string{"mood"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Whatever two lines are, they are put together to a request that is JSON, or refused; and
// each member that is to be inherited is in it or named as gone.
func FuzzResolve(f *testing.F) {
	item := `{"sequence":9,"id":"b1.0","tenant":"acme","kind":"decision","request":{"subject":{"type":"user","id":"a"},"context":{ }},"inherits":["subject","supported_obligations","x"]}`
	batch := `{"sequence":8,"id":"b1","tenant":"acme","kind":"batch","request":{"subject":{"properties":{"x":1}},"context":{"supported_obligations":[]}}}`
	f.Add([]byte(item), []byte(batch))
	f.Add([]byte(strings.Replace(item, `"context":{ }`, `"context":null`, 1)), []byte(batch))
	f.Add([]byte(strings.Replace(item, `{"type":"user","id":"a"}`, `"alice"`, 1)), []byte(batch))
	f.Add([]byte(strings.Replace(item, `"subject",`, `"subject","subject",`, 1)), []byte(strings.Replace(batch, `{"properties"`, `[{"properties"`, 1)))
	f.Add([]byte(`{"id":".0","inherits":["context"]}`), []byte(`{"kind":"batch","request":{"context":1}}`))
	for _, masked := range []string{`{"at":"/context/supported_obligations/0","type":"string","removed":true}`, `{"at":"","type":"bool"}`, `{"at":"x"}`, `{"at":"/context","type":"object"}`, `{"at":"/context/approval","type":"object"}`} {
		with := func(line string) []byte { return []byte(line[:len(line)-1] + `,"masked":[` + masked + `]}`) }
		f.Add(with(item), with(batch))
	}
	f.Fuzz(func(t *testing.T, line, batch []byte) {
		for _, b := range [][]byte{batch, nil} {
			r, err := record.Resolve(line, record.Record{Line: b})
			if err != nil {
				continue
			}
			_, _, _ = r.Request(evaluation.DefaultLimits()) // whatever it says is masked
			if r.Asked != nil && !r.Asked.IsValid() {
				t.Fatalf("%q with %q: %q", line, b, r.Asked)
			}
			if b == nil && len(r.Gone) != len(r.Inherits) {
				t.Fatalf("%q alone lacks %q, and gone are %q", line, r.Inherits, r.Gone)
			}
		}
	})
}
