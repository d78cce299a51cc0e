package pdp

import (
	"context"
	"maps"
	"slices"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// What approvals may cost in one batch. An item beyond a limit is denied as it is without approvals.
// Its caller asks for it by itself, or presents its approval in the next batch.
const (
	// MaxUses is how many items of a batch can use an approval. Each use is a transaction that waits
	// for the disk.
	MaxUses = 50
	// maxBound bounds the requests that are put into the form that approvals are bound to, in bytes,
	// because all items may inherit one large context. It takes a few tenths of a second.
	maxBound = 16 << 20
	// maxOffered bounds what the answer says of how approvals can be requested, in bytes. As a rule
	// it is enough for every item of the largest batch.
	maxOffered = 2 << 20
	// offerFrame is what an offer takes beside its token: the names of members, ids, times and URLs.
	offerFrame = 512
)

// batchApprovals are the approvals of one batch, within its limits.
type batchApprovals struct {
	Approvals
	claimed, bound, offered int
}

// Find implements [Approvals]. An approval that cannot be used in this batch is worth another try.
func (b *batchApprovals) Find(ctx context.Context, a ApprovalRequest) (Found, error) {
	found, err := b.Approvals.Find(ctx, a)
	if found.ID != "" && b.claimed >= MaxUses {
		return Found{Why: evaluation.ApprovalPending}, err
	}
	return found, err
}

// Offer implements [Approvals].
func (b *batchApprovals) Offer(
	ctx context.Context, a ApprovalRequest, why evaluation.Reason,
) (*evaluation.Access, error) {
	if b.offered > maxOffered {
		return nil, nil
	}
	access, err := b.Approvals.Offer(ctx, a, why)
	if access != nil {
		b.offered += offerFrame
		if access.Request != nil {
			b.offered += len(access.Request.BindingToken)
		}
	}
	return access, err
}

// bind reports whether one more request may be put into the form that approvals are bound to.
func (b *batchApprovals) bind(r *evaluation.Request) bool {
	if b.bound > maxBound {
		return false
	}
	b.bound += sizeOfRequest(r)
	return b.bound <= maxBound
}

// consult is [consult] for an item. Its answer may hang on the use of an approval.
func (j *judging) consult(
	ctx context.Context, call *Call, item *evaluation.Item, w *engine.Verdict, answer *reply,
) error {
	if call.Approvals == NotAsked || call.Request.Unknown != nil || w.Waits() && !j.approvals.bind(&call.Request) {
		return nil
	}
	err := consult(ctx, j.approvals, j.in.Bundle, call, w, answer)
	if answer.approved {
		inBody(item, &answer.decision)
	}
	if answer.claim != nil {
		j.approvals.claimed++
	}
	return err
}

// batchUse are the uses of one approval that are reserved for items of a batch.
type batchUse struct {
	Reservation
	last int // the last of these items
}

// reserve reserves the uses that the answers hang on, those of each approval in the order of the
// items. An item that gets none has the answer without the approval. Then the batch ends with the
// item that decides it.
//
// A reservation keeps everybody else from the approval, and a batch may have several, so it makes
// them in the order of the ids. No two batches then wait for each other.
func (j *judging) reserve(ctx context.Context) error {
	claims := map[string][]int{}
	for n, item := range j.items {
		if item.claim != nil {
			claims[item.claim.id] = append(claims[item.claim.id], n)
		}
	}
	if len(claims) > 0 && j.all.Waits != nil {
		j.all.Waits()
	}
	for _, id := range slices.Sorted(maps.Keys(claims)) {
		if err := j.reserveOne(ctx, claims[id]); err != nil {
			return err
		}
	}
	for n := range j.items {
		if j.decidedBy(&j.items[n].decision) {
			j.items = j.items[:n+1]
			break
		}
	}
	return nil
}

// reserveOne reserves uses of one approval for items. A round of a use is reserved for no second item,
// and beside nothing else of the approval: the round keeps everybody from the approval.
func (j *judging) reserveOne(ctx context.Context, items []int) error {
	first := j.items[items[0]].claim.request.Continues
	use, err := j.items[items[0]].reserve(ctx)
	if use != nil {
		j.uses = append(j.uses, batchUse{use, items[0]})
	}
	j.items[items[0]].claim = nil
	for _, n := range items[1:] {
		item, got := &j.items[n], false
		if err == nil && use != nil && first.Round == 0 && item.claim.request.Continues.Round == 0 {
			got, err = use.Again(ctx, item.claim.request.Decision)
			err = notRecorded(err)
		}
		switch {
		case err != nil:
			return err
		case got:
			j.uses[len(j.uses)-1].last = n
			item.claim = nil
		default:
			err = item.forgo(ctx)
		}
	}
	return err
}

// spend settles the uses: the answers are on record. If the batch ended before an item that a use
// is reserved for, the log says which of the uses count. After an error nothing of the batch may be answered.
func (j *judging) spend(ctx context.Context) error {
	var whole []Reservation
	for _, use := range j.uses {
		if use.last < len(j.items) {
			whole = append(whole, use)
		} else {
			use.InDoubt()
		}
	}
	j.uses = nil
	return spent(ctx, whole)
}

// inDoubt leaves the uses that are not settled to the log, after an error or a panic.
func (j *judging) inDoubt() {
	for _, use := range j.uses {
		use.InDoubt()
	}
}
