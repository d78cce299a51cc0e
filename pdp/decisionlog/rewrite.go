package decisionlog

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// rewriteBatch is how many bytes one transaction of a rewrite holds at most.
const rewriteBatch = 4 << 20

// rewrite copies a sealed segment into a new file, each value as keep returns it;
// what keep returns nil for is not copied. bbolt keeps the bytes of what is
// deleted in pages it calls free, so nothing is ever gone from a file: only a file
// that it was never written to is without it.
func rewrite(from *bbolt.DB, name string, keep func(bucket, key, value []byte) []byte) (err error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Synced once, at the end: until the file has its name nobody reads it.
	to, err := bbolt.Open(name, 0o600, &bbolt.Options{NoSync: true, PageSize: from.Info().PageSize})
	if err != nil {
		return err
	}
	to.AllocSize = 1 << 20
	defer func() { err = errors.Join(err, to.Close()) }()
	err = from.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(bucket []byte, b *bbolt.Bucket) error {
			return copyBucket(to, bucket, b, keep)
		})
	})
	return errors.Join(err, to.Sync())
}

// copyBucket copies one bucket, in transactions of bounded size.
func copyBucket(to *bbolt.DB, bucket []byte, from *bbolt.Bucket, keep func(bucket, key, value []byte) []byte) error {
	tx, err := to.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	into, err := tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return err
	}
	size, c := 0, from.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if v == nil {
			return fmt.Errorf("bucket %q holds a bucket, %q, which no segment has", bucket, k)
		}
		if v = keep(bucket, k, v); v == nil {
			continue
		}
		into.FillPercent = 1
		if err := into.Put(k, v); err != nil {
			return err
		}
		if size += len(k) + len(v); size < rewriteBatch {
			continue
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		if tx, err = to.Begin(true); err != nil {
			return err
		}
		into, size = tx.Bucket(bucket), 0
	}
	return tx.Commit()
}
