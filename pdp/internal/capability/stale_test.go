package capability_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/ledger/bolt"
)

// edit changes the values of a file without the store.
func edit(t *testing.T, data string, f func(values *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(data, capability.FileName), 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket([]byte(bolt.BucketValues))) }))
	must(t, db.Close())
}

// TestOlderValue: one value alone that was copied back, or moved, does not count, though it was written with the key.
func TestOlderValue(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	revoked, renewed, other := r.mustGrant(t, s, asked(s, r.Now, "a")).ID, r.mustGrant(t, s, asked(s, r.Now, "b")).ID, r.mustGrant(t, s, asked(s, r.Now, "c")).ID
	must(t, s.Close())
	was := map[string][]byte{}
	edit(t, data, func(values *bbolt.Bucket) error {
		for _, key := range []string{"x/" + revoked, "xw/" + renewed, "xw/" + other} {
			was[key] = bytes.Clone(values.Get([]byte(key)))
		}
		return nil
	})
	s = mustOpen(t, data, r.options())
	_, err := s.Revoke(t.Context(), revoked, "mia", "")
	must(t, err)
	narrower := asked(s, r.Now, "b", func(n *capability.New) { n.Token.ID, n.Token.Layers[0].Tools = renewed, []string{"agent-b:look"} })
	renewal, err := s.Renew(t.Context(), renewed, narrower, "renewal")
	must(t, err)
	must(t, r.Decide("renewal"))
	must(t, renewal.Spent(t.Context()))
	must(t, s.Close())
	edit(t, data, func(values *bbolt.Bucket) error {
		return errors.Join(values.Put([]byte("x/"+revoked), was["x/"+revoked]), values.Put([]byte("xw/"+renewed), was["xw/"+renewed]),
			values.Put([]byte("xw/"+other), was["xw/"+renewed]))
	})
	s = mustOpen(t, data, r.options())
	for _, id := range []string{revoked, renewed, other} {
		if c, err := s.Usable(t.Context(), id); !errors.Is(err, capability.ErrDamaged) {
			t.Errorf("%s is %+v, %v", id, c, err)
		}
		if err := r.use(t.Context(), s, id, "d"); !errors.Is(err, capability.ErrDamaged) {
			t.Errorf("%s is used: %v", id, err)
		}
	}
}
