package c2sp_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/c2sp"
)

// witness signs as tlog-cosignature says.
type witness struct {
	name string
	key  ed25519.PrivateKey
	at   int64
}

func newWitness(name string) *witness {
	seed := sha256.Sum256([]byte(name))
	return &witness{name, ed25519.NewKeyFromSeed(seed[:]), 1679315147}
}

func (w *witness) material() []byte { return append([]byte{4}, w.key.Public().(ed25519.PublicKey)...) }
func (w *witness) Name() string     { return w.name }

func (w *witness) KeyHash() uint32 {
	sum := sha256.Sum256(append([]byte(w.name+"\n"), w.material()...))
	return binary.BigEndian.Uint32(sum[:])
}

func (w *witness) Sign(text []byte) ([]byte, error) {
	signed := fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", w.at, text)
	return append(binary.BigEndian.AppendUint64(nil, uint64(w.at)), ed25519.Sign(w.key, signed)...), nil
}

func (w *witness) vkey() string {
	return fmt.Sprintf("%s+%08x+%s", w.name, w.KeyHash(), base64.StdEncoding.EncodeToString(w.material()))
}

func newLog(t *testing.T, origin string) (note.Signer, string) {
	t.Helper()
	private, public, err := note.GenerateKey(nil, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, public
}

func sign(t *testing.T, origin string, signers ...note.Signer) []byte {
	t.Helper()
	signed, err := note.Sign(&note.Note{Text: origin + "\n1\n" + tlog.RecordHash([]byte("x")).String() + "\n"}, signers...)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestPolicyCounts(t *testing.T) {
	log, logKey := newLog(t, "log.example/v1/log")
	other, _ := newLog(t, "other.example/log")
	x1, x2, x3, y := newWitness("x.example/1"), newWitness("x.example/2"), newWitness("x.example/3"), newWitness("y.example")
	text := fmt.Sprintf("# who counts\nlog %s\n\nwitness X1 %s https://x.example/\n witness\tX2 %s\nwitness X3 %s\n"+
		"group X 2 X1 X2 X3\nwitness Y %s\ngroup all all X Y\nquorum all", logKey, x1.vkey(), x2.vkey(), x3.vkey(), y.vkey())
	p, err := c2sp.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if p.Witnesses[0].URL != "https://x.example/" || p.Witnesses[1].Label != "X2" {
		t.Errorf("the witnesses are %+v", p.Witnesses)
	}
	const origin = "log.example/v1/log"
	for name, c := range map[string]struct {
		signed []byte
		want   error
	}{
		"enough":             {sign(t, origin, log, x1, x3, y), nil},
		"more than enough":   {sign(t, origin, log, x1, x2, x3, y, other), nil},
		"one of a group":     {sign(t, origin, log, x1, y), c2sp.ErrQuorum},
		"none of a group":    {sign(t, origin, log, x1, x2, x3), c2sp.ErrQuorum},
		"no witness":         {sign(t, origin, log), c2sp.ErrQuorum},
		"no log":             {sign(t, origin, x1, x2, x3, y), c2sp.ErrOtherLog},
		"another log":        {sign(t, "other.example/log", other, x1, x2, y), c2sp.ErrOtherLog},
		"the key, not of it": {sign(t, "other.example/log", log, x1, x2, y), c2sp.ErrOtherLog},
	} {
		o, err := p.Check(c.signed)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (!o.Cosigned["X1"].Equal(time.Unix(1679315147, 0)) || o.Log.Text != logKey) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	// One flipped bit anywhere in a line that counts, but in those that Base64 does not use.
	good := sign(t, origin, log, x1, x2, y)
	for i := range good {
		if i+1 < len(good) && good[i+1] == '=' {
			continue
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := p.Check(bad); err == nil {
			t.Errorf("byte %d may be flipped: %q", i, bad)
		}
	}
}

func TestPolicyOfNoWitness(t *testing.T) {
	older, olderKey := newLog(t, "log.example")
	log, key := newLog(t, "log.example")
	p, err := c2sp.ParsePolicy(c2sp.PolicyText([]string{olderKey, key}))
	if err != nil {
		t.Fatal(err)
	}
	for _, signers := range [][]note.Signer{{older}, {log}, {older, log}} {
		if _, err := p.Check(sign(t, "log.example", signers...)); err != nil {
			t.Error(err)
		}
	}
}

func TestPolicyRefuses(t *testing.T) {
	_, log := newLog(t, "log.example")
	w, v := newWitness("w.example"), newWitness("v.example")
	same := newWitness("w.example")
	same.name = "renamed.example"
	mldsa := append([]byte{6}, make([]byte, 1312)...)
	sum := sha256.Sum256(append([]byte("q.example\n"), mldsa...))
	quantum := fmt.Sprintf("q.example+%x+%s", sum[:4], base64.StdEncoding.EncodeToString(mldsa))
	two := "witness W " + w.vkey() + "\nwitness V " + v.vkey() + "\n"
	for text, want := range map[string]string{
		"":                           "it has no line quorum",
		"quorum none\nquorum none\n": "line 2: there is a line quorum above already",
		"quorum W\n":                 `line 1: no witness or group above has the name "W"`,
		"quorum none\r\n":            `line 1: it has the character '\r'`,
		"quorum none more\n":         "line 1: it is none of",
		"log " + log + "\nlog " + log + "\nquorum none\n":                          "line 2: its key stands above already",
		"log " + w.vkey() + "\nquorum none\n":                                      "line 1: the key of the log is none",
		"witness W " + log + "\nquorum none\n":                                     `line 1: the key of the witness "W": it is no key of a witness`,
		"witness W " + w.vkey() + "\nwitness R " + same.vkey() + "\nquorum none\n": "line 2: its key stands above already",
		"witness W " + w.vkey() + "\nwitness W " + v.vkey() + "\nquorum none\n":    `line 2: the name "W" is taken`,
		"witness none " + w.vkey() + "\nquorum none\n":                             `line 1: the name "none" is taken`,
		"witness Q " + quantum + "\nquorum none\n":                                 `line 1: the key of the witness "Q": it is a key of ML-DSA-44`,
		"witness W " + w.vkey()[:len(w.vkey())-4] + "AAA=\nquorum none\n":          `line 1: the key of the witness "W": its hash is not`,
		two + "group G any W X\nquorum G\n":                                        `line 3: no witness or group above has the name "X"`,
		two + "group G any W W\nquorum G\n":                                        `line 3: "W" is a member of a group already`,
		two + "group G any W\ngroup H all W V\nquorum H\n":                         `line 4: "W" is a member of a group already`,
		two + "group G 3 W V\nquorum G\n":                                          `line 3: "3" is neither all nor any, nor a number from 1 to 2`,
		two + "group G 0 W V\nquorum G\n":                                          `line 3: "0" is neither`,
		two + "group G 01 W V\nquorum G\n":                                         `line 3: "01" is neither`,
		two + "group G any G\nquorum G\n":                                          `line 3: no witness or group above has the name "G"`,
		two + "group W any V\nquorum W\n":                                          `line 3: the name "W" is taken`,
	} {
		if _, err := c2sp.ParsePolicy([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, and not %s", text, err, want)
		}
	}
}

func TestProofIsReadInOneForm(t *testing.T) {
	p := c2sp.Proof{Index: 73894, Hashes: tlog.RecordProof{tlog.RecordHash(nil), tlog.RecordHash([]byte("a"))}, Checkpoint: []byte("log\n1\nx\n\n— log y\n")}
	for _, extra := range [][]byte{nil, {}, []byte("an id")} {
		p.Extra = extra
		text := p.Text()
		got, err := c2sp.ParseProof(text)
		if err != nil || string(got.Text()) != string(text) || got.Index != p.Index || len(got.Hashes) != 2 {
			t.Errorf("%q: %v, %+v", text, err, got)
		}
	}
	good := string(p.Text())
	for _, change := range [][2]string{
		{"@v1", "@v2"}, {"index 73894", "index 073894"}, {"index 73894", "index -1"}, {"index 73894\n", ""},
		{"extra ", "extra *"}, {"\nindex", "\nindex 1\nindex"}, {"\n\n", "\n"},
		{"index 73894\n", "index 73894\n" + strings.Repeat(tlog.RecordHash(nil).String()+"\n", 62)},
		{"index 73894\n", "index 73894\nAAAA\n"},
		{"— log", strings.Repeat("x", c2sp.MaxProofBytes)},
	} {
		if got, err := c2sp.ParseProof([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("%q for %q: %+v", change[1], change[0], got)
		}
	}
}

func TestTiles(t *testing.T) {
	for path, want := range map[string]tlog.Tile{
		"0/000":                 {H: 8, W: 256},
		"0/001.p/5":             {H: 8, N: 1, W: 5},
		"1/x001/x234/067":       {H: 8, L: 1, N: 1234067, W: 256},
		"63/000.p/255":          {H: 8, L: 63, W: 255},
		"2/x999/999.p/1":        {H: 8, L: 2, N: 999999, W: 1},
		"0/x001/x000/000.p/112": {H: 8, N: 1000000, W: 112},
	} {
		if got, ok := c2sp.ParseTile(path); !ok || got != want || got.Path() != "tile/8/"+path {
			t.Errorf("%s is %+v, %v", path, got, ok)
		}
	}
	for _, path := range []string{"", "0", "0/", "64/000", "-1/000", "00/000", "+1/000", "data/000", "entries/000", "0/0", "0/0000", "0/x000/000", "0/x001/000/",
		"x1/000", "0/x1/000", "0/001.p/256", "0/001.p/0", "0/001.p/05", "0/001.p/", "0/001.p/-1", "0/001/000", "0/000.p/1/2", "0/%30", "0//000", "0/..", "0/x999/x999/x999/x999/x999/x999/999"} {
		if got, ok := c2sp.ParseTile(path); ok {
			t.Errorf("%s is %+v", path, got)
		}
	}
}

// Two witnesses of one name may have been made to have one hash: the line of one is not that of two.
func TestOneLineIsNotOfTwoWitnesses(t *testing.T) {
	v, err := c2sp.NewCosigner(newWitness("w.example").vkey())
	if err != nil {
		t.Fatal(err)
	}
	log, key := newLog(t, "log.example")
	p, err := c2sp.ParsePolicy([]byte("log " + key + "\nwitness A " + newWitness("w.example").vkey() + "\nwitness B " + newWitness("v.example").vkey() +
		"\ngroup G all A B\nquorum G\n"))
	if err != nil {
		t.Fatal(err)
	}
	p.Witnesses[1].Verifier = v // to find such a key takes 2^32 tries
	if _, err := p.Check(sign(t, "log.example", log, newWitness("w.example"))); !errors.Is(err, c2sp.ErrQuorum) {
		t.Errorf("got %v", err)
	}
}
