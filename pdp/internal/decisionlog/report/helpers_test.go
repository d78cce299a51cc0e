package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

func mustOpen(t testing.TB, data string, o decisionlog.Options) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.Open(data, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustAppend(t testing.TB, l *decisionlog.Log, entries ...record.Entry) uint64 {
	t.Helper()
	if err := errors.Join(l.Append(t.Context(), entries), l.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	return l.Size() - uint64(len(entries))
}

// object makes an object that can be made.
func object(members map[string]any) evaluation.Object {
	o, err := evaluation.NewObject(members)
	if err != nil {
		panic(err)
	}
	return o
}

func entryOf(id string, allow bool) record.Entry {
	tenant := "default"
	if strings.HasSuffix(id, "7") {
		tenant = "acme"
	}
	return record.Entry{ID: id, Kind: format.KindDecision, Tenant: tenant, Caller: "key:pep",
		Request: &record.Request{
			Subject:  jsontext.Value(fmt.Sprintf(`{"type":"user","id":"subject-of-%s"}`, id)),
			Action:   jsontext.Value(`{"name":"read"}`),
			Resource: jsontext.Value(`{"type":"doc","id":"plan"}`),
			Context:  jsontext.Value(fmt.Sprintf(`{"note":"content-of-%s"}`, id)),
		},
		Decision: &record.Decision{Allow: allow, Determining: []string{"p1"}}}
}

// judgeExport has the verifier, which shares nothing with this package, judge an export.
func judgeExport(all []byte, keys ...string) error {
	report := verify.Export(strings.NewReader(string(all)), verify.Options{Key: strings.Join(keys, "\n")})
	if !report.Verified() {
		return errors.New(report.Problem.Error())
	}
	return nil
}
