package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/inside/decisionlog"
	"policy-service/pdp/pdptest/inside/export"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/record"
	"policy-service/pdp/pdptest/inside/report"
	"policy-service/pdp/pdptest/inside/segment"
)

// A sample says how it is checked. Here it is taken at its word, by somebody who has the sample, the public key, and for
// the last part an export.

// fillSampled records all that a sample can hold: decisions of two tenants with their bundle and receipts, and ids and
// texts that a careless reader would trip over.
func fillSampled(t *testing.T, log *decisionlog.Log, data string, n int) {
	t.Helper()
	store, err := segment.OpenBundles(data)
	must(t, err)
	digest, err := store.Put(map[string][]byte{"a b.cedar": []byte("permit (principal, action, resource);"), "bundle.yaml": []byte("allow_trivial: true"),
		"tenants/acme/a.cedar": []byte("// of acme"), "tenants/other/a.cedar": []byte("// of other")})
	must(t, err)
	for i := range n {
		id := fmt.Sprintf(`%d","kind":"receipt \%d`, i, i)
		e := record.Entry{ID: id, Kind: format.KindDecision, Tenant: []string{"acme", "other"}[i%2],
			Request: &record.Request{
				Subject:  jsontext.Value(`{"type":"user","id":"  a\\\"'$(touch ../touched)é","properties":{"kind":"receipt","bundle":"h1:AAAA"}}`),
				Action:   jsontext.Value(`{"name":"read"}`),
				Resource: jsontext.Value(`{"type":"doc","id":"%s\\n"}`),
			},
			Decision: &record.Decision{Allow: true, Bundle: digest, Obligations: []evaluation.Obligation{{ID: "log", Type: "log"}}}}
		receipt := record.Receipt{Decision: id, Obligations: []evaluation.Receipt{{ID: "log", Status: evaluation.Discharged, Detail: `"kind":"decision"`}}}
		err := log.Append(t.Context(), []record.Entry{e, receipt.Entry(e.Tenant, "")})
		must(t, err)
	}
}

// desk is where a sample is checked: the sample in a directory, beside it what came another way.
type desk struct {
	*testing.T
	dir string
}

// receive is a desk with a sample of the log as of now, and an export of later.
func receive(t *testing.T, o report.SampleOptions, tenants ...string) desk {
	t.Helper()
	return receiveAfter(t, func(string) {}, o, tenants...)
}

// receiveAfter is the same after something happened to the data directory.
func receiveAfter(t *testing.T, happens func(data string), o report.SampleOptions, tenants ...string) desk {
	t.Helper()
	data := t.TempDir()
	log, err := decisionlog.Open(data, decisionlog.Options{Origin: "pdp.example.com/log"})
	must(t, err)
	defer func() { _ = log.Close() }()
	fillSampled(t, log, data, 8)
	happens(data)
	o.To = time.Now().UTC() // for the log's clock is the real one
	_, err = log.Checkpoint(t.Context())
	must(t, err)
	snapshot, err := log.Snapshot()
	must(t, err)
	sample, err := report.Choose(t.Context(), snapshot.For(tenants), o)
	must(t, err)
	d := desk{t, t.TempDir()}
	for name, content := range sample.Files {
		d.write(name, string(content))
	}

	fillSampled(t, log, data, 2) // what comes later changes nothing
	_, err = log.Checkpoint(t.Context())
	must(t, err)
	snapshot, err = log.Snapshot()
	must(t, err)
	var exported bytes.Buffer
	_, err = export.Log{Snapshot: snapshot.For(tenants)}.Export(t.Context(), &exported, export.Options{})
	must(t, err)
	d.write("../export.ndjson", exported.String())
	keys, err := segment.VerifierKeys(data)
	must(t, err)
	d.write("../log.pub", strings.Join(keys, "\n")+"\n")
	return d
}

func (d desk) read(name string) string {
	d.Helper()
	content, err := os.ReadFile(filepath.Join(d.dir, "sample", name))
	must(d.T, err)
	return string(content)
}

func (d desk) write(name, content string) {
	d.Helper()
	name = filepath.Join(d.dir, "sample", name)
	must(d.T, os.MkdirAll(filepath.Dir(name), 0o700))
	must(d.T, os.WriteFile(name, []byte(content), 0o600))
}

// commands are all those of the sample's README.
func (d desk) commands() string {
	d.Helper()
	var all strings.Builder
	inside := false
	for line := range strings.Lines(d.read("README.md")) {
		switch strings.TrimSpace(line) {
		case "```sh":
			inside = true
		case "```":
			inside = false
		default:
			if inside {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}

// check runs commands in the sample, up to the first one that fails.
func (d desk) check(commands string) error {
	d.Helper()
	sh := exec.CommandContext(d.Context(), "sh", "-e", "-c", commands)
	sh.Dir = filepath.Join(d.dir, "sample")
	out, err := sh.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// The commands of a sample find it as it is.
//
// They start processes for each decision several times, which takes a second.
func TestSampleReadme(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		options report.SampleOptions
		tenants []string
	}{
		{"whole", report.SampleOptions{N: 2, Seed: `it's $(touch ../touched) "é" \n %s`}, nil},
		{"from a time on", report.SampleOptions{N: 1, Seed: "s", From: time.Date(2020, 1, 1, 0, 0, 0, 5, time.FixedZone("", 3600))}, nil},
		{"all of it", report.SampleOptions{N: 1000, Seed: "s"}, nil},
		{"of a tenant", report.SampleOptions{N: 2, Seed: "s"}, []string{"acme"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := receive(t, c.options, c.tenants...)
			commands := d.commands()
			if strings.Count(commands, "policy-service log verify") != 2 || !strings.Contains(commands, "sha256sum -c") {
				t.Fatalf("these are not the commands:\n%s", commands)
			}
			if err := d.check(commands); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(d.dir, "touched")); err == nil {
				t.Error("text of the sample was executed")
			}
		})
	}
}

// Where the policies were never kept the sample says so, and the rest of it is checked all the same.
func TestSampleReadmeWithoutPolicies(t *testing.T) {
	t.Parallel()
	d := receiveAfter(t, func(data string) { must(t, os.RemoveAll(filepath.Join(data, segment.BundlesDir))) }, report.SampleOptions{N: 2, Seed: "s"})
	if !strings.Contains(d.read("README.md"), "were not kept, and are not here") {
		t.Error("the README does not say that the policies are not there")
	}
	commands := d.commands()
	if err := d.check(commands); err != nil {
		t.Error(err)
	}
	d.write("sample.json", strings.Replace(d.read("sample.json"), `"score": "`, `"score": "0`, 1))
	if d.check(commands) == nil {
		t.Error("another score was not found")
	}
}

// Whatever of a sample is changed, one of its commands fails.
func TestSampleReadmeFindsTampering(t *testing.T) {
	t.Parallel()
	d := receive(t, report.SampleOptions{N: 2, Seed: "s"})
	commands := d.commands()
	must(t, d.check(commands)) // or the failures below would prove nothing
	policies, err := filepath.Glob(filepath.Join(d.dir, "sample/bundles/*/a b.cedar"))
	must(t, err)
	policy, err := filepath.Rel(filepath.Join(d.dir, "sample"), policies[0])
	must(t, err)
	bundle := filepath.Dir(policy)
	replace := func(name, old, with string) func() {
		return func() {
			text := d.read(name)
			if !strings.Contains(text, old) {
				t.Fatalf("%s does not hold %q", name, old)
			}
			d.write(name, strings.Replace(text, old, with, 1))
		}
	}
	other := receive(t, report.SampleOptions{N: 2, Seed: "s"}) // by the same name, with another key
	for _, c := range []struct {
		name, file string
		tamper     func()
	}{
		{"another answer", "records.ndjson", replace("records.ndjson", `"decision":true`, `"decision":false`)},
		{"another receipt", "records.ndjson", replace("records.ndjson", `"discharged"`, `"failed"`)},
		{"another log", "records.ndjson", func() { d.write("records.ndjson", other.read("records.ndjson")) }},
		{"another checkpoint", "checkpoint", func() { d.write("checkpoint", other.read("checkpoint")) }},
		{"another policy", policy, replace(policy, "permit", "forbid")},
		{"a policy more", bundle + "/more.cedar", func() { d.write(bundle+"/more.cedar", "permit all") }},
		{"another list", bundle + ".list", replace(bundle+".list", "a b.cedar", "c.cedar")},
		{"no policies", bundle + ".list", func() { d.write(bundle+".list", "") }},
		{"another score", "sample.json", replace("sample.json", `"score": "`, `"score": "0`)},
		{"an export without some", "../export.ndjson", func() {
			lines := strings.SplitAfter(d.read("../export.ndjson"), "\n")
			d.write("../export.ndjson", strings.Join(append(lines[:5], lines[6:]...), ""))
		}},
	} {
		before, err := os.ReadFile(filepath.Join(d.dir, "sample", c.file))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		c.tamper()
		if d.check(commands) == nil {
			t.Errorf("%s was not found", c.name)
		}
		if err != nil {
			must(t, os.Remove(filepath.Join(d.dir, "sample", c.file)))
		} else {
			d.write(c.file, string(before))
		}
	}
	must(t, d.check(commands)) // each was taken back
	// A choice that is not the seed's: what was left out of it shows in the whole log only.
	if d.check(strings.Replace(commands, "seed='s'", "seed='t'", 1)) == nil {
		t.Error("another seed chooses the same")
	}
}
