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

// cutTry ends the errors of a log that was cut.
const cutRemedy = "; put back what is missing, or see policy-service log begin --help"

// begun returns an error if a directory without segments had a log.
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

// goesOn returns an error if the log ends before a checkpoint of it that stands outside of the segments, or is not of its
// tree. A file that is not a checkpoint of this log counts as missing: whoever can write it can remove it, too.
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
		case err != nil || c.Size < newest.First: // older segments may be altered, or elsewhere
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
