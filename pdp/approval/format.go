package approval

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"policy-service/evaluation"
)

// The file is DATA/approvals.db, in bbolt's format. Its buckets, a time in a key being
// eight bytes of nanoseconds since 1970, big-endian:
//
//	meta       "format"      → FormatVersion
//	approvals  id            → the Approval
//	pending    id            → of each pending one whose it is and until when (waiting)
//	digests    digest        → id of the pending or approved one that is bound to it
//	due        ExpiresAt, id → true, of each pending or approved one
//	ended      EndedAt, id   → true, of each final one
//	reserved   id            → true, of each one with a reservation that is not settled
//	outbox     number        → a Step that may not be on record yet, in the order of steps
//	untold     id            → what nobody was told of yet: "filed", "completed", or both
//	tasks      task          → the Task
//	task_keys  key           → id of the Task that has it
//	task_ends  Until, task   → true, of each Task
//	followers  id, 0, task   → true, of each approval of a Task
//
// A change and what it does to every bucket is one transaction. A value is JSON after
// the 32 bytes of its HMAC-SHA256, which is taken of the bucket's name, the key and the
// JSON, the length of each of the first two before it (2 bytes, big-endian), with a key
// that is derived from the service's key of approvals: who can write to the file and has
// no key makes no value, and moves none to another place. An older file as a whole, or
// in part, is found by holding it against the log ([Store.reconcile]).
//
// In format 1 the first bytes were a CRC-32C. Such a file is taken once ([Store.upgrade]).
//
// How it may grow: by another format number, and by that alone. A program refuses a
// number that it does not know, and a value with a member that it does not know, as
// that may take away what the others give.

// FileName is the name of the file in the data directory, FormatVersion the number of
// its format.
const (
	FileName      = "approvals.db"
	FormatVersion = 2
)

const (
	bucketMeta      = "meta"
	bucketApprovals = "approvals"
	bucketPending   = "pending"
	bucketDigests   = "digests"
	bucketDue       = "due"
	bucketEnded     = "ended"
	bucketReserved  = "reserved"
	bucketOutbox    = "outbox"
	bucketUntold    = "untold"
	bucketTasks     = "tasks"
	bucketTaskKeys  = "task_keys"
	bucketTaskEnds  = "task_ends"
	bucketFollowers = "followers"

	keyFormat = "format"
)

var buckets = []string{bucketMeta, bucketApprovals, bucketPending, bucketDigests, bucketDue, bucketEnded, bucketReserved, bucketOutbox, bucketUntold, bucketTasks, bucketTaskKeys, bucketTaskEnds, bucketFollowers}

// waiting is what is known of a pending one without reading it.
type waiting struct {
	Tenant  string         `json:"tenant"`
	Subject evaluation.Ref `json:"subject"`
	Until   time.Time      `json:"until"`
}

// owner is who is limited.
type owner struct {
	tenant  string
	subject evaluation.Ref
}

func (w waiting) owner() owner { return owner{w.Tenant, w.Subject} }

func (q *ApprovalRequest) owner() owner { return owner{q.Tenant, q.Subject} }

// asker is who is limited whatever subjects it names.
type asker struct{ tenant, caller string }

func (q *ApprovalRequest) asker() asker { return asker{q.Tenant, q.Caller} }

// values are a transaction, with the key of what it reads and writes.
type values struct {
	*bbolt.Tx
	key []byte
}

// What keys are derived for: the values of the file, and the steps in the log.
const (
	keyUse  = "file"
	sealUse = "steps"
)

// keyOf derives a key for one use from the key of approvals.
func keyOf(key []byte, use string) []byte {
	derived, err := hkdf.Key(sha256.New, key, nil, "policy-service approvals "+use, sha256.Size)
	if err != nil {
		panic(err) // of the length alone, which is constant
	}
	return derived
}

func sum(macKey []byte, bucket string, key, text []byte) []byte {
	mac := hmac.New(sha256.New, macKey)
	for _, part := range [][]byte{[]byte(bucket), key} {
		_, _ = mac.Write(binary.BigEndian.AppendUint16(nil, uint16(len(part)))) // never fails; bbolt bounds a key to 32 KiB
		_, _ = mac.Write(part)
	}
	_, _ = mac.Write(text)
	return mac.Sum(nil)
}

// put stores a value.
func put(tx values, bucket string, key []byte, v any) error {
	text, err := json.Marshal(v, asStored)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return tx.Bucket([]byte(bucket)).Put(key, append(sum(tx.key, bucket, key, text), text...))
}

func remove(tx values, bucket string, key []byte) error {
	return tx.Bucket([]byte(bucket)).Delete(key)
}

// get reads a value, and reports whether there is one.
func get(tx values, bucket string, key []byte, into any) (bool, error) {
	value := tx.Bucket([]byte(bucket)).Get(key)
	if value == nil {
		return false, nil
	}
	return true, tx.decode(bucket, key, value, into)
}

// askerOf is who asked for an approval, for who need not know more of it.
func askerOf(tx values, id []byte) (asker, error) {
	value := tx.Bucket([]byte(bucketApprovals)).Get(id)
	if value == nil {
		return asker{}, nil
	}
	text, err := tx.whole(bucketApprovals, id, value)
	var a struct {
		Tenant string `json:"tenant"`
		Caller string `json:"caller"`
	}
	if err == nil {
		err = unmarshal(bucketApprovals, id, text, &a, json.RejectUnknownMembers(false))
	}
	return asker{a.Tenant, a.Caller}, err
}

// decode reads a value. What it makes shares nothing with the file.
func (tx values) decode(bucket string, key, value []byte, into any) error {
	text, err := tx.whole(bucket, key, value)
	if err != nil {
		return err
	}
	return unmarshal(bucket, key, text, into)
}

// whole is the text of a value that was written with the key.
func (tx values) whole(bucket string, key, value []byte) ([]byte, error) {
	if len(value) < sha256.Size || !hmac.Equal(value[:sha256.Size], sum(tx.key, bucket, key, value[sha256.Size:])) {
		return nil, fmt.Errorf("%w: %q in %s was not written with the key of approvals that is here", ErrDamaged, key, bucket)
	}
	return value[sha256.Size:], nil
}

func unmarshal(bucket string, key, text []byte, into any, more ...json.Options) error {
	if err := json.Unmarshal(bytes.Clone(text), into, append([]json.Options{fromStored}, more...)...); err != nil {
		return fmt.Errorf("%w: %q in %s: %w", ErrDamaged, key, bucket, err)
	}
	return nil
}

// timeKey is a key of due and ended.
func timeKey(at time.Time, id string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano())), id...)
}

// readTimeKey reads what timeKey wrote.
func readTimeKey(key []byte) (at time.Time, id string) {
	if len(key) < 8 {
		return at, ""
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(key))).UTC(), string(key[8:])
}

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// readNumber reads what numberKey wrote; anything else is a number that no step has.
func readNumber(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// checkFormat refuses a file that this program does not know how to read.
func checkFormat(tx values) error {
	for _, name := range buckets {
		if tx.Bucket([]byte(name)) == nil {
			return fmt.Errorf("%w: it has no bucket %s", ErrDamaged, name)
		}
	}
	if isOld(tx) {
		return ErrOld
	}
	version := 0
	if found, err := get(tx, bucketMeta, []byte(keyFormat), &version); err != nil || !found {
		return fmt.Errorf("%w: it does not say what its format is: %w", ErrDamaged, err)
	}
	if version != FormatVersion {
		return fmt.Errorf("its format is version %d, and this program knows version %d only: use the program that wrote it", version, FormatVersion)
	}
	return nil
}

func create(tx values) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return put(tx, bucketMeta, []byte(keyFormat), FormatVersion)
}
