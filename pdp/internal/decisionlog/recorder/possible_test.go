package recorder

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// asking are the records of a batch that asks what is possible of so many documents, and what all of them inherit.
func asking(t *testing.T, id string, many int, shared string) []pdp.Record {
	t.Helper()
	var items []string
	for n := range many {
		items = append(items, fmt.Sprintf(`{"resource":{"type":"doc","id":"%d"}}`, n))
	}
	body := `{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"context":{"note":"` + shared + `"},"options":{"unknown":["/context/arguments"]},"evaluations":[` + strings.Join(items, ",") + `]}`
	batch, err := evaluation.DecodeBatch([]byte(body), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	records := make([]pdp.Record, many)
	for n, item := range batch.Items {
		records[n] = pdp.Record{
			ID: fmt.Sprint(id, ".", n), Bundle: "h1:x", Call: pdp.Call{Request: item.Request}, Item: pdp.Item{Batch: id, Size: batch.Size, Inherits: item.Inherits()},
			Decision: evaluation.Decision{ID: fmt.Sprint(id, ".", n), Possible: evaluation.PossibilityOf(n%3 == 0), Determining: []string{"p"}, Bundle: "h1:x"},
		}
	}
	return records
}

// question is a question of asking as its record has it.
func question(n int) string {
	return fmt.Sprintf(`{"n":%d,"request":{"resource":{"type":"doc","id":"%d"}},"inherits":["context"],"possible":%t,"determining":["p"]}`, n, n, n%3 == 0)
}

// TestPossibleRecordIsBounded: however much is asked at once, it is one record of bounded size, which counts all answers.
func TestPossibleRecordIsBounded(t *testing.T) {
	t.Parallel()
	const named = `"request":{"subject":{"type":"user","id":"a"},"action":{"name":"read"}`
	for name, tt := range map[string]struct {
		many, shared, kept int
		request            string // as it begins
	}{
		"few":                         {14, 10, 14, named + `,"context":{"note":"xxxxxxxxxx"}},"unknown":["/context/arguments"],"items":[`},
		"many":                        {1000, 10, 500, named + `,"context":{"note":"xxxxxxxxxx"}},"unknown":["/context/arguments"],"items":[`},
		"what they share is long":     {300, 60_000, 40, named + `,"context":{"note":"xxx`},
		"what they share has no room": {30, 70_000, 0, named + `},"items":[],"rest":{"more":30,"possible":10,"sha256":"`},
	} {
		r, recorded := logged(t)
		if err := r.Record(t.Context(), asking(t, "b", tt.many, strings.Repeat("x", tt.shared))); err != nil {
			t.Fatal(err)
		}
		whole := recorded("b")
		if len(whole.Line) > format.MaxPossible+1<<10 || !strings.Contains(string(whole.Line), tt.request) {
			t.Errorf("%s: %d bytes: %.300s", name, len(whole.Line), whole.Line)
		}
		kept := len(whole.Items)
		if kept < tt.kept || kept > tt.kept*5/4 {
			t.Errorf("%s: %d questions are in the record", name, kept)
		}
		if possible, impossible, err := whole.Counts(); err != nil || possible != int64((tt.many+2)/3) || impossible != int64(tt.many)-possible {
			t.Errorf("%s: %d are possible, and %d not, %v", name, possible, impossible, err)
		}
		if (kept < tt.many) != (whole.Rest != nil) {
			t.Fatalf("%s: %d of %d are in the record, and the rest is %v", name, kept, tt.many, whole.Rest)
		}
		hash := sha256.New()
		for n := range tt.many {
			if n < kept {
				if string(whole.Items[n]) != question(n) {
					t.Fatalf("%s: %s is not %s", name, whole.Items[n], question(n))
				}
				continue
			}
			hash.Write([]byte(question(n)))
		}
		if sum := hex.EncodeToString(hash.Sum(nil)); tt.kept > 0 && whole.Rest != nil && (whole.Rest.More != tt.many-kept || whole.Rest.SHA256 != sum) {
			t.Errorf("%s: the rest is %+v", name, whole.Rest)
		}
		for _, n := range []int{0, tt.many - 1} {
			q, err := whole.Question(fmt.Sprint("b.", n))
			if (err == nil) != (n < kept) {
				t.Errorf("%s: the question %d: %v", name, n, err)
			}
			if err == nil && !strings.HasPrefix(string(q.Asked), fmt.Sprintf(`{"subject":{"type":"user","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"%d"},"context":{"note":"xxx`, n)) {
				t.Errorf("%s: the question %d is %s", name, n, q.Asked)
			}
		}
	}
}

// TestLongQuestionIsBounded: one question that is longer than that has a record, too.
func TestLongQuestionIsBounded(t *testing.T) {
	t.Parallel()
	r, recorded := logged(t)
	one := asking(t, "b", 1, strings.Repeat("x", 70_000))[0]
	one.ID, one.Decision.ID, one.Item = "d", "d", pdp.Item{}
	if err := r.Record(t.Context(), []pdp.Record{one}); err != nil {
		t.Fatal(err)
	}
	whole := recorded("d")
	if possible, impossible, err := whole.Counts(); len(whole.Line) > 1<<10 || whole.Names.Resource.ID != "0" || possible != 1 || impossible != 0 || err != nil {
		t.Errorf("got %s", whole.Line)
	}
	if _, err := CallOf(whole, nil, evaluation.DefaultLimits()); err == nil {
		t.Error("a question that is not on record is asked again")
	}
	one.Call.Request.Context = evaluation.Object{}
	one.ID, one.Decision.ID = "e", "e"
	if err := r.Record(t.Context(), []pdp.Record{one}); err != nil {
		t.Fatal(err)
	}
	if whole := recorded("e"); whole.Items != nil || whole.Possible == nil || !*whole.Possible {
		t.Errorf("got %s", whole.Line)
	}
}

// TestPossibleRecordHidesSecrets: a secret of one question is masked in what the others share, as in the records of items.
func TestPossibleRecordHidesSecrets(t *testing.T) {
	t.Parallel()
	r, recorded := logged(t)
	body := `{"subject":{"type":"user","id":"a","properties":{"token":"hunter22","name":"hunter22"}},"action":{"name":"read"},"resource":{"type":"doc","id":"1"},
		"context":{"note":"it is hunter22 and tiger333"},"options":{"unknown":[]},"evaluations":[{},{"context":{"password":"tiger333"}},{"options":{}}]}`
	batch, err := evaluation.DecodeBatch([]byte(body), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	var records []pdp.Record
	for n, item := range batch.Items {
		d := evaluation.Decision{ID: fmt.Sprint("b.", n), Possible: evaluation.Possible}
		if n == 2 {
			d.Possible, d.Allow = evaluation.Decided, true
		}
		records = append(records, pdp.Record{ID: d.ID, Call: pdp.Call{Request: item.Request}, Decision: d, Item: pdp.Item{Batch: "b", Size: len(body), Inherits: item.Inherits()}})
	}
	if err := r.Record(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	whole := recorded("b.possible")
	for _, id := range []string{"b", "b.2", "b.possible"} {
		if line := string(recorded(id).Line); strings.Contains(line, "hunter22") || strings.Contains(line, "tiger333") {
			t.Errorf("%s: a secret is on record: %s", id, line)
		}
	}
	for n := range 2 {
		q, err := whole.Question(fmt.Sprint("b.", n))
		if err != nil || len(q.Masked) == 0 || len(q.Gone) > 0 {
			t.Fatalf("question %d: %v, %s hides %+v", n, err, q.Asked, q.Masked)
		}
		var asked struct {
			Subject struct {
				Properties map[string]string `json:"properties"`
			} `json:"subject"`
			Context map[string]string `json:"context"`
		}
		if err := json.Unmarshal(q.Asked, &asked); err != nil || !strings.HasPrefix(asked.Subject.Properties["token"], "masked:") || n == 1 && !strings.HasPrefix(asked.Context["password"], "masked:") {
			t.Errorf("question %d is %s, %v", n, q.Asked, err)
		}
	}
	if one := recorded("b.2"); one.Kind != format.KindDecision || one.Answer() != record.Allow || len(one.Inherits) != 2 {
		t.Errorf("beside it: %s", one.Line)
	}
}
