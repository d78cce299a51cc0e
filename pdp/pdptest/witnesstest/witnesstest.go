// Package witnesstest makes no promise: it is for the tests of this module alone. It has a witness: an HTTP server that
// keeps to C2SP tlog-witness, or lies as a test wants. Start with [New]. It shares no code with the client.
package witnesstest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Witness is a witness. It is safe for concurrent use.
type Witness struct {
	Name, Key, URL string

	private ed25519.PrivateKey
	hash    []byte
	mu      sync.Mutex
	logs    map[string]*log
	lie     http.HandlerFunc
	asked   int
	now     func() time.Time
}

// log is a log as the witness knows it.
type log struct {
	keys []note.Verifier
	size int64
	root tlog.Hash
	last string // checkpoint
}

// New starts a witness, until the test ends.
func New(t testing.TB, name string) *Witness {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := append([]byte{4}, public...)
	sum := sha256.Sum256(append([]byte(name+"\n"), key...))
	w := &Witness{
		Name: name, Key: name + "+" + hex.EncodeToString(sum[:4]) + "+" + base64.StdEncoding.EncodeToString(key),
		private: private, hash: sum[:4], logs: map[string]*log{}, now: time.Now,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", w.addCheckpoint)
	mux.HandleFunc("GET /{origin}/checkpoint", w.checkpoint)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}

// Policy is a policy of witnesses, of which so many are the quorum.
func Policy(quorum int, all ...*Witness) string {
	text, names := "", ""
	for _, w := range all {
		text += fmt.Sprintf("witness %s %s %s\n", w.Name, w.Key, w.URL)
		names += " " + w.Name
	}
	return text + fmt.Sprintf("group enough %d%s\nquorum enough\n", quorum, names)
}

// Add has the witness know a key of a log.
func (w *Witness) Add(t testing.TB, key string) {
	t.Helper()
	v, err := note.NewVerifier(key)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.logs[v.Name()] == nil {
		w.logs[v.Name()] = &log{}
	}
	w.logs[v.Name()].keys = append(w.logs[v.Name()].keys, v)
}

// Lie has the witness answer add-checkpoint so, or honestly again if it is nil.
func (w *Witness) Lie(lie http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lie = lie
}

// At has the witness read another clock.
func (w *Witness) At(now func() time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
}

// Asked is how many checkpoints were submitted.
func (w *Witness) Asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// Size is how many records of a log the witness cosigned.
func (w *Witness) Size(origin string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.logs[origin] == nil {
		return 0
	}
	return w.logs[origin].size
}

// Show has the monitoring address show a checkpoint of a log.
func (w *Witness) Show(origin, checkpoint string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logs[origin].last = checkpoint
}

func (w *Witness) addCheckpoint(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.asked++
	lie := w.lie
	w.mu.Unlock()
	if lie != nil {
		lie(rw, r)
		return
	}
	w.Honest(rw, r)
}

// Honest answers add-checkpoint as the protocol says.
func (w *Witness) Honest(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 10<<10))
	head, signed, ok := strings.Cut(string(body), "\n\n")
	if err != nil || !ok {
		http.Error(rw, "no checkpoint", http.StatusBadRequest)
		return
	}
	lines := strings.Split(head, "\n")
	old, err := strconv.ParseInt(strings.TrimPrefix(lines[0], "old "), 10, 64)
	if err != nil || !strings.HasPrefix(lines[0], "old ") || len(lines) > 64 {
		http.Error(rw, "no old size", http.StatusBadRequest)
		return
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			http.Error(rw, "no hash", http.StatusBadRequest)
			return
		}
		proof = append(proof, hash)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	origin, _, _ := strings.Cut(signed, "\n")
	of := w.logs[origin]
	if of == nil {
		http.Error(rw, "unknown log", http.StatusNotFound)
		return
	}
	n, err := note.Open([]byte(signed), note.VerifierList(of.keys...))
	if err != nil {
		http.Error(rw, "no signature of a known key", http.StatusForbidden)
		return
	}
	parts := strings.SplitN(n.Text, "\n", 4)
	size, err := strconv.ParseInt(parts[1], 10, 64)
	root, err2 := tlog.ParseHash(parts[2])
	switch {
	case err != nil || err2 != nil || old > size:
		http.Error(rw, "no checkpoint", http.StatusBadRequest)
		return
	case old != of.size || old == size && root != of.root:
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(rw, "%d\n", of.size)
		return
	case old > 0 && tlog.CheckTree(proof, size, root, old, of.root) != nil:
		http.Error(rw, "no proof", http.StatusUnprocessableEntity)
		return
	}
	line := w.cosign(n.Text)
	of.size, of.root, of.last = size, root, signed+line
	_, _ = io.WriteString(rw, line)
}

// Cosign is the line of the witness under any text.
func (w *Witness) Cosign(text string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cosign(text)
}

func (w *Witness) cosign(text string) string {
	at := uint64(w.now().Unix())
	signature := ed25519.Sign(w.private, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text))
	all := append(binary.BigEndian.AppendUint64(append([]byte{}, w.hash...), at), signature...)
	return "— " + w.Name + " " + base64.StdEncoding.EncodeToString(all) + "\n"
}

// checkpoint shows the last checkpoint of a log.
func (w *Witness) checkpoint(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for origin, of := range w.logs {
		if sum := sha256.Sum256([]byte(origin)); hex.EncodeToString(sum[:]) == r.PathValue("origin") && of.last != "" {
			_, _ = io.WriteString(rw, of.last)
			return
		}
	}
	http.NotFound(rw, r)
}
