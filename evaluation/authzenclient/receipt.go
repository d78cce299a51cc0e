package authzenclient

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/evaluation"
)

const (
	// receiptTime bounds the time for the reports of an Enforce, or of a whole
	// EnforceBatch: the PEP waits for it, and has its answer already.
	receiptTime = 2 * time.Second
	// receiptsAtOnce is how many receipts of a batch are on their way together.
	receiptsAtOnce = 8
	// unknownFor is how long a PDP is left alone that does not take receipts.
	unknownFor = time.Minute
)

// reporting is the client's knowledge of the PDP's endpoint for receipts. It has a
// breaker of its own: where only receipts fail, requests go on.
type reporting struct {
	off     bool
	within  time.Duration // receiptTime
	breaker *breaker

	mu     sync.Mutex
	taken  bool      // it took a receipt once, or found fault with one
	silent time.Time // until then nothing is sent
}

// Report sends the PDP the outcomes of the obligations of e: the last of the three steps of
// [Client.Enforce]. A PEP that still has to keep a promise of a handler's, such as redact,
// reports after it did, or after [Enforcement.Break]. An outcome is not reported twice.
//
// It takes two seconds at most, also where ctx has ended, and changes nothing about whether e
// permits; [Enforcement.ReceiptErr] says whether it went well. [WithoutReceipts] turns it off.
func (c *Client) Report(ctx context.Context, e *Enforcement) {
	one := []Enforcement{*e}
	c.report(ctx, one)
	*e = one[0]
}

// ReportAll is [Client.Report] of all of e, within the same time.
func (c *Client) ReportAll(ctx context.Context, e *Enforcements) {
	for n := range e.all {
		if len(e.all[n].report.Receipts()) > 0 {
			e.all = slices.Clone(e.all)
			c.report(ctx, e.all)
			return
		}
	}
}

// report sends the receipts, and notes in each Enforcement whether that went well. Only a PDP
// that names its decisions takes receipts.
//
// The caller's context may have ended: that is one of the things to report.
func (c *Client) report(ctx context.Context, all []Enforcement) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.receipts.within)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(receiptsAtOnce)
	for n := range all {
		e := &all[n]
		receipts := e.report.Receipts()
		if e.reported || len(receipts) == 0 || e.of.decision.id == "" || c.receipts.quiet(c.clock.now()) {
			continue
		}
		group.Go(func() error {
			e.unreported = c.tell(ctx, e.of.decision.id, receipts)
			e.reported = e.unreported == nil
			return nil
		})
	}
	_ = group.Wait() // each has its own error
}

// tell sends one receipt. It is sent again only where no connection was made: of one
// that may have arrived the PDP would say that it was reported before.
func (c *Client) tell(ctx context.Context, id string, receipts []evaluation.Receipt) *Error {
	body, err := encode(struct {
		Obligations []evaluation.Receipt `json:"obligations"`
	}{receipts})
	if err == nil {
		a := asking{op: "report", url: c.receiptURL(id), body: body, repeat: unsent, statuses: []int{http.StatusNoContent}, breaker: c.receipts.breaker}
		_, err = c.ask(ctx, a, func(reply) *Error { return nil })
	}
	if err = c.receipts.heard(err, c.clock.now()); err != nil {
		err.Op = "report"
	}
	return err
}

// receiptURL is in no metadata. An id that is no name in a path is none of a PDP's
// that takes receipts.
func (c *Client) receiptURL(id string) string {
	if id == "." || id == ".." {
		return ""
	}
	return c.at.base.String() + "/v1/decisions/" + url.PathEscape(id) + "/obligations"
}

func (r *reporting) quiet(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.off || now.Before(r.silent)
}

// heard learns from an answer. A PDP that does not know the endpoint is no error. What
// took a receipt before and now says 404 knows it, and not this decision: another
// process behind the same address may have made it.
func (r *reporting) heard(err *Error, now time.Time) *Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil, err.Status == http.StatusBadRequest, err.Status == http.StatusConflict:
		r.taken = true
	case err.Status == http.StatusNotFound && !r.taken, err.Status == http.StatusMethodNotAllowed, err.Status == http.StatusNotImplemented:
		r.silent = now.Add(unknownFor)
		return nil
	}
	return err
}
