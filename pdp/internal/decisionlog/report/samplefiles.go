package report

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// A sample is these files:
//
//	README.md                 how to check it
//	sample.json               a SampleSummary
//	records.ndjson            an export of the form "proof": the decisions, the records of batches that they inherit from, and their receipts
//	checkpoint                the checkpoint of records.ndjson, by itself
//	bundles/<hex>.list        the list that the digest of a bundle is the hash of, <hex> being that hash
//	bundles/<hex>/<path>      the files that it names
const (
	sampleFormat = 1

	sampleReadme     = "README.md"
	sampleSummary    = "sample.json"
	sampleRecords    = "records.ndjson"
	sampleCheckpoint = "checkpoint"
	sampleBundles    = "bundles"
)

// SampleSummary describes a sample. Members may be added, never renamed.
type SampleSummary struct {
	Format int       `json:"sample"`
	Method string    `json:"method"`
	Seed   string    `json:"seed"`
	N      int       `json:"n"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
	// Tenants are there where it was chosen from the records of some.
	Tenants []string `json:"tenants,omitzero"`
	Origin  string   `json:"origin"`
	// Size and Checkpoint say up to where the log was read.
	Size       int64  `json:"size"`
	Checkpoint string `json:"checkpoint"`
	// Population is how many decisions it was chosen from.
	Population int64 `json:"population"`
	// Gone is nil for a reader that may see the records of some tenants: the tenant of a
	// record that is gone is unknown.
	Gone    *SampleGone    `json:"gone,omitzero"`
	Chosen  []Chosen       `json:"chosen"`
	Bundles []SampleBundle `json:"bundles"`
	segment.Unread
}

// SampleGone counts the records, decisions or not, that are gone from the time of a
// sample.
type SampleGone struct {
	Redacted GoneOf `json:"redacted"`
	Retired  GoneOf `json:"retired"`
}

// GoneOf counts records that are gone. Their own time is gone, too: Inside are those
// between records of the time of the sample, Perhaps those at its edges.
type GoneOf struct {
	Inside  int64 `json:"inside"`
	Perhaps int64 `json:"perhaps"`
}

// Chosen is a decision of a sample.
type Chosen struct {
	Sequence uint64    `json:"sequence"`
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	LeafHash string    `json:"leaf_hash"`
	Score    string    `json:"score"`
	Bundle   string    `json:"bundle,omitzero"`
	// Receipts are the sequences of those for it.
	Receipts []uint64 `json:"receipts"`
	// Gone are the members that it inherits from the record of its batch where that is
	// not there any more.
	Gone []string `json:"inherited_gone,omitzero"`
}

// SampleBundle is a bundle that decisions of a sample were made by.
type SampleBundle struct {
	Digest string `json:"digest"`
	Dir    string `json:"dir"`
	Files  int    `json:"files"`
	// Kept is false where its files were never kept, Whole where files were left out
	// that are not for the reader: then its digest cannot be computed from the rest.
	Kept  bool `json:"kept"`
	Whole bool `json:"whole"`
}

// writeSample makes the files of a sample.
func writeSample(s *segment.Snapshot, p *picking) (Sample, error) {
	o := p.options
	out := Sample{Files: Files{sampleCheckpoint: s.Head.Checkpoint}, Summary: SampleSummary{
		Format: sampleFormat, Seed: o.Seed, N: o.N, From: o.From, To: o.To, Tenants: s.Tenants,
		Method: "of the population, which is every decision in the log up to the checkpoint whose time is from \"from\" on and before \"to\" and whose content is there: " +
			"the \"n\" ones with the smallest SHA-256 of the seed, a zero byte and the record's leaf hash (RFC 6962)",
		Origin: s.Head.Origin, Size: s.Head.Size, Checkpoint: string(s.Head.Checkpoint), Population: p.population, Bundles: []SampleBundle{},
	}}
	if s.Tenants == nil {
		out.Summary.Gone, out.Summary.Unread = &p.gone, s.Head.Unread
	}
	log, chosen := export.Log{Snapshot: s}, p.chosen()
	var records []record.Record
	for _, d := range chosen {
		records = append(append(records, d.Record), d.receipts...)
	}
	records, gone, err := log.WithBatches(records, sampleHold)
	if errors.Is(err, decisionlog.ErrTooLarge) {
		return Sample{}, ErrSampleTooLarge
	}
	if err != nil {
		return Sample{}, err
	}
	digests := map[string]bool{}
	for _, d := range chosen {
		c := d.summary()
		c.Gone = gone[d.Sequence]
		out.Summary.Chosen = append(out.Summary.Chosen, c)
		digests[d.bundle] = true
	}
	delete(digests, "")
	for _, digest := range slices.Sorted(maps.Keys(digests)) {
		if err := out.addBundle(s, digest); err != nil {
			return Sample{}, err
		}
	}
	var proved bytes.Buffer
	if err := log.WriteProofs(&proved, records); err != nil {
		return Sample{}, err
	}
	out.Files[sampleRecords] = proved.Bytes()
	summary, err := json.Marshal(out.Summary, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return Sample{}, err
	}
	out.Files[sampleSummary] = append(summary, '\n')
	out.Files[sampleReadme], err = out.readme()
	return out, err
}

// addBundle adds the files of a bundle, as far as they are for the reader.
func (out *Sample) addBundle(s *segment.Snapshot, digest string) error {
	about := SampleBundle{Digest: digest}
	files, err := s.Bundle(digest)
	if err != nil {
		return fmt.Errorf("the files of the bundle %s: %w", digest, err)
	}
	if files != nil {
		sum, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(digest, "h1:")) // it was, to find them
		cut := segment.VisibleFiles(files, s.Tenants)
		about.Dir = path.Join(sampleBundles, hex.EncodeToString(sum))
		about.Files, about.Kept, about.Whole = len(cut), true, len(cut) == len(files)
		out.Files[about.Dir+".list"] = segment.BundleList(cut)
		for name, content := range cut {
			if !fs.ValidPath(name) { // none leaves the directory
				return fmt.Errorf("the bundle %s has a file %q, which is no path", digest, name)
			}
			out.Files[path.Join(about.Dir, name)] = content
		}
	}
	out.Summary.Bundles = append(out.Summary.Bundles, about)
	return nil
}

//go:embed sample_readme.md
var sampleReadmeText string

var sampleReadmeTemplate = template.Must(template.New(sampleReadme).Funcs(template.FuncMap{
	"sh":     quoteForShell,
	"hash":   func(digest string) string { return quoteForShell(strings.TrimPrefix(digest, "h1:")) },
	"moment": func(at time.Time) string { return at.UTC().Format(format.TimeLayout) },
}).Parse(sampleReadmeText))

func quoteForShell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// readme says how the sample is checked, by a reader that trusts nothing in it.
func (out *Sample) readme() ([]byte, error) {
	var cut, absent []string
	for _, b := range out.Summary.Bundles {
		switch {
		case !b.Kept:
			absent = append(absent, b.Digest)
		case !b.Whole:
			cut = append(cut, b.Digest)
		}
	}
	var b bytes.Buffer
	err := sampleReadmeTemplate.Execute(&b, map[string]any{
		"Summary": out.Summary,
		"Cut":     cut,
		"Absent":  absent,
		"Unwhole": slices.ContainsFunc(out.Summary.Chosen, func(c Chosen) bool { return c.Gone != nil }),
	})
	return b.Bytes(), err
}
