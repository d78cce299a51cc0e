package bolt_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

// TestCopy: a copy that is made while others write has what was written before, each transaction as a whole, and leaves no
// file. A copy that a crash left is gone at the next opening, and no copy has the bytes of what was taken away.
func TestCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := bolt.Options{Path: filepath.Join(dir, "a.db"), Errors: known}
	must(t, os.WriteFile(file.Path+bolt.CopySuffix, []byte("half"), 0o600))
	e := bolt.New(file)
	must(t, e.Open())
	if _, err := os.Stat(file.Path + bolt.CopySuffix); !os.IsNotExist(err) {
		t.Errorf("what a crash left: %v", err)
	}
	put := func(n uint64) {
		value := binary.BigEndian.AppendUint64(nil, n)
		_, err := e.Write(ledger.Transaction{Puts: map[string][]byte{"one": value, "other": value}, Erase: n%20 == 0})
		must(t, err)
	}
	_, err := e.Write(ledger.Transaction{Puts: map[string][]byte{"secret": []byte("SECRET")}})
	must(t, err)
	_, err = e.Write(ledger.Transaction{Puts: map[string][]byte{"secret": nil}})
	must(t, err)
	put(1)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := uint64(2); ; n++ {
			select {
			case <-stop:
				return
			default:
				put(n)
				if n%20 == 0 {
					must(t, e.Erase())
				}
			}
		}
	})
	before := uint64(1)
	for range 10 {
		f, err := e.Copy()
		must(t, err)
		content, err := io.ReadAll(f)
		must(t, err)
		must(t, f.Close())
		if bytes.Contains(content, []byte("SECRET")) {
			t.Error("what was taken away is in the copy")
		}
		other := bolt.Options{Path: filepath.Join(t.TempDir(), "b.db"), Errors: known}
		must(t, os.WriteFile(other.Path, content, 0o600))
		copied := bolt.New(other)
		must(t, copied.Open())
		must(t, copied.View(func(s ledger.State) error {
			a, _, err := s.Get("one")
			b, _, _ := s.Get("other")
			if n := binary.BigEndian.Uint64(a); n < before || !bytes.Equal(a, b) {
				t.Errorf("got %x and %x after %d", a, b, before)
			} else {
				before = n
			}
			return err
		}))
		must(t, copied.Close())
	}
	close(stop)
	writing.Wait()
	must(t, e.Close())
	if _, err := e.Copy(); err == nil {
		t.Error("what is closed is copied")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
