package bolt_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"policy-service/pdp/ledger"
	"policy-service/pdp/ledger/bolt"
)

// TestWritesTogether: transactions that are written together are each answered as if they were alone.
func TestWritesTogether(t *testing.T) {
	t.Parallel()
	e := bolt.New(bolt.Options{Path: filepath.Join(t.TempDir(), "x.db"), Errors: ledger.Errors{
		Damaged: errors.New("damaged"), Unavailable: errors.New("unavailable"), Closed: errors.New("closed"), Locked: errors.New("locked"),
	}})
	if err := e.Open(); err != nil {
		t.Fatal(err)
	}
	const writers, each = 16, 10
	revisions := map[uint64]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for n := 0; n < each; {
				var is uint64
				if err := e.View(func(s ledger.State) (err error) { _, is, err = s.Get("shared"); return err }); err != nil {
					t.Error(err)
					return
				}
				own := fmt.Sprint("own/", writer, "/", n)
				revision, err := e.Write(ledger.Transaction{
					If: map[string]uint64{"shared": is, own: 0}, Puts: map[string][]byte{"shared": []byte(own), own: []byte("x")},
				})
				if errors.Is(err, ledger.ErrConflict) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if before, taken := revisions[revision]; taken || revision == 0 {
					t.Errorf("%s has the revision %d of %q", own, revision, before)
				}
				revisions[revision] = own
				mu.Unlock()
				n++
			}
		})
	}
	all.Wait()
	if len(revisions) != writers*each {
		t.Errorf("%d were written", len(revisions))
	}
	err := e.View(func(s ledger.State) error {
		for revision, own := range revisions {
			if _, is, err := s.Get(own); err != nil || is != revision {
				t.Errorf("%s is of revision %d, %v; it was answered with %d", own, is, err, revision)
			}
		}
		if value, is, err := s.Get("shared"); err != nil || revisions[is] != string(value) || s.Revision() != is {
			t.Errorf("what all wrote is %s of revision %d, %v", value, is, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Write(ledger.Transaction{Puts: map[string][]byte{"k": nil}}); err == nil || err.Error() != "closed" {
		t.Errorf("after Close: %v", err)
	}
}
