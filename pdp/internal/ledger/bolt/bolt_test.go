package bolt_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

var known = ledger.Errors{
	Unavailable: errors.New("unavailable"), Closed: errors.New("closed"), Locked: errors.New("locked"),
	Damaged: errors.New("damaged"), NotFound: errors.New("not found"),
}

// TestWrittenTogether: many count one number at once, beside numbers of their own, and the file is written anew meanwhile, and
// closed. Each count that was answered is there, in the order of the revisions, and no other is.
func TestWrittenTogether(t *testing.T) {
	t.Parallel()
	const writers, most = 16, 400
	file := bolt.Options{Path: filepath.Join(t.TempDir(), "a.db"), Errors: known}
	e := bolt.New(file)
	if err := e.Open(); err != nil {
		t.Fatal(err)
	}
	number := func(b []byte) (n uint64) {
		if len(b) == 8 {
			n = binary.BigEndian.Uint64(b)
		}
		return n
	}
	// count counts the shared number, and reports the number that it made of it.
	count := func(own string, to uint64) (made, revision uint64, err error) {
		key := uint64(0)
		err = e.View(func(s ledger.State) error {
			value, is, err := s.Get("shared")
			made, key = number(value)+1, is.Revision
			return err
		})
		if err == nil {
			revision, err = e.Write(ledger.Transaction{
				If:    map[string]uint64{"shared": key},
				Puts:  map[string][]byte{"shared": binary.BigEndian.AppendUint64(nil, made), own: binary.BigEndian.AppendUint64(nil, to)},
				Erase: made%100 == 0,
			})
		}
		return made, revision, err
	}
	var mu sync.Mutex
	by, conflicts, last := map[uint64]uint64{}, 0, map[string]uint64{} // the revision of each number; the last of each writer
	var all sync.WaitGroup
	for n := range writers {
		own := fmt.Sprint("own ", n)
		all.Go(func() {
			for to := uint64(1); ; {
				made, revision, err := count(own, to)
				mu.Lock()
				switch {
				case err == nil && by[made] > 0:
					t.Errorf("%d was counted twice", made)
				case err == nil:
					by[made], last[own] = revision, to
					to++
				case errors.Is(err, ledger.ErrConflict) && revision == 0:
					conflicts++
				case !errors.Is(err, known.Closed):
					t.Errorf("%d, %v", revision, err)
				}
				done := err != nil && !errors.Is(err, ledger.ErrConflict)
				ends := made == most && err == nil
				mu.Unlock()
				if ends {
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				}
				if done || ends {
					return
				}
				if made%100 == 0 {
					if err := e.Erase(); err != nil && !errors.Is(err, known.Closed) {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	again := bolt.New(file)
	if err := again.Open(); err != nil {
		t.Fatal(err)
	}
	err := again.View(func(s ledger.State) error {
		value, revision, err := s.Get("shared")
		if n := number(value); n != uint64(len(by)) || by[n] != revision.Revision || revision.Revision != s.Revision() || conflicts == 0 {
			t.Errorf("counted to %d at %d of %d, and %d were answered, with %d conflicts", n, revision, s.Revision(), len(by), conflicts)
		}
		for own, to := range last {
			value, _, wrong := s.Get(own)
			if err = errors.Join(err, wrong); number(value) != to {
				t.Errorf("%s is %d, and %d was answered", own, number(value), to)
			}
		}
		return err
	})
	if err := errors.Join(err, again.Close()); err != nil {
		t.Fatal(err)
	}
	for n := uint64(2); n <= uint64(len(by)); n++ {
		if by[n] <= by[n-1] {
			t.Errorf("%d has the revision %d, and the one before %d", n, by[n], by[n-1])
		}
	}
}
