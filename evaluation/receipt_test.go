package evaluation_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"policy-service/evaluation"
)

func TestDecodeReceipts(t *testing.T) {
	t.Parallel()
	limits := evaluation.DefaultLimits()
	body := `{"obligations":[{"id":"a","status":"discharged"},{"id":"","status":"failed","detail":"` + strings.Repeat("x", limits.Detail) + `","more":[1]}],"more":{}}`
	got, err := evaluation.DecodeReceipts([]byte(body), limits)
	want := []evaluation.Receipt{{ID: "a", Status: evaluation.Discharged}, {Status: evaluation.NotDischarged, Detail: strings.Repeat("x", limits.Detail)}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	many := `{"obligations":[` + strings.TrimSuffix(strings.Repeat(`{"id":"a","status":"failed"},`, evaluation.MostReceipts), ",") + `]}`
	if got, err := evaluation.DecodeReceipts([]byte(many), limits); err != nil || len(got) != evaluation.MostReceipts {
		t.Errorf("got %d, %v", len(got), err)
	}
	for body, pointer := range map[string]string{
		``:                     "",
		`[]`:                   "",
		`{}`:                   "/obligations",
		`{"obligations":null}`: "/obligations",
		`{"obligations":[]}`:   "/obligations",
		`{"obligations":{}}`:   "/obligations",
		`{"obligations":[{"id":"a","status":"failed"},7]}`:                                                       "/obligations/1",
		`{"obligations":[{"id":7,"status":"failed"}]}`:                                                           "/obligations/0/id",
		`{"obligations":[{"id":"a"}]}`:                                                                           "/obligations/0/status",
		`{"obligations":[{"id":"a","status":"Failed"}]}`:                                                         "/obligations/0/status",
		`{"obligations":[{"id":"a","status":true}]}`:                                                             "/obligations/0/status",
		`{"obligations":[{"id":"a","status":"failed","detail":[]}]}`:                                             "/obligations/0/detail",
		`{"obligations":[{"id":"a","status":"failed","detail":"` + strings.Repeat("x", limits.Detail+1) + `"}]}`: "/obligations/0/detail",
		`{"obligations":[{"id":"a","status":"failed","__entity":{}}]}`:                                           "/obligations/0/__entity",
		strings.Replace(many, "[", `[{"id":"a","status":"failed"},`, 1):                                          "/obligations/4096",
	} {
		var bad *evaluation.Error
		if got, err := evaluation.DecodeReceipts([]byte(body), limits); got != nil || !errors.As(err, &bad) || bad.Pointer != pointer || bad.TooLarge {
			t.Errorf("%.100s: got %v, %v, not at %s", body, got, err, pointer)
		}
	}
}

// What is accepted is within its limits and is accepted again.
func FuzzDecodeReceipts(f *testing.F) {
	f.Add([]byte(`{"obligations":[{"id":"a","status":"discharged"},{"id":"b","status":"failed","detail":"x"}]}`))
	f.Add([]byte(`{"obligations":[{"id":"a","id":"b","status":null}]}`))
	limits := evaluation.DefaultLimits()
	f.Fuzz(func(t *testing.T, body []byte) {
		receipts, err := evaluation.DecodeReceipts(body, limits)
		if err != nil {
			holds(t, evaluation.Request{}, err)
		}
		if (err == nil) != (len(receipts) > 0) {
			t.Errorf("%v with %v", receipts, err)
		}
		for _, r := range receipts {
			if len(r.Detail) > limits.Detail || r.Status != evaluation.Discharged && r.Status != evaluation.NotDischarged {
				t.Errorf("it is accepted: %+v", r)
			}
		}
	})
}
