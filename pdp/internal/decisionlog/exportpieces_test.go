package decisionlog

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math/rand/v2"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// An export that went on after any record is the export in one piece, to the byte, and
// counts the same: for each form, filter and reader, and also when meanwhile the log grew
// and its key was rotated.
func TestExportInPieces(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	k, _ := batchLog(t, r)
	odd := entryOf("odd", true)
	odd.Request.Subject = jsontext.Value(`{"type":"user","id":"=1, a cell\nof \"two\" lines"}`)
	err := k.log.Append(t.Context(), []record.Entry{odd})
	k.ok(err)
	for _, next := range []string{"grown", "rotated"} {
		_, err := k.log.Checkpoint(t.Context())
		k.ok(err)
		settled, err := k.log.Settled()
		k.ok(err)
		for _, tenants := range [][]string{nil, {"acme"}} {
			for _, o := range []ExportOptions{{}, {Proofs: true}, {Filter: batchFilter(r)}, {Filter: batchFilter(r), Proofs: true}, {Format: "csv"}, {Format: "csv", Filter: batchFilter(r)}} {
				var whole bytes.Buffer
				done, err := WriteExport(t.Context(), settled.For(tenants), &whole, o)
				k.ok(err)
				if done.Uncovered = 0; o.Format != "csv" {
					k.ok(JudgeExport(whole.Bytes()))
				}
				k.append(next)
				if next == "rotated" {
					_, err := k.log.RotateKey(t.Context(), "")
					k.ok(err)
				}
				k.inPieces(r, settled.Moment(), tenants, o, whole.Bytes(), done)
			}
		}
	}
}

// inPieces goes on with an export after some of its records, the last one among them.
func (k *kept) inPieces(r *rand.Rand, m segment.Moment, tenants []string, o ExportOptions, whole []byte, want Exported) {
	k.Helper()
	upTo := k.endsOf(whole, o) // by sequence, where the lines of that record end
	apart := int64(40)
	if testing.Short() {
		apart = 200
	}
	for after := want.Size - 1; after >= 0; after -= 1 + r.Int64N(apart) {
		at, err := k.log.At(m)
		k.ok(err)
		var rest bytes.Buffer
		o.From = uint64(after) + 1
		done, err := WriteExport(k.Context(), at.For(tenants), &rest, o)
		k.ok(err)
		if done.Uncovered = 0; done != want {
			k.Fatalf("%+v after %d: it says %+v, want %+v", o, after, done, want)
		}
		if pieces := slices.Concat(whole[:upTo[after]], rest.Bytes()); !bytes.Equal(pieces, whole) {
			k.Fatalf("%+v of %v after %d:\n%s\nwant\n%s", o, tenants, after, pieces, whole)
		}
	}
}

// endsOf is, by sequence, how many bytes an export has up to the end of the lines of that
// record. A record in a line of hashes ends with that line, and one that a table leaves
// out ends with the row before.
func (k *kept) endsOf(whole []byte, o ExportOptions) map[int64]int {
	k.Helper()
	ends, end, next := map[int64]int{}, 0, int64(0)
	ended := func(last int64) {
		for ; next <= last; next++ {
			ends[next] = end
		}
	}
	if o.Format == "csv" {
		rows := csv.NewReader(bytes.NewReader(whole))
		for {
			row, err := rows.Read()
			if err != nil {
				break
			}
			if sequence, err := strconv.ParseInt(row[0], 10, 64); err == nil {
				ended(sequence - 1)
				end = int(rows.InputOffset())
				ended(sequence)
			}
			end = int(rows.InputOffset())
		}
		ended(1 << 10)
		return ends
	}
	for line := range bytes.Lines(whole) {
		var at struct {
			Export          string
			Sequence, First int64
			Hashes          []string
		}
		end += len(line)
		k.ok(json.Unmarshal(line, &at))
		switch {
		case at.Export == ExportLeaves:
			ended(at.First + int64(len(at.Hashes)) - 1)
		case at.Export == ExportProof, at.Export == "" && !o.Proofs:
			ended(at.Sequence)
		}
	}
	return ends
}

func TestMomentNames(t *testing.T) {
	t.Parallel()
	m := segment.Moment{Size: 7, Time: time.Date(2026, 11, 21, 10, 48, 38, 73, time.UTC)}
	if got, ok := segment.ParseMoment(m.String()); !ok || got.Size != m.Size || !got.Time.Equal(m.Time) {
		t.Errorf("%s is read as %+v", m, got)
	}
	for _, name := range []string{"", "-", "7", "7-", "-7", "7-x", "x-7", "+7-1", "07-1", "7-01", "7-1-", " 7-1", "7-1 ", "7--0", "9223372036854775808-1", "7-9223372036854775808", strings.Repeat("7", 99)} {
		if _, ok := segment.ParseMoment(name); ok {
			t.Errorf("%q is read as a moment", name)
		}
	}
}
