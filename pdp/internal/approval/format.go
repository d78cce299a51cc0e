package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

// The file is DATA/approvals.db, in bbolt's format; see package bolt. These are its keys, besides those of package ledger.
// TIME is 16 hexadecimal digits of nanoseconds since 1970, WHOSE the SHA-256 of a tenant and a caller (owner.hash), and T
// a tenant; all others are ids.
//
//	a/ID           → the Approval, without its words
//	q/ID           → its words, written once
//	d/DIGEST       → the id of the pending or approved one that is bound to it
//	i/p/T/ID       → until when a pending one waits (waiting)
//	i/c/WHOSE/ID   → true, of each pending one of a caller
//	i/h/PURPOSE/ID → true, of each one that people approved or denied, by its purpose (purpose)
//	n/…            → how many are pending: of a tenant t/T, a caller c/T/WHOSE, a subject s/T/SUBJECT
//	w/ID           → the events still to be delivered to systems (untold)
//	t/TASK         → the Task
//	tk/KEY         → the id of the Task that has it
//	i/t/TIME/TASK  → true, of each Task, by Until
//	u/WHOSE/ID     → a ToolRequest of a gateway
//	i/u/WHOSE/ID   → true, of each that is open
//	i/v/TIME/WHOSE/ID → true, of each, by Until
//	n/u/WHOSE/     → how many of a gateway there are, and how large they are (keptTools)
//	f/ID           → the ids of the tasks that follow an approval, in order
//	c/WHOSE/a:ID   → true, of each approval that tasks follow: its revision is that of the last change
//	c/WHOSE/t:TASK → true, of each task: its revision is that of its beginning
//
// A change, with its effect on every key, is one transaction. A value is JSON after
// the 32 bytes of its HMAC-SHA256, as [ledger] has it. The key of the MAC is derived from
// the service's key of approvals. So a program that can write to the file and has no key
// makes no value, and moves none to another place. A file that is older as a whole, or in
// part, is found by holding it against the log.
//
// A redacted Approval has neither Drawn nor Shown, and has a redacted_at.
//
// The format may grow by another format number, and by that alone. A program refuses a
// number that it does not know, and a value with a member that it does not know, because
// that may restrict the others. Numbers below 5 were never released.

// FileName is the name of the file in the data directory, FormatVersion the number of
// its format.
const (
	FileName      = "approvals.db"
	FormatVersion = 5
)

// ErrNewer: a later release wrote the file.
var ErrNewer = ledger.ErrNewer

const (
	kind            = "a"
	prefixItems     = kind + "/"
	prefixWords     = "q/"
	prefixDigests   = "d/"
	prefixPending   = "i/p/"
	prefixAsked     = "i/c/"
	prefixAlike     = "i/h/"
	prefixOfTenant  = "n/t/"
	prefixOfCaller  = "n/c/"
	prefixOfSubject = "n/s/"
	prefixUntold    = "w/"
	prefixTasks     = "t/"
	prefixTaskKeys  = "tk/"
	prefixTaskEnds  = "i/t/"
	prefixFollowers = "f/"
)

func digestKey(digest [32]byte) string { return prefixDigests + hex.EncodeToString(digest[:]) }

// waiting are the facts about a pending approval that need no reading of it.
type waiting struct {
	Until time.Time `json:"until"`
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

// hash is an owner as keys have it. Two owners have two.
func (o owner) hash() string { return hash(o.tenant, o.subject.Type, o.subject.ID) }

func hash(parts ...string) string {
	var all []byte
	for _, part := range parts {
		all = append(strconv.AppendInt(all, int64(len(part)), 10), ':')
		all = append(all, part...)
	}
	h := sha256.Sum256(all)
	return hex.EncodeToString(h[:])
}

// The uses of derived keys: the values of the file, and the steps in the log.
const (
	keyUse  = "file"
	sealUse = "steps"
)

// keyOf derives a key for one use from the key of approvals.
func keyOf(key []byte, use string) []byte {
	return ledger.DeriveKey(key, "policy-service approvals "+use)
}

// file is where approvals are, unless there is another engine.
func file(data string) bolt.Options {
	return bolt.Options{Path: filepath.Join(data, FileName), Errors: known}
}

// form is how values are written.
func form(key []byte) ledger.Form {
	return ledger.Form{
		Items:     "approvals",
		Kind:      kind,
		Key:       keyOf(key, keyUse),
		Version:   FormatVersion,
		Marshal:   asStored,
		Unmarshal: fromStored,
		Errors:    known,
	}
}

// Values are stored with durations as 1h0m0s.
var (
	asStored = json.JoinOptions(json.Deterministic(true), json.WithMarshalers(
		json.MarshalFunc(func(d time.Duration) ([]byte, error) { return json.Marshal(d.String()) }),
	))
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
