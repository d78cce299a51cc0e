package verify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/clock"
)

// mergedLogs are logs with one clock, which write in turn.
type mergedLogs struct {
	*clock.Clock
	dirs, keys []string
	ids        int
}

func (m *mergedLogs) open(t testing.TB, n int) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.Open(m.dirs[n], decisionlog.Options{
		Origin: fmt.Sprintf("place/%d", n), Checkpoints: decisionlog.Checkpoints{Records: 10, Idle: time.Hour, Every: time.Hour},
		Kinds: []string{format.KindApproval}, Now: m.Now,
	})
	check(t, err)
	return l
}

// write writes records. Some are at one time, and some of the steps are on the log of before, too.
func (m *mergedLogs) write(t testing.TB, l *decisionlog.Log, count int) {
	t.Helper()
	var entries []record.Entry
	for range count {
		m.ids++
		e := record.Entry{ID: id(m.ids), Kind: format.KindDecision, Tenant: []string{"a", "b"}[m.ids%2],
			Request:  &record.Request{Subject: jsontext.Value(`{"type":"user","id":"alice"}`), Action: jsontext.Value(`{"name":"read"}`)},
			Decision: &record.Decision{Allow: true, Bundle: "h1:x"}}
		if m.ids%5 == 0 {
			e = record.Entry{ID: id(m.ids - m.ids%10), Kind: format.KindApproval, Event: "used", Details: jsontext.Value(`{"approval":"x"}`)}
		}
		entries = append(entries, e)
	}
	m.Advance(time.Second)
	check(t, l.Append(t.Context(), entries))
}

// logsToMerge are three logs: one with a new key, one with a redaction, and one whose first segment is gone.
func logsToMerge(t testing.TB) *mergedLogs {
	t.Helper()
	m := &mergedLogs{Clock: clock.At(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))}
	var logs []*decisionlog.Log
	for n := range 3 {
		m.dirs = append(m.dirs, t.TempDir())
		logs = append(logs, m.open(t, n))
	}
	for turn := range 24 {
		m.write(t, logs[turn%3], 1+turn%4)
		if turn == 12 {
			_, err := logs[0].RotateKey(t.Context(), "")
			check(t, err)
			check(t, logs[1].Redact(t.Context(), "", id(2), "asked for"))
			check(t, logs[2].Rotate(t.Context()))
			_, err = logs[2].Retain(t.Context(), decisionlog.Retention{Bytes: 1}, m.Now())
			check(t, err)
		}
	}
	for n, l := range logs {
		check(t, l.Close())
		keys := keysOf(t, m.dirs[n])
		m.keys = append(m.keys, keys[len(keys)-1])
	}
	return m
}

func merge(t testing.TB, exports ...[]byte) ([]byte, int64, error) {
	t.Helper()
	var inputs []export.Input
	for n, one := range exports {
		inputs = append(inputs, export.Input{Name: fmt.Sprint(n, ".ndjson"), Reader: bytes.NewReader(one)})
	}
	var out bytes.Buffer
	done, err := export.Merge(&out, inputs)
	return out.Bytes(), done, err
}

func mustMerge(t testing.TB, exports ...[]byte) []byte {
	t.Helper()
	all, _, err := merge(t, exports...)
	check(t, err)
	return all
}

var turnLine = []byte(`{"export":"part",`)

// parted are the parts of a merge, by the lines that say whose the others are.
func parted(all []byte) (parts [][]byte) {
	at := 0
	for _, line := range split(all) {
		if rest, is := bytes.CutPrefix(line, append(slices.Clone(turnLine), `"part":`...)); is {
			at, _ = strconv.Atoi(strings.TrimRight(string(rest), "}\n"))
			continue
		}
		if bytes.HasPrefix(line, []byte(`{"export":"merge`)) {
			continue
		}
		for len(parts) <= at {
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], line...)
	}
	return parts
}

// TestMerge: a merge verifies by the keys of all its logs. It is the same file whatever the order of the exports, has
// them byte for byte, and its records in the order of their times.
func TestMerge(t *testing.T) {
	t.Parallel()
	m := logsToMerge(t)
	exports := [][]byte{
		exportReal(t, m.dirs[0], export.Options{}),
		exportReal(t, m.dirs[1], export.Options{Proofs: true}),
		exportReal(t, m.dirs[2], export.Options{Filter: record.Filter{Tenant: "a"}, Proofs: true}),
	}
	all := mustMerge(t, exports...)
	for _, order := range [][3]int{{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		if other := mustMerge(t, exports[order[0]], exports[order[1]], exports[order[2]]); !bytes.Equal(other, all) {
			t.Errorf("in the order %v it is another file", order)
		}
	}
	if got := parted(all); len(got) != 3 || !bytes.Equal(got[0], exports[0]) || !bytes.Equal(got[1], exports[1]) || !bytes.Equal(got[2], exports[2]) {
		t.Error("the parts of the merge are not its exports")
	}
	last, turns := "", 0
	var got []string
	r := verify.Export(bytes.NewReader(all), verify.Options{Policy: noWitness(t, m.keys...), Record: func(_ int64, line []byte) {
		one, err := record.Parse(slices.Clone(line))
		check(t, err)
		got = append(got, one.ID)
		if now := one.Time.Format(format.TimeLayout); now < last {
			t.Errorf("%s stands behind %s", now, last)
		} else {
			last = now
		}
	}})
	if !r.Verified() || len(r.Parts) != 3 || r.Records != int64(len(got)) || r.Redacted != 1 || r.Skipped == 0 {
		t.Fatalf("%v: %+v", r.Problem, r)
	}
	for n, p := range r.Parts {
		if !p.Verified() || p.Origin != fmt.Sprintf("place/%d", n) || p.Checkpoint == "" || p.Key != m.keys[n] {
			t.Errorf("part %d: %+v", n, p)
		}
	}
	if turns = bytes.Count(all, turnLine); turns < 20 {
		t.Errorf("the lines of the logs stand one after the other: %d turns", turns)
	}

	for name, tt := range map[string]struct {
		o    verify.Options
		want verify.Code
		says string
	}{
		"all keys":            {verify.Options{Key: strings.Join(m.keys, "\n")}, verify.Verified, ""},
		"no key":              {verify.Options{}, verify.Verified, "place/1: another log signed by another key"},
		"a log is not named":  {verify.Options{Policy: noWitness(t, m.keys[0], m.keys[2])}, verify.OtherKey, "place/1: the checkpoint is signed by place/1"},
		"one key":             {verify.Options{Key: m.keys[0]}, verify.OtherKey, "place/1: the checkpoint is signed by place/1"},
		"a log is not there":  {verify.Options{Policy: noWitness(t, append(otherKeys(t), m.keys...)...)}, verify.Verified, "anything about the log place/3"},
		"no witness cosigned": {verify.Options{Policy: policyOf(t, m.keys...)}, verify.Unwitnessed, "place/0: "},
		"kept":                {verify.Options{Checkpoint: r.Parts[1].Checkpoint}, verify.Verified, "place/0: records cut off the end"},
		"kept elsewhere":      {verify.Options{Checkpoint: strings.ReplaceAll(r.Parts[1].Checkpoint, "place/1", "place/7")}, verify.Usage, "of which there is no part"},
	} {
		r := verify.Export(bytes.NewReader(all), tt.o)
		said := strings.Join(append(slices.Clone(r.NotExcluded), r.Proved...), "\n")
		if r.Problem != nil {
			said = r.Problem.Error()
		}
		if r.Code != tt.want || !strings.Contains(said, tt.says) {
			t.Errorf("%s: got %v %s", name, r.Code, said)
		}
		if name == "kept" && (strings.Contains(said, "place/1: records cut off") || !strings.Contains(said, "place/1: the log continues the checkpoint given")) {
			t.Errorf("%s: %s", name, said)
		}
	}
	// A plain export says it, too.
	if r := verify.Export(bytes.NewReader(exports[0]), verify.Options{Policy: noWitness(t, m.keys...)}); !r.Verified() || !slices.ContainsFunc(r.NotExcluded, func(line string) bool {
		return strings.Contains(line, "anything about the log place/2")
	}) {
		t.Errorf("%+v", r)
	}
}

// otherKeys are those of a log of which there is no export.
func otherKeys(t testing.TB) []string {
	t.Helper()
	m := &mergedLogs{dirs: make([]string, 4), Clock: clock.At(time.Now())}
	m.dirs[3] = t.TempDir()
	check(t, m.open(t, 3).Close())
	return keysOf(t, m.dirs[3])
}

// resealed has the digests of a merge, and of its parts, made anew: as somebody does who changes it on purpose.
func resealed(all []byte) []byte {
	parts := map[int][][]byte{}
	at, sum := 0, sha256.New()
	var out [][]byte
	for _, line := range split(all) {
		if rest, is := bytes.CutPrefix(line, append(slices.Clone(turnLine), `"part":`...)); is {
			at, _ = strconv.Atoi(strings.TrimRight(string(rest), "}\n"))
		} else if bytes.HasPrefix(line, []byte(`{"export":"merged"`)) {
			line = []byte(`{"export":"merged","digest":"` + hex.EncodeToString(sum.Sum(nil)) + "\"}\n")
		} else if !bytes.HasPrefix(line, []byte(`{"export":"merge"`)) {
			parts[at] = append(parts[at], line)
			parts[at] = mend(parts[at])
			line = parts[at][len(parts[at])-1]
		}
		_, _ = sum.Write(line)
		out = append(out, line)
	}
	return join(out)
}

// TestChangedMerge: no change of a merge verifies: of a bit, wherever, or of a line that is removed, there twice, or
// elsewhere. Neither does one of a line, if all digests are made anew.
func TestChangedMerge(t *testing.T) {
	t.Parallel()
	m := logsToMerge(t)
	all := mustMerge(t, exportReal(t, m.dirs[0], export.Options{}), exportReal(t, m.dirs[1], export.Options{Proofs: true}),
		exportReal(t, m.dirs[2], export.Options{Filter: record.Filter{Tenant: "a"}}))
	o := verify.Options{Policy: noWitness(t, m.keys...)}
	if r := verify.Export(bytes.NewReader(resealed(all)), o); !r.Verified() || !bytes.Equal(resealed(all), all) {
		t.Fatalf("as it is: %v", r.Problem)
	}
	codes := map[verify.Code]int{}
	refused := func(what string, changed []byte) {
		t.Helper()
		r := verify.Export(bytes.NewReader(changed), o)
		if codes[r.Code]++; r.Verified() || r.Problem == nil || len(r.Proved) > 0 || strings.Contains(r.Problem.What, "verify itself failed") {
			t.Errorf("%s: %v %+v", what, r.Code, r.Problem)
		}
	}
	random := rand.New(rand.NewPCG(5, 6))
	lines := split(all)
	lines = lines[:len(lines)-1] // what is behind the last newline
	start := 0
	for n, line := range lines { // of each line some bits, so of lines of each kind
		for range 1 + tries()/100 {
			at, bit := start+random.IntN(len(line)), random.IntN(8)
			changed := bytes.Clone(all)
			changed[at] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d of line %d, %.40s", bit, at-start, n+1, line), changed)
		}
		start += len(line)
	}
	for range tries() {
		at, bit := random.IntN(len(all)), random.IntN(8)
		changed := bytes.Clone(all)
		changed[at] ^= 1 << bit
		refused(fmt.Sprintf("bit %d of byte %d", bit, at), changed)
	}
	without := func(n int) [][]byte { return slices.Delete(slices.Clone(lines), n, n+1) }
	for n := range lines {
		other := random.IntN(len(lines))
		for name, changed := range map[string][][]byte{
			"is removed":             without(n),
			"is there twice":         slices.Insert(slices.Clone(lines), n, lines[n]),
			"is elsewhere":           slices.Insert(without(n), min(other, len(lines)-1), lines[n]),
			"is behind the next one": slices.Insert(without(n), min(n+1, len(lines)-1), lines[n]),
			"is another one":         slices.Replace(slices.Clone(lines), n, n+1, lines[other]),
		} {
			text := join(changed)
			if bytes.Equal(text, all) {
				continue
			}
			what := fmt.Sprintf("line %d, %.40s, %s (%d)", n+1, lines[n], name, other)
			refused(what, text)
			if resealed := resealed(text); !bytes.Equal(resealed, all) {
				refused(what+", on purpose", resealed)
			}
		}
	}
	for n := range all[:min(len(all), tries())] {
		refused("cut off", all[:len(all)-1-n])
	}
	t.Log(codes)
}

// TestMergeMadeOnPurpose: who makes a merge by hand, with digests that are right, cannot give it another order, nor
// another form.
func TestMergeMadeOnPurpose(t *testing.T) {
	t.Parallel()
	m := logsToMerge(t)
	exports := [][]byte{exportReal(t, m.dirs[0], export.Options{}), exportReal(t, m.dirs[1], export.Options{}), exportReal(t, m.dirs[2], export.Options{})}
	o := verify.Options{Policy: noWitness(t, m.keys...)}
	all := mustMerge(t, exports...)
	turn := func(n int) []byte { return fmt.Appendf(nil, "{\"export\":\"part\",\"part\":%d}\n", n) }
	end := []byte("{\"export\":\"merged\",\"digest\":\"\"}\n")
	// made has the first lines of all parts, and then their other lines, part by part.
	made := func(parts ...[]byte) []byte {
		out := [][]byte{fmt.Appendf(nil, "{\"export\":\"merge\",\"format\":1,\"parts\":%d}\n", len(parts))}
		for n, one := range parts {
			out = append(out, turn(n), split(one)[0])
		}
		for n, one := range parts {
			if len(parts) > 1 {
				out = append(out, turn(n))
			}
			out = append(out, split(one)[1:]...)
		}
		return resealed(join(append(out, end)))
	}
	var proof bytes.Buffer
	check(t, segment.Read(m.dirs[1], func(s *segment.Snapshot) error { return export.Log{Snapshot: s}.Prove(t.Context(), &proof, id(3)) }))
	lines, sum := split(all), 0
	for n, line := range lines { // where a part has two lines, one after the other
		if n > 10 && bytes.HasPrefix(line, []byte(`{"sequence"`)) && bytes.HasPrefix(lines[n+1], []byte(`{"sequence"`)) {
			sum = n
		}
	}
	same := bytes.Clone(lines[sum-1])
	for n := sum; !bytes.HasPrefix(same, turnLine); n-- {
		same = lines[n]
	}
	other := turn((int(same[len(turnLine)+7]-'0') + 1) % 3)
	inserted := func(more ...[]byte) []byte { return resealed(join(slices.Insert(slices.Clone(lines), sum+1, more...))) }
	for name, tt := range map[string]struct {
		changed []byte
		says    string
	}{
		"part after part":      {made(exports...), "it belongs before the line above it"},
		"in another order":     {made(exports[1], exports[0]), "it belongs before the part above it, or is the same"},
		"one twice":            {made(exports[0], exports[0]), "it belongs before the part above it, or is the same"},
		"a proof":              {made(exports[0], proof.Bytes()), "the first line of part 1, an export of a log, belongs here"},
		"a merge in it":        {made(exports[0], all), "the first line of part 1, an export of a log, belongs here"},
		"says the same part":   {inserted(same), "it names no other part"},
		"says a part too many": {inserted(turn(3)), "it names no other part"},
		"says two parts":       {inserted(other, same), "belongs here"},
		"says it otherwise":    {resealed(bytes.Replace(all, turn(1), []byte("{\"export\":\"part\",\"part\": 1}\n"), 1)), "it names no other part"},
		"begins otherwise":     {resealed(bytes.Replace(all, []byte(`"parts":3}`), []byte(`"parts":3,"by":"me"}`), 1)), "it is no line that a merge begins with"},
		"a newer one":          {resealed(bytes.Replace(all, []byte(`"format":1,"parts":3}`), []byte(`"format":2,"parts":3}`), 1)), "a newer version made it"},
	} {
		r := verify.Export(bytes.NewReader(tt.changed), o)
		if r.Verified() || r.Problem == nil || !strings.Contains(r.Problem.What, tt.says) {
			t.Errorf("%s: %v %v, want %s", name, r.Code, r.Problem, tt.says)
		}
	}
	if r := verify.Export(bytes.NewReader(made(exports[2])), o); !r.Verified() {
		t.Errorf("of one: %v", r.Problem)
	}
}

// TestMergeWithoutPart: a merge without one of its parts is a merge, and the policy says what it lacks.
func TestMergeWithoutPart(t *testing.T) {
	t.Parallel()
	m := logsToMerge(t)
	r := verify.Export(bytes.NewReader(mustMerge(t, exportReal(t, m.dirs[0], export.Options{}), exportReal(t, m.dirs[2], export.Options{}))),
		verify.Options{Policy: noWitness(t, m.keys...)})
	if !r.Verified() || !slices.Contains(r.NotExcluded, "anything about the log place/1: its key was given, and nothing here is of it") {
		t.Errorf("%v: %+v", r.Problem, r.NotExcluded)
	}
}

// oneLog is a log of its own with seven records, and an export of it.
func oneLog(t testing.TB) (m *mergedLogs, exported []byte) {
	t.Helper()
	m = &mergedLogs{dirs: []string{t.TempDir()}, Clock: clock.At(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))}
	l := m.open(t, 0)
	m.write(t, l, 7)
	check(t, l.Close())
	return m, exportReal(t, m.dirs[0], export.Options{})
}

// TestMergeOfOneLog: two exports of one log may be in one merge. Of two histories they may not.
func TestMergeOfOneLog(t *testing.T) {
	t.Parallel()
	m, older := oneLog(t)
	kept := verify.Export(bytes.NewReader(older), verify.Options{}).Checkpoint
	copied := filepath.Join(t.TempDir(), "copy")
	check(t, os.CopyFS(copied, os.DirFS(m.dirs[0])))
	check(t, os.Chmod(filepath.Join(copied, format.KeyFile), 0o600))
	var others [][]byte
	for _, dir := range []string{m.dirs[0], copied} {
		m.dirs[0] = dir
		l := m.open(t, 0)
		m.write(t, l, 5)
		if len(others) > 0 {
			m.write(t, l, 5)
		}
		check(t, l.Close())
		others = append(others, exportReal(t, dir, export.Options{}))
	}
	key := verify.Options{Key: keysOf(t, copied)[0]}
	both, done, err := merge(t, others[0], older)
	check(t, err)
	if r := verify.Export(bytes.NewReader(both), key); !r.Verified() || len(r.Parts) != 2 || r.Parts[0].Size >= r.Parts[1].Size || done != r.Records {
		t.Errorf("%v: %+v", r.Problem, r)
	}
	if r := verify.Export(bytes.NewReader(both), verify.Options{Key: key.Key, Checkpoint: verify.Export(bytes.NewReader(others[0]), key).Checkpoint}); !r.Verified() {
		t.Errorf("with the newest checkpoint: %v", r.Problem) // the older export does not have all that it covers
	}
	forked := mustMerge(t, others...)
	if r := verify.Export(bytes.NewReader(forked), key); r.Code != verify.Forked {
		t.Errorf("two histories: %v %v", r.Code, r.Problem)
	}
	if r := verify.Export(bytes.NewReader(both), verify.Options{Checkpoint: kept}); !r.Verified() {
		t.Errorf("%v", r.Problem)
	}
	_, _, err = merge(t, older, older)
	if err == nil || !strings.Contains(err.Error(), "0.ndjson and 1.ndjson are one export, of place/0") {
		t.Errorf("twice: %v", err)
	}
}

// TestMergeOverARotation: two exports of one log, before and after a new key, verify without a key, too. What another
// key signed under the name of the log does not.
func TestMergeOverARotation(t *testing.T) {
	t.Parallel()
	m, older := oneLog(t)
	l := m.open(t, 0)
	_, err := l.RotateKey(t.Context(), "")
	check(t, err)
	m.write(t, l, 5)
	check(t, l.Close())
	newer := exportReal(t, m.dirs[0], export.Options{})
	both := mustMerge(t, older, newer)
	for name, o := range map[string]verify.Options{"no key": {}, "both keys": {Policy: noWitness(t, keysOf(t, m.dirs[0])...)}} {
		expect(t, name, verify.Export(bytes.NewReader(both), o), verify.Verified, "")
	}
	kept := verify.Options{Checkpoint: verify.Export(bytes.NewReader(older), verify.Options{}).Checkpoint}
	expect(t, "a checkpoint from outside", verify.Export(bytes.NewReader(newer), kept), verify.OtherKey, "")

	_, other := oneLog(t)
	expect(t, "another log", verify.Export(bytes.NewReader(mustMerge(t, other, newer)), verify.Options{}), verify.OtherKey, "")
}

// TestMergeRefuses: what is no export, or damaged, is refused by file and line.
func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	m := logsToMerge(t)
	good, other := exportReal(t, m.dirs[0], export.Options{}), exportReal(t, m.dirs[1], export.Options{})
	lines := split(other)
	var proof bytes.Buffer
	check(t, segment.Read(m.dirs[1], func(s *segment.Snapshot) error { return export.Log{Snapshot: s}.Prove(t.Context(), &proof, id(3)) }))
	for name, tt := range map[string]struct {
		with []byte
		want string
	}{
		"nothing":          {nil, "1.ndjson:1: this is no export"},
		"a table":          {exportReal(t, m.dirs[1], export.Options{Format: "csv"}), "1.ndjson:1: this is no export"},
		"a proof":          {proof.Bytes(), "1.ndjson:1: this is no export"},
		"a merge":          {mustMerge(t, good, other), "1.ndjson:1: this is no export"},
		"cut off":          {other[:len(other)-3], fmt.Sprintf("1.ndjson:%d: the last line is cut off", len(lines)-1)},
		"without its end":  {join(lines[:len(lines)-2]), fmt.Sprintf("1.ndjson:%d: the export ends before its last line", len(lines)-1)},
		"with more":        {append(bytes.Clone(other), lines[3]...), fmt.Sprintf("1.ndjson:%d: something follows", len(lines))},
		"a damaged line":   {bytes.Replace(other, []byte(`"kind":"decision"`), []byte(`"kind":decision"`), 1), "1.ndjson:4: it is no record"},
		"lines swapped":    {join(slices.Concat(lines[:3], [][]byte{lines[4], lines[3]}, lines[5:])), "1.ndjson:5: record "},
		"no line of these": {join(slices.Insert(slices.Clone(lines), 2, []byte("x\n"))), "1.ndjson:3: it is no record"},
	} {
		_, _, err := merge(t, good, tt.with)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
}

// TestMergeReader: a reader of a merge has each record once, and a step that stands on two logs once.
func TestMergeReader(t *testing.T) {
	t.Parallel()
	m := logsToMerge(t)
	exports := [][]byte{exportReal(t, m.dirs[0], export.Options{}), exportReal(t, m.dirs[1], export.Options{}), exportReal(t, m.dirs[2], export.Options{}),
		exportReal(t, m.dirs[1], export.Options{Filter: record.Filter{Tenant: "a"}})}
	want, twice := map[string]bool{}, 0
	for _, one := range exports[:3] {
		verify.Export(bytes.NewReader(one), verify.Options{Record: func(_ int64, line []byte) {
			r, err := record.Parse(slices.Clone(line))
			check(t, err)
			if want[r.ID] {
				twice++
			}
			want[r.ID] = true
		}})
	}
	if twice == 0 {
		t.Fatal("no step stands on two logs")
	}
	all := mustMerge(t, exports...)
	r, err := export.NewReader(bytes.NewReader(all))
	check(t, err)
	got, again := map[string]bool{}, 0
	for l, err := range r.Leaves() {
		check(t, err)
		if l.Again {
			again++
			continue
		}
		if l.Gone != "" {
			continue
		}
		one, err := record.Parse(slices.Clone(l.Line))
		check(t, err)
		if got[one.ID] || one.Sequence != l.Sequence || !strings.HasPrefix(r.Parts[l.Part].Origin, "place/") {
			t.Errorf("record %s comes again, or as %d", one.ID, l.Sequence)
		}
		got[one.ID] = true
	}
	if !maps.Equal(got, want) || again <= twice || len(r.Parts) != 4 {
		t.Errorf("got %d records of %d, %d again", len(got), len(want), again)
	}
	if one, err := export.Find(bytes.NewReader(all), id(3)); err != nil || one.ID != id(3) {
		t.Errorf("a record is not found in it: %v", err)
	}
	for _, cut := range [][]byte{all[:len(all)-90], bytes.ReplaceAll(all, []byte(`{"export":"part","part":2}`), []byte(`{"export":"part","part":9}`))} {
		r, err := export.NewReader(bytes.NewReader(cut))
		for n := 0; err == nil; n++ {
			if n > len(all) {
				t.Fatal("what is damaged is read to its end")
			}
			err = fmt.Errorf("read to its end")
			for _, failed := range r.Leaves() {
				if failed != nil {
					err = failed
				}
			}
		}
		if !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%v", err)
		}
	}
}
