package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/plainfile"
)

// cutRemedy ends the errors of a log that was cut.
const cutRemedy = "; put back what is missing, or see policy-service log begin --help"

// CheckNeverBegun returns [ErrCut] if files show that a directory without segments once had a log.
func CheckNeverBegun(data string) error {
	for _, name := range []string{format.KeyFile, format.PublicKeyFile, format.CheckpointFile, format.WitnessedFile} {
		if _, err := os.Lstat(filepath.Join(data, name)); err == nil {
			return fmt.Errorf("%w: %s is there, and no segment"+cutRemedy, ErrCut, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// CheckNotCut returns [ErrCut] if the log ends before a checkpoint that is kept outside of the segments, or if that checkpoint
// is of another tree. A file that is not a checkpoint of this log counts as missing: whoever can write the file can also
// remove it.
func (r *Reader) CheckNotCut() error {
	all := r.SegmentFiles()
	if r.Partial() {
		return nil
	}
	if len(all) == 0 {
		return CheckNeverBegun(r.data)
	}
	for _, name := range []string{format.WitnessedFile, format.CheckpointFile} {
		signed, err := plainfile.Read(filepath.Join(r.data, name), format.MaxCheckpointBytes)
		if err != nil {
			continue
		}
		c, err := r.ParseOwnCheckpoint(signed)
		newest := all[len(all)-1]
		switch {
		case err != nil || c.Size < newest.First: // an older segment may have been redacted or moved away
			continue
		case c.Size > r.Size():
			return fmt.Errorf("%w: %s is of %d records, and the segments have %d"+cutRemedy, ErrCut, name, c.Size, r.Size())
		}
		var root tlog.Hash
		err = r.View(newest, func(tx *bbolt.Tx) error {
			hashes, err := hashesWithin(tx, newest.First)
			if err == nil {
				root, err = tlog.TreeHash(int64(c.Size), hashes)
			}
			return err
		})
		if err != nil {
			return err
		}
		if root != c.Root {
			return fmt.Errorf("%w: %s is of %d other records"+cutRemedy, ErrCut, name, c.Size)
		}
	}
	return nil
}
