package approval

import (
	"crypto/hkdf"
	"crypto/sha256"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/ledger"
)

// The file is DATA/approvals.db, in bbolt's format. These are its buckets. A time in a key
// is eight bytes of nanoseconds since 1970, big-endian:
//
//	meta       "format"      → FormatVersion
//	approvals  id            → the Approval
//	pending    id            → whose a pending one is, and until when it waits (waiting)
//	digests    digest        → id of the pending or approved one that is bound to it
//	due        ExpiresAt, id → true, of each pending or approved one
//	ended      EndedAt, id   → true, of each final one
//	reserved   id            → true, of each one with a reservation that is not settled
//	outbox     number        → a Step that may not be on record yet, in the order of steps
//	untold     id            → the events still to be delivered to systems: "filed", "completed", or both
//	tasks      task          → the Task
//	task_keys  key           → id of the Task that has it
//	task_ends  Until, task   → true, of each Task
//	followers  id, 0, task   → true, of each approval of a Task
//	changed    whose, number → id of the Task, of each Task under the number of its last change
//
// Whose a task is, is the SHA-256 of its tenant and its caller (taskOwner). A number is eight
// bytes, big-endian. No later change has a lower one: numbers go up with the length of the log
// too, so that an older copy of the file gives none twice. meta has the names that the file got
// whenever it was opened, with the last number under each ("names"): by these it differs from a
// file that was begun anew, and from its own state before an older copy was put in its place.
//
// A change, with its effect on every bucket, is one transaction. A value is JSON after
// the 32 bytes of its HMAC-SHA256, as [ledger] has it. The key of the MAC is derived from
// the service's key of approvals. So a program that can write to the file and has no key
// makes no value, and moves none to another place. A file that is older as a whole, or in
// part, is found by holding it against the log.
//
// A redacted Approval has neither Drawn nor Shown, and has a redacted_at.
//
// The format may grow by another format number, and by that alone. A program refuses a
// number that it does not know, and a value with a member that it does not know, because
// that may restrict the others. Numbers below 4 were never released.

// FileName is the name of the file in the data directory, FormatVersion the number of
// its format.
const (
	FileName      = "approvals.db"
	FormatVersion = 4
)

const (
	bucketApprovals = "approvals"
	bucketPending   = "pending"
	bucketDigests   = "digests"
	bucketUntold    = "untold"
	bucketTasks     = "tasks"
	bucketTaskKeys  = "task_keys"
	bucketTaskEnds  = "task_ends"
	bucketFollowers = "followers"
	bucketChanged   = "changed"

	keyNames = "names" // in meta: the names of the file
)

// waiting are the facts about a pending approval that need no reading of it.
type waiting struct {
	Tenant  string         `json:"tenant"`
	Subject evaluation.Ref `json:"subject"`
	Until   time.Time      `json:"until"`
}

// owner is a party that limits hold for: a subject, or a caller.
type owner struct {
	tenant  string
	subject evaluation.Ref
}

func (q *ApprovalRequest) owner() owner {
	if person, _, _ := strings.Cut(q.Person, " "); person != "" {
		return owner{q.Tenant, evaluation.Ref{ID: person}}
	}
	return owner{q.Tenant, q.Subject}
}

// asker is the caller, for limits that hold whatever subjects it names. Its type is empty.
func (q *ApprovalRequest) asker() owner { return owner{q.Tenant, evaluation.Ref{ID: q.Caller}} }

// The uses of derived keys: the values of the file, and the steps in the log.
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

// form has the layout of approvals.db for the ledger, the key that seals values, the encoding of an approval, and the
// errors to return.
func form(data string, key []byte) ledger.Form {
	return ledger.Form{
		Path:    filepath.Join(data, FileName),
		Key:     keyOf(key, keyUse),
		Version: FormatVersion,
		Buckets: []string{
			bucketApprovals, bucketPending, bucketDigests, bucketUntold,
			bucketTasks, bucketTaskKeys, bucketTaskEnds, bucketFollowers, bucketChanged,
		},
		Items:     bucketApprovals,
		Marshal:   asStored,
		Unmarshal: fromStored,
		Errors: ledger.Errors{
			Unavailable: ErrUnavailable,
			Closed:      ErrClosed,
			Locked:      ErrLocked,
			Damaged:     ErrDamaged,
			NotFound:    ErrNotFound,
		},
	}
}

// Values are stored with durations as 1h0m0s.
var (
	asStored = json.WithMarshalers(json.MarshalFunc(func(d time.Duration) ([]byte, error) {
		return json.Marshal(d.String())
	}))
	fromStored = json.JoinOptions(json.RejectUnknownMembers(true), json.WithUnmarshalers(
		json.UnmarshalFromFunc(func(from *jsontext.Decoder, d *time.Duration) error {
			text, err := from.ReadToken()
			if err == nil {
				*d, err = time.ParseDuration(text.String())
			}
			return err
		}),
	))
)
