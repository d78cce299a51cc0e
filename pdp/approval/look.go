package approval

import (
	"errors"
	"io/fs"

	"policy-service/pdp/ledger"
)

// Look reads the file of a data directory as [Open] would, and changes nothing. It returns the number of pending
// approvals, and the open ones. The error is the one with which Open would fail.
func Look(data string, key []byte) (pending int, open []Approval, err error) {
	err = ledger.Examine(form(data, key), func(tx *ledger.Tx) {
		if tx.Format() == 0 {
			return
		}
		open = ledger.OpenItems[Approval](tx)
		pending = int(readQueue(tx, open).pending.Load())
		for range ledger.Outbox[Step](tx) { // Open reads it, too
		}
	})
	return pending, open, err
}

// Unkeyed returns the number of open approvals in a file whose key is missing. If a process has the file open, which may
// still have the key, the error is [ErrLocked].
func Unkeyed(data string) (open int, err error) {
	err = ledger.Examine(form(data, nil), func(tx *ledger.Tx) {
		for range tx.Scan(ledger.BucketDue, nil) {
			open++
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return open, err
}
