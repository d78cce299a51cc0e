package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/report"
)

// What is counted, reported and sampled over HTTP is what is in the log.
func TestReportAndSampleOverHTTP(t *testing.T) {
	t.Parallel()
	o := openOffice(t)
	o.ask("initech", evaluationPath, tenantQuestion)
	o.ask("globex", evaluationPath, tenantQuestion)
	var whole report.Report
	must(t, json.Unmarshal([]byte(o.get("/v1/log/report")), &whole))
	if whole.Population.Kinds["decision"] != 2 || whole.Service == nil || len(whole.Bundles) != 1 {
		t.Errorf("got %+v", whole)
	}
	var mine report.Report
	must(t, json.Unmarshal([]byte(o.as("initech-auditor").get("/v1/log/report")), &mine))
	if mine.Population.Kinds["decision"] != 1 || mine.Service != nil || len(mine.Tenants) != 1 {
		t.Errorf("got %+v", mine)
	}
	type answer struct {
		Files []struct{ Path, Content string }
	}
	var sample, again answer
	must(t, json.Unmarshal([]byte(o.get("/v1/log/sample?seed=lottery&n=1")), &sample))
	must(t, json.Unmarshal([]byte(o.get("/v1/log/sample?seed=lottery&n=1")), &again))
	records := ""
	for n, f := range sample.Files {
		if f.Path == "records.ndjson" {
			if records = f.Content; records != again.Files[n].Content {
				t.Error("one seed chose two samples")
			}
		}
	}
	if report := verify.Export(strings.NewReader(records), verify.Options{}); !report.Verified() || report.Records != 1 {
		t.Errorf("got %+v", report)
	}
}
