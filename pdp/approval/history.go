package approval

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/ledger"
)

// history says which approval requests were for the same: of one subject, for one action on one resource, by one template
// in one tenant. It has those that are pending no longer. Its entries are looked up in the file, so that nothing is known
// by it alone.
type history struct {
	seed maphash.Seed
	turn chan struct{} // has a value while a reader reads the file, and guards after and whole

	after []byte // up to where the file was read
	whole bool

	mu  sync.Mutex
	ids map[uint64][]string // in order, by purpose
}

func newHistory() *history {
	return &history{seed: maphash.MakeSeed(), turn: make(chan struct{}, 1), ids: map[uint64][]string{}}
}

// purpose has the facts that approval requests for the same thing share.
type purpose struct{ tenant, template, subjectType, subject, action, resourceType, resource string }

func (r *ApprovalRequest) purpose() purpose {
	return purpose{r.Tenant, r.Terms.Template, r.Subject.Type, r.Subject.ID, r.Action, r.Resource.Type, r.Resource.ID}
}

// note notes an approval that is pending no longer, or takes it out when it is forgotten.
func (h *history) note(of purpose, id string, in bool) {
	key := maphash.Comparable(h.seed, of)
	h.mu.Lock()
	defer h.mu.Unlock()
	list(h.ids, key, id, in)
}

// before are the ids of those that were for the same and were filed before, the newest first, but no more than most.
func (h *history) before(a *Approval, most int) []string {
	key := maphash.Comparable(h.seed, a.purpose())
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.ids[key]
	end, _ := slices.BinarySearch(ids, a.ID)
	found := slices.Clone(ids[max(0, end-most):end])
	slices.Reverse(found)
	return found
}

// readAtOnce is how many approvals of the file are read in one transaction.
const readAtOnce = 500

// Recall reads of the file which approval requests were for the same. Without it, the first call of [Store.Previous] does.
func (s *Store) Recall(ctx context.Context) {
	if err := s.recall(ctx); err != nil && ctx.Err() == nil {
		s.options.OnError(err)
	}
}

func (s *Store) recall(ctx context.Context) error {
	h := s.history
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for !h.whole {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.ledger.View(s.recallSome); err != nil {
			return err
		}
	}
	return nil
}

// recallSome reads some approvals more. One that is damaged is found when it is read for itself.
func (s *Store) recallSome(tx *ledger.Tx) {
	h, n := s.history, 0
	for key := range tx.Scan(bucketApprovals, h.after) {
		var a struct { // and nothing else of it
			Tenant   string            `json:"tenant"`
			Terms    obligations.Terms `json:"terms"`
			Subject  evaluation.Ref    `json:"subject"`
			Resource evaluation.Ref    `json:"resource"`
			Action   string            `json:"action"`
			Status   Status            `json:"status"`
			Redacted time.Time         `json:"redacted_at"`
		}
		err := tx.Try(func(tx *ledger.Tx) {
			tx.Get(bucketApprovals, key, &a, json.RejectUnknownMembers(false))
		})
		if err == nil && a.Status != Pending && a.Redacted.IsZero() { // a redacted one has lost its purpose
			r := ApprovalRequest{Tenant: a.Tenant, Terms: a.Terms, Subject: a.Subject, Resource: a.Resource, Action: a.Action}
			h.note(r.purpose(), string(key), true)
		}
		if h.after, n = slices.Clone(key), n+1; n == readAtOnce {
			return
		}
	}
	h.whole = true
}

// mostBefore is how many approval requests Previous looks at.
const mostBefore = 25

// Previous finds the newest approval request that was for the same as another, was filed before it and is pending no
// longer. Picks says whether it is wanted. If many that were are not, those before them are not looked at.
func (s *Store) Previous(
	ctx context.Context, a Approval, picks func(Approval) (bool, error),
) (before Approval, found bool, err error) {
	if err := s.recall(ctx); err != nil {
		return before, false, err
	}
	for _, id := range s.history.before(&a, mostBefore) {
		one, known, err := s.Get(ctx, id)
		if errors.Is(err, ErrUnrecorded) || err == nil && (!known || one.Status == Pending || one.purpose() != a.purpose()) {
			continue
		}
		if err != nil {
			return before, false, err
		}
		if picked, err := picks(one); err != nil || picked {
			return one, picked && err == nil, err
		}
	}
	return before, false, nil
}
