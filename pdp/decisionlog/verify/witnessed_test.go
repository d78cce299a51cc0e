package verify_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/judged"
)

// witness cosigns as C2SP tlog-cosignature says.
type witness struct {
	name string
	key  ed25519.PrivateKey
}

func newWitness(name string) *witness {
	seed := sha256.Sum256([]byte(name))
	return &witness{name, ed25519.NewKeyFromSeed(seed[:])}
}

func (w *witness) material() []byte { return append([]byte{4}, w.key.Public().(ed25519.PublicKey)...) }
func (w *witness) Name() string     { return w.name }

func (w *witness) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(w.name+"\n"), w.material()...))
	return binary.BigEndian.Uint32(sum[:])
}

func (w *witness) Sign(text []byte) ([]byte, error) {
	const at = 1767323045
	signed := fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text)
	return append(binary.BigEndian.AppendUint64(nil, at), ed25519.Sign(w.key, signed)...), nil
}

func (w *witness) vkey() string {
	return fmt.Sprintf("%s+%08x+%s", w.name, w.KeyHash(), base64.StdEncoding.EncodeToString(w.material()))
}

var w1, w2, w3 = newWitness("w1.example"), newWitness("w2.example"), newWitness("w3.example")

// cosign adds the lines of witnesses to a checkpoint.
func cosign(t testing.TB, keys []string, signed []byte, by ...note.Signer) []byte {
	t.Helper()
	var known []note.Verifier
	for _, key := range keys {
		v, err := note.NewVerifier(key)
		check(t, err)
		known = append(known, v)
	}
	n, err := note.Open(signed, note.VerifierList(known...))
	check(t, err)
	signed, err = note.Sign(&note.Note{Text: n.Text, Sigs: n.Sigs}, by...)
	check(t, err)
	return signed
}

// policyOf asks two of three witnesses.
func policyOf(t testing.TB, keys ...string) *c2sp.Policy {
	t.Helper()
	return policyFor(t, "2", keys...)
}

func policyFor(t testing.TB, least string, keys ...string) *c2sp.Policy {
	t.Helper()
	text := ""
	for _, key := range keys {
		text += "log " + key + "\n"
	}
	for i, w := range []*witness{w1, w2, w3} {
		text += fmt.Sprintf("witness W%d %s\n", i+1, w.vkey())
	}
	p, err := c2sp.ParsePolicy([]byte(text + "group all " + least + " W1 W2 W3\nquorum all\n"))
	check(t, err)
	return p
}

func noWitness(t testing.TB, keys ...string) *c2sp.Policy {
	t.Helper()
	p, err := c2sp.ParsePolicy(c2sp.PolicyText(keys))
	check(t, err)
	return p
}

// cosignedLog is a log of which witnesses saw a part, and two copies of it that went on by themselves, with the same key.
type cosignedLog struct {
	data     string
	keys     []string
	cosigned []byte // of the first 61 records
	last     []byte // of 81 records, in the directory
	shorter  []byte // of 71 records, of another history
	longer   []byte // of 101 records, of a third one
}

func newCosigned(t testing.TB) cosignedLog {
	t.Helper()
	root := t.TempDir()
	c := cosignedLog{data: filepath.Join(root, "here")}
	first := openReal(t, c.data)
	appendReal(t, first, 0, 60)
	signed, err := first.Checkpoint(t.Context())
	check(t, err)
	c.keys = keysOf(t, c.data)
	c.cosigned = cosign(t, c.keys, signed, w1, w2)
	check(t, first.Close())
	goesOn := func(dir string, from, to int) []byte {
		if dir != "here" {
			check(t, os.CopyFS(filepath.Join(root, dir), os.DirFS(c.data)))
			for _, name := range []string{format.KeyFile, "log/00000001.db"} {
				check(t, os.Chmod(filepath.Join(root, dir, name), 0o600))
			}
		}
		l := openReal(t, filepath.Join(root, dir))
		appendReal(t, l, from, to)
		signed, err := l.Checkpoint(t.Context())
		check(t, err)
		if dir == "here" {
			check(t, l.KeepWitnessed(c.cosigned))
		}
		check(t, l.Close())
		return signed
	}
	c.shorter, c.longer = goesOn("there", 100, 110), goesOn("elsewhere", 200, 240)
	c.last = goesOn("here", 60, 80)
	return c
}

func (c cosignedLog) put(t testing.TB, name string, content []byte) {
	t.Helper()
	file := filepath.Join(c.data, name)
	check(t, os.RemoveAll(file))
	if content != nil {
		check(t, os.WriteFile(file, content, 0o600))
	}
}

// flipped has one character of a text changed into another one that Base64 has, in a place that counts from its end if it is
// below 0.
func flipped(text []byte, place int) []byte {
	text = bytes.Clone(text)
	if place < 0 {
		place += len(text)
	}
	if text[place] == 'B' {
		text[place] = 'b'
	} else {
		text[place] = 'B'
	}
	return text
}

func says(all []string, part string) bool { return strings.Contains(strings.Join(all, "\n"), part) }

// expect holds a report against a code, and against words that it must have.
func expect(t *testing.T, what string, r verify.Report, code verify.Code, said string) {
	t.Helper()
	problem := ""
	if r.Problem != nil {
		problem = r.Problem.Error()
	}
	if all := append(append([]string{problem}, r.Proved...), r.NotExcluded...); r.Code != code || !says(all, said) {
		t.Errorf("%s: got %v, want %v\n%s\nwhich lacks %q", what, r.Code, code, strings.Join(all, "\n"), said)
	}
}

func TestQuorumOfADirectory(t *testing.T) {
	t.Parallel()
	c := newCosigned(t)
	policy, other := policyOf(t, c.keys...), newCosigned(t)
	for name, test := range map[string]struct {
		witnessed []byte
		policy    *c2sp.Policy
		want      verify.Code
		said      string
	}{
		"the quorum":                 {c.cosigned, policy, verify.Verified, "the quorum of the policy cosigned the first 61 records: W1 at 2026-01-02T03:04:05Z, W2 at 2026-01-02T03:04:05Z"},
		"what it does not cover":     {c.cosigned, policy, verify.Verified, "that others were shown other records from record 61 on: the quorum cosigned none of the last "},
		"of several logs":            {c.cosigned, policyOf(t, append(other.keys, c.keys...)...), verify.Verified, "the first 61 records"},
		"more than the quorum":       {cosign(t, c.keys, c.cosigned, w1, w2, w3), policy, verify.Verified, "W3 at"},
		"no file":                    {nil, policy, verify.Unwitnessed, "too few witnesses of the policy cosigned the checkpoint: 0 of 3 did, and the quorum is all"},
		"one witness":                {cosign(t, c.keys, c.cosigned, w3), policy, verify.Unwitnessed, "1 of 3 did"},
		"a quorum of three":          {c.cosigned, policyFor(t, "all", c.keys...), verify.Unwitnessed, "2 of 3 did"},
		"another log in the policy":  {c.cosigned, policyOf(t, other.keys...), verify.OtherKey, "which the key given did not sign in"},
		"of another log":             {other.cosigned, policyOf(t, append(other.keys, c.keys...)...), verify.Forked, "log/witnessed"},
		"no witness asked":           {nil, noWitness(t, c.keys...), verify.Verified, "another log, shown to others under the same name: the policy asks no witness"},
		"no log in the policy":       {c.cosigned, policyOf(t), verify.Usage, "the policy names no log"},
		"a cosignature flipped":      {flipped(c.cosigned, -5), policy, verify.Altered, "invalid signature"},
		"the log's signature":        {flipped(c.cosigned, bytes.Index(c.cosigned, []byte("— "))+40), policy, verify.Altered, "log/witnessed"},
		"its text":                   {flipped(c.cosigned, bytes.IndexByte(c.cosigned, '\n')+1), policy, verify.Altered, "log/witnessed"},
		"garbage":                    {[]byte("garbage\n"), policy, verify.Altered, "log/witnessed"},
		"empty":                      {[]byte{}, policy, verify.Altered, "log/witnessed"},
		"huge":                       {bytes.Repeat([]byte("x"), 1<<20), policy, verify.Unreadable, "has more than"},
		"of a history that is over":  {cosign(t, c.keys, c.longer, w1, w2), policy, verify.Truncated, "log/witnessed"},
		"of another history":         {cosign(t, c.keys, c.shorter, w1, w2), policy, verify.Forked, "log/witnessed"},
		"garbage, and no policy":     {[]byte("garbage\n"), nil, verify.Verified, "log/witnessed is none that this log signed"},
		"huge, and no policy":        {bytes.Repeat([]byte("x"), 1<<20), nil, verify.Verified, "has more than"},
		"cosigned, and no policy":    {c.cosigned, nil, verify.Verified, "each of the"},
		"of the past, and no policy": {cosign(t, c.keys, c.longer, w1), nil, verify.Truncated, "log/witnessed"},
		"forked, and no policy":      {c.shorter, nil, verify.Forked, "log/witnessed"},
	} {
		c.put(t, format.WitnessedFile, test.witnessed)
		o := verify.Options{Policy: test.policy}
		r := verify.Directory(c.data, o)
		expect(t, name, r, test.want, test.said)
		if (r.Witnessed != nil) != (test.policy != nil && r.Verified()) {
			t.Errorf("%s: the report has %+v", name, r.Witnessed)
		}
	}
	check(t, os.RemoveAll(filepath.Join(c.data, format.WitnessedFile)))
	check(t, os.Mkdir(filepath.Join(c.data, format.WitnessedFile), 0o700))
	expect(t, "a directory", verify.Directory(c.data, verify.Options{Policy: policy}), verify.Unreadable, "log/witnessed")
}

// What is kept as evidence of another history counts if it is signed, and only then.
func TestEvidenceOfAConflict(t *testing.T) {
	t.Parallel()
	c, other := newCosigned(t), newCosigned(t)
	for name, test := range map[string]struct {
		conflict []byte
		want     verify.Code
		said     string
	}{
		"none":              {nil, verify.Verified, ""},
		"another history":   {c.shorter, verify.Forked, "the first 71 records are not those that the checkpoint in log/conflict was signed for"},
		"cosigned":          {cosign(t, c.keys, c.shorter, w1), verify.Forked, "log/conflict"},
		"of more records":   {c.longer, verify.Truncated, "log/conflict"},
		"of this log":       {c.last, verify.Verified, "log/conflict is kept as evidence, though it is of this log"},
		"of another log":    {other.shorter, verify.Verified, "log/conflict is none that this log signed"},
		"flipped signature": {flipped(c.shorter, -5), verify.Verified, "log/conflict is none that this log signed"},
		"garbage":           {[]byte("\x00\n\n\n"), verify.Verified, "log/conflict is none that this log signed"},
		"huge":              {bytes.Repeat([]byte("a\n"), 1<<20), verify.Verified, "has more than"},
	} {
		c.put(t, format.ConflictFile, test.conflict)
		expect(t, name, verify.Directory(c.data, verify.Options{}), test.want, test.said)
		expect(t, name+", with a policy", verify.Directory(c.data, verify.Options{Policy: policyOf(t, c.keys...)}), test.want, test.said)
	}
}

// The claims of witnesses are named, and are a finding for those who want none.
func TestSuspects(t *testing.T) {
	t.Parallel()
	c := newCosigned(t)
	for name, test := range map[string]struct {
		suspects string
		said     string // "" for nothing
	}{
		"none":         {"[]", ""},
		"null":         {"null", ""},
		"more records": {`[{"witness":"W1","size":120,"ours":81,"status":409,"since":"2026-01-02T03:04:05.123456789Z"}]`, "another history of this log: witness W1 at 2026-01-02T03:04:05Z said that it cosigned 120 records of this log; here were 81"},
		"a refusal":    {`[{"witness":"W1","size":120,"ours":81,"status":409,"since":"2026-01-02T03:04:05Z"},{"witness":"W2","ours":81,"status":422,"since":"2026-01-02T03:04:05Z"}]`, "witness W2 at 2026-01-02T03:04:05Z refused (422) the proof that the 81 records here go on from what it cosigned"},
		"garbage":      {`[{"witness":`, "log/suspects cannot be read"},
		"other types":  {`[{"witness":7}]`, "log/suspects cannot be read"},
		"below zero":   {`[{"witness":"W1","size":-1}]`, "log/suspects cannot be read"},
		"huge":         {"[" + strings.Repeat(`{"witness":"W1"},`, 8<<10) + `{}]`, "log/suspects cannot be read"},
		"deep":         {strings.Repeat("[", 60<<10), "log/suspects cannot be read"},
		"many":         {"[" + strings.Repeat(`{"witness":"W1","ours":1},`, 999) + `{}]`, "witness W1 at 0001-01-01T00:00:00Z refused"},
	} {
		c.put(t, format.SuspectsFile, []byte(test.suspects))
		r := verify.Directory(c.data, verify.Options{})
		expect(t, name, r, verify.Verified, test.said)
		strict := verify.Verified
		if test.said != "" {
			strict = verify.Unwitnessed
		} else if says(r.NotExcluded, "another history") {
			t.Errorf("%s: got %q", name, r.NotExcluded)
		}
		if r := verify.Directory(c.data, verify.Options{Strict: true}); r.Code != strict || len(r.NotExcluded) > 30 {
			t.Errorf("%s, strictly: got %v of %v", name, r.Code, r.Problem)
		}
	}
}

// Beside a running server, its last segment is not read. A checkpoint that covers more can be judged only by asking the server.
func TestQuorumBesideAServer(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := openReal(t, data)
	defer func() { check(t, l.Close()) }()
	appendReal(t, l, 0, 60)
	early, err := l.Checkpoint(t.Context())
	check(t, err)
	check(t, l.Rotate(t.Context()))
	appendReal(t, l, 60, 70)
	late, err := l.Checkpoint(t.Context())
	check(t, err)
	keys := keysOf(t, data)
	policy := verify.Options{Policy: policyOf(t, keys...)}
	check(t, l.KeepWitnessed(cosign(t, keys, early, w1, w3)))
	expect(t, "of what is sealed", verify.Directory(data, policy), verify.Verified, "the first 61 records")
	check(t, l.KeepWitnessed(cosign(t, keys, late, w1, w3)))
	expect(t, "of more", verify.Directory(data, policy), verify.Usage, "--server")
	expect(t, "of more, and no policy", verify.Directory(data, verify.Options{}), verify.Verified, "each of the")
	check(t, os.WriteFile(filepath.Join(data, format.ConflictFile), late, 0o600))
	expect(t, "a conflict of more", verify.Directory(data, verify.Options{}), verify.Usage, "--server")
}

// A policy is of keys: each that signed something may be asked for.
func TestQuorumOverARotation(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := openReal(t, data)
	appendReal(t, l, 0, 10)
	signed, err := l.Checkpoint(t.Context())
	check(t, err)
	check(t, l.KeepWitnessed(cosign(t, keysOf(t, data), signed, w1, w2)))
	_, err = l.RotateKey(t.Context(), "")
	check(t, err)
	appendReal(t, l, 10, 20)
	check(t, l.Close())
	keys := keysOf(t, data)
	for name, test := range map[string]struct {
		keys []string
		want verify.Code
	}{"both": {keys, verify.Verified}, "the old one": {keys[:1], verify.Verified}, "the new one": {keys[1:], verify.OtherKey}} {
		expect(t, name, verify.Directory(data, verify.Options{Policy: policyOf(t, test.keys...)}), test.want, "")
	}
	out := exportReal(t, data, export.Options{})
	expect(t, "no key, of an export", verify.Export(bytes.NewReader(out), verify.Options{}), verify.Verified, "")
	for name, test := range map[string]struct {
		keys []string
		want verify.Code
	}{"both": {keys, verify.Verified}, "the old one": {keys[:1], verify.OtherKey}, "the new one": {keys[1:], verify.OtherKey}} {
		expect(t, name+", of an export", verify.Export(bytes.NewReader(out), verify.Options{Policy: policyOf(t, test.keys...)}), test.want, "")
	}
}

// An export has the checkpoint that the witnesses cosigned, of fewer records or of more, with the proof that it is of one log.
func TestQuorumOfAnExport(t *testing.T) {
	t.Parallel()
	c := newCosigned(t)
	policy := verify.Options{Policy: policyOf(t, c.keys...)}
	for name, o := range map[string]export.Options{
		"all": {}, "with proofs": {Proofs: true}, "filtered": {Filter: record.Filter{Tenant: "a"}},
	} {
		expect(t, name, verify.Export(bytes.NewReader(exportReal(t, c.data, o)), policy), verify.Verified, "the quorum of the policy cosigned the first 61 records")
	}
	whole := string(exportReal(t, c.data, export.Options{}))
	at := strings.LastIndex(whole, `"witnessed"`)
	for name, change := range map[string]func(string) string{
		"a cosignature": func(s string) string { return flipIn(t, s, `w2.example `, 30) },
		"a signature":   func(s string) string { return flipIn(t, s, `— log.example/real `, 30) },
		"its size":      func(s string) string { return strings.Replace(s, `\n61\n`, `\n60\n`, 1) },
		"its root":      func(s string) string { return flipIn(t, s, `\n61\n`, 12) },
		"a hash":        func(s string) string { return flipIn(t, s, `"hashes":["`, 5) },
		"no hash":       func(s string) string { return s[:strings.Index(s, `,"hashes"`)] + "}\n" },
		"none":          func(s string) string { return strings.Replace(s, "witnessed", "unwitnessed", 1) },
		"another":       func(s string) string { return strings.Replace(s, "witnessed\":\"", "witnessed\":\"x", 1) },
	} {
		changed := whole[:at] + change(whole[at:])
		want, without := verify.Altered, verify.Altered
		switch name {
		case "a hash", "no hash":
			want, without = verify.Forked, verify.Forked
		case "none":
			want, without = verify.Unwitnessed, verify.Verified
		case "a cosignature": // nothing says whose it is
			without = verify.Verified
		}
		expect(t, name, verify.Export(strings.NewReader(changed), policy), want, "")
		expect(t, name+", and no policy", verify.Export(strings.NewReader(changed), verify.Options{}), without, "")
	}
	for name, fork := range map[string][]byte{"shorter": c.shorter, "longer": c.longer} { // signed by the log and by witnesses, of another tree
		text := strings.ReplaceAll(string(cosign(t, c.keys, fork, w1, w2)), "\n", `\n`)
		changed := whole[:at] + `"witnessed":"` + text + `"}` + "\n"
		expect(t, name, verify.Export(strings.NewReader(changed), policy), verify.Forked, "the checkpoint that witnesses cosigned")
	}
}

func flipIn(t *testing.T, text, behind string, by int) string {
	t.Helper()
	at := strings.Index(text, behind)
	if at < 0 {
		t.Fatalf("%q is not in %s", behind, text)
	}
	return string(flipped([]byte(text), at+len(behind)+by))
}

// While an export is written, witnesses may cosign records after its end. That covers the export, too.
func TestQuorumBeyondAnExport(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := openReal(t, data)
	defer func() { check(t, l.Close()) }()
	appendReal(t, l, 0, 60)
	_, err := l.Checkpoint(t.Context())
	check(t, err)
	then, err := l.Snapshot()
	check(t, err)
	appendReal(t, l, 60, 70)
	signed, err := l.Checkpoint(t.Context())
	check(t, err)
	keys := keysOf(t, data)
	check(t, l.KeepWitnessed(cosign(t, keys, signed, w2, w3)))
	var out bytes.Buffer
	_, err = export.Log{Snapshot: then}.Export(t.Context(), &out, export.Options{})
	check(t, err)
	r := verify.Export(&out, verify.Options{Policy: policyOf(t, keys...), Served: string(signed)})
	expect(t, "served more", r, verify.Truncated, "the checkpoint that the server serves covers 71 records")
	_, err = export.Log{Snapshot: then}.Export(t.Context(), &out, export.Options{})
	check(t, err)
	r = verify.Export(&out, verify.Options{Policy: policyOf(t, keys...), Served: string(then.Head.Checkpoint)})
	expect(t, "more was cosigned", r, verify.Verified, "the quorum of the policy cosigned the first 61 records")
	if says(r.NotExcluded, "others were shown") || r.Witnessed.Size != 71 {
		t.Errorf("got %+v, and not excluded %q", r.Witnessed, r.NotExcluded)
	}
}

// sameSignatures reports whether two texts differ only in bits that the base64 of a signature does not use.
func sameSignatures(a, b []byte) bool {
	one, other := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range one {
		if len(one) != len(other) || one[i] == other[i] {
			continue
		}
		space := strings.LastIndexByte(one[i], ' ') + 1
		x, err := base64.StdEncoding.DecodeString(one[i][space:])
		if err != nil || !strings.HasPrefix(one[i], "— ") || !strings.HasPrefix(other[i], one[i][:space]) {
			return false
		}
		if y, err := base64.StdEncoding.DecodeString(other[i][space:]); err != nil || !bytes.Equal(x, y) {
			return false
		}
	}
	return len(one) == len(other)
}

// A proof is of one line, and of a checkpoint that those of the policy signed: each bit of either counts.
func TestProofOfALine(t *testing.T) {
	t.Parallel()
	c, other := newCosigned(t), newCosigned(t)
	policy := verify.Options{Policy: policyOf(t, c.keys...)}
	var line, proof, late, uncosigned []byte
	check(t, segment.Read(c.data, func(s *segment.Snapshot) error {
		l := export.Log{Snapshot: s}
		r, err := l.Find(id(7))
		check(t, err)
		line = bytes.Clone(r.Line)
		p, err := l.Proof(r, id(7))
		check(t, err)
		proof = p.Text()
		r, err = l.Find(id(70))
		check(t, err)
		late = bytes.Clone(r.Line)
		p, err = l.Proof(r, id(70))
		check(t, err)
		uncosigned = p.Text()
		return nil
	}))
	r := verify.Proof(line, proof, policy)
	expect(t, "whole", r, verify.Verified, "the quorum of the policy cosigned the first 61 records: W1 at")
	if r.Records != 1 || r.Size != 61 || r.Checkpoint != string(c.cosigned) {
		t.Errorf("got %+v", r)
	}
	expect(t, "by key", verify.Proof(line, proof, verify.Options{Key: c.keys[0]}), verify.Verified, "each of the 1 records here is in the log")
	expect(t, "by no key", verify.Proof(line, proof, verify.Options{}), verify.Usage, "give a policy")
	expect(t, "by another key", verify.Proof(line, proof, verify.Options{Key: other.keys[0]}), verify.OtherKey, "")
	expect(t, "by another policy", verify.Proof(line, proof, verify.Options{Policy: policyOf(t, other.keys...)}), verify.OtherKey, "")
	expect(t, "beyond the quorum", verify.Proof(late, uncosigned, policy), verify.Unwitnessed, "")
	expect(t, "of another line", verify.Proof(line, uncosigned, verify.Options{Key: c.keys[0]}), verify.Altered, "")
	expect(t, "with a newline", verify.Proof(append(bytes.Clone(line), '\n'), proof, policy), verify.Altered, "")
	expect(t, "beside a fork", verify.Proof(line, proof, verify.Options{Policy: policy.Policy, Checkpoint: string(c.cosigned)}), verify.Verified, "")
	for i := range line {
		for bit := range 8 {
			bad := bytes.Clone(line)
			bad[i] ^= 1 << bit
			if r := verify.Proof(bad, proof, policy); r.Code != verify.Altered {
				t.Fatalf("bit %d of byte %d of the line: %v", bit, i, r.Code)
			}
		}
	}
	extra := bytes.Index(proof, []byte("index "))
	for i := range proof {
		if i >= len("c2sp.org/tlog-proof@v1\nextra ") && i < extra-1 {
			continue // nothing proves the extra
		}
		for bit := range 8 {
			bad := bytes.Clone(proof)
			bad[i] ^= 1 << bit
			if r := verify.Proof(line, bad, policy); r.Verified() && !sameSignatures(proof, bad) {
				t.Fatalf("bit %d of byte %d of the proof is not seen:\n%s", bit, i, bad)
			}
		}
	}
	for _, cut := range [][]byte{nil, proof[:len(proof)/2], bytes.Repeat(proof, 1000), []byte(strings.Repeat("c2sp.org/tlog-proof@v1\n", 99))} {
		if r := verify.Proof(line, cut, policy); r.Code != verify.Unreadable && r.Code != verify.Altered {
			t.Errorf("got %v of %.100q", r.Code, cut)
		}
	}
}

// A program of others says the same of a proof that witnesses cosigned.
func TestOthersJudgeAProof(t *testing.T) {
	t.Parallel()
	c, dir := newCosigned(t), t.TempDir()
	file := func(name string, content []byte) string {
		check(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		return filepath.Join(dir, name)
	}
	policy := "log " + c.keys[0] + "\n"
	for i, w := range []*witness{w1, w2, w3} {
		policy += fmt.Sprintf("witness W%d %s\n", i+1, w.vkey())
	}
	two, three := file("two", []byte(policy+"group all 2 W1 W2 W3\nquorum all\n")), file("three", []byte(policy+"group all all W1 W2 W3\nquorum all\n"))
	var line, proof []byte
	check(t, segment.Read(c.data, func(s *segment.Snapshot) error {
		r, err := s.Find(id(7))
		check(t, err)
		line = bytes.Clone(r.Line)
		p, err := export.Log{Snapshot: s}.Proof(r, id(7))
		proof = p.Text()
		return err
	}))
	name := file("line", line)
	judge := func(policy string, proof []byte) error {
		_, err := judged.Judge(t, "proof", policy, file("proof", proof), name)
		return err
	}
	if err := judge(two, proof); err != nil {
		t.Fatal(err)
	}
	if judge(three, proof) == nil {
		t.Error("two witnesses are three")
	}
	at := 0
	for one := range bytes.Lines(proof) {
		if bad := flipped(proof, at+len(one)/2); !bytes.HasPrefix(one, []byte("extra")) && judge(two, bad) == nil {
			t.Errorf("a flipped bit of %q is not seen", one)
		}
		at += len(one)
	}
}

// The files beside the segments may be anybody's, and the key signed no other history: with any content of theirs, the log verifies.
func TestEvidenceIsAnybodys(t *testing.T) {
	t.Parallel()
	w := newWriter(t, t.TempDir())
	w.records(3)
	w.close()
	suspects := []byte(`[{"witness":"W","size":9,"ours":7,"status":409,"since":"2026-01-02T03:04:05Z"}]`)
	r := rand.New(rand.NewPCG(1, 2))
	for n := range tries() {
		for name, content := range map[string][]byte{format.WitnessedFile: w.signed, format.ConflictFile: w.signed, format.SuspectsFile: suspects} {
			content = bytes.Clone(content)
			for range 1 + n%4 {
				content[r.IntN(len(content))] = byte(r.IntN(256))
			}
			content = content[:len(content)-r.IntN(len(content))*(n%2)]
			check(t, os.WriteFile(filepath.Join(w.data, name), content, 0o600))
		}
		if r := verify.Directory(w.data, verify.Options{Key: w.keys[0]}); !r.Verified() {
			t.Fatalf("%v: %v", r.Code, r.Problem)
		}
	}
}

// Anybody can put a file beside the segments, and a key that was rotated out may be a thief's: it signs no tail that was
// written since.
func TestOldKeysSignNoTail(t *testing.T) {
	t.Parallel()
	data, crashed := t.TempDir(), t.TempDir()
	l := openReal(t, data)
	appendReal(t, l, 0, 10)
	private, err := os.ReadFile(filepath.Join(data, format.KeyFile))
	check(t, err)
	thief, err := note.NewSigner(strings.TrimSpace(string(private)))
	check(t, err)
	_, err = l.RotateKey(t.Context(), "")
	check(t, err)
	appendReal(t, l, 10, 20)
	check(t, l.Flush(t.Context()))
	check(t, os.CopyFS(crashed, os.DirFS(data)))
	signed, err := l.Checkpoint(t.Context())
	check(t, err)
	check(t, l.Close())
	text, _, _ := strings.Cut(string(signed), "\n\n")
	stolen, err := note.Sign(&note.Note{Text: text + "\n"}, thief)
	check(t, err)
	keys := keysOf(t, data)
	for _, name := range []string{format.WitnessedFile, format.ConflictFile} {
		for what, test := range map[string]struct {
			content []byte
			want    verify.Code
		}{"none": {nil, verify.Unsigned}, "the old key": {stolen, verify.Unsigned}, "the key in force": {signed, verify.Verified}} {
			cosignedLog{data: crashed}.put(t, name, test.content)
			for _, key := range []string{"", keys[0], keys[1], strings.Join(keys, "\n")} {
				expect(t, name+" of "+what, verify.Directory(crashed, verify.Options{Key: key, Strict: true}), test.want, "")
			}
		}
		cosignedLog{data: crashed}.put(t, name, nil)
	}
}

// A log without records has one root, so a quorum that cosigned no more says nothing about any history.
func TestQuorumOfNoRecord(t *testing.T) {
	t.Parallel()
	c := newCosigned(t)
	private, err := os.ReadFile(filepath.Join(c.data, format.KeyFile))
	check(t, err)
	signer, err := note.NewSigner(strings.TrimSpace(string(private)))
	check(t, err)
	root := sha256.Sum256(nil)
	text := fmt.Sprintf("log.example/real\n0\n%s\n", base64.StdEncoding.EncodeToString(root[:]))
	empty, err := note.Sign(&note.Note{Text: text}, signer, w1, w2)
	check(t, err)
	c.put(t, format.WitnessedFile, empty)
	policy := verify.Options{Policy: policyOf(t, c.keys...)}
	expect(t, "a directory", verify.Directory(c.data, policy), verify.Unwitnessed, "no record")
	expect(t, "an export", verify.Export(bytes.NewReader(exportReal(t, c.data, export.Options{})), policy), verify.Unwitnessed, "no record")
}
