package approval

import (
	"context"
	"errors"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/ledger"
)

// ToolRequest is a request for a tool, which a gateway keeps until another of its callers fulfils it. It grants nothing: whether
// the call may be made is decided when it is made. Only the gateway reads the text.
//
// A request is taken by a gateway by a value that is no longer open. Each value says which one it replaces, so one gateway
// takes it.
type ToolRequest struct {
	Open  bool      `json:"open,omitzero"`
	Text  string    `json:"text,omitzero"`
	Until time.Time `json:"until"`
	// Generation is that of the engine. No log says what became of a request after an engine was copied, so that those of another
	// generation count for nothing.
	Generation uint64 `json:"generation,omitzero"`
	// Revision is of what was read, and 0 of a new one.
	Revision uint64 `json:"-"`
}

// ErrReplaced: the value was replaced meanwhile, or its time is up.
var ErrReplaced = errors.New("the request for a tool is not as it was read")

// What one gateway may keep in a tenant. A request that was kept can be taken, and can end, where there is no room for more: a
// value that ends its wait may be larger by roomToEnd.
const (
	mostToolRequests = 4096
	mostToolTexts    = 64 << 20
	roomToEnd        = 2 << 10
)

// The keys of requests for tools; see format.go.
const (
	prefixTools    = "u/"
	prefixToolOpen = "i/u/"
	prefixToolEnds = "i/v/"
	prefixOfTools  = "n/u/"
)

// keptTools is how much one gateway keeps in a tenant.
type keptTools struct {
	Number int `json:"number"`
	Bytes  int `json:"bytes"`
}

// toolsOf begins the keys of a gateway's requests. It has no slash but the last.
func toolsOf(tenant, caller string) string {
	return owner{tenant, evaluation.Ref{ID: caller}}.hash() + "/"
}

// KeepToolRequest writes a request of a gateway in place of the value with its Revision. If there is another, the error is
// [ErrReplaced]; if the gateway keeps too much, it is a [LimitError].
//
// A new one is written twice. The first value of a key could be put again after the key was deleted, by a program that can
// write to the engine: so the first is empty.
func (s *Store) KeepToolRequest(ctx context.Context, tenant, caller, id string, r ToolRequest) (ToolRequest, error) {
	of := toolsOf(tenant, caller)
	release, err := s.ledger.Lock(ctx, "requests for tools of "+of) // no id has a space
	if err != nil {
		return r, err
	}
	defer release()
	r.Generation, r.Until = s.options.Generation, r.Until.Round(0).UTC()
	if r.Revision == 0 {
		if s.options.Room != nil {
			if err := s.options.Room(); err != nil {
				return r, err
			}
		}
		empty, err := s.putToolRequest(ctx, of, id, ToolRequest{Until: r.Until, Generation: r.Generation}, len(r.Text))
		if err != nil {
			return r, err
		}
		r.Revision = empty.Revision
	}
	return s.putToolRequest(ctx, of, id, r, 0)
}

// putToolRequest writes a request, if there is room for it and for as many bytes that come later.
func (s *Store) putToolRequest(ctx context.Context, of, id string, r ToolRequest, later int) (ToolRequest, error) {
	made, err := ledger.Again(ctx, s.ledger, func() (ledger.Made[Step], error) {
		return s.ledger.Update(func(c *change) {
			was, found := s.toolRequest(c, of+id)
			if was.Revision != r.Revision || r.Revision > 0 && !found {
				c.Fail(ErrReplaced)
				return
			}
			var kept keptTools
			c.Get(prefixOfTools+of, &kept)
			if r.Revision == 0 {
				kept.Number++
			} else {
				c.Delete(was.ends(of + id))
			}
			most, more := mostToolTexts, len(r.Text)-len(was.Text)
			if r.Revision > 0 && !r.Open && more <= roomToEnd {
				most += mostToolRequests * roomToEnd
			}
			if kept.Bytes += more; kept.Number > mostToolRequests || kept.Bytes+later > most && more+later > 0 {
				c.Fail(&LimitError{RetryAfter: laterOn, OfCaller: true})
			}
			c.Put(prefixTools+of+id, r)
			c.Put(prefixOfTools+of, kept)
			c.Put(r.ends(of+id), true)
			if c.Delete(prefixToolOpen + of + id); r.Open && r.Text != "" {
				c.Put(prefixToolOpen+of+id, true)
			}
		})
	})
	r.Revision = made.Revision
	return r, err
}

func (r *ToolRequest) ends(key string) string { return ledger.TimeKey(prefixToolEnds, r.Until, key) }

// toolRequest reads a request, and reports whether it counts still.
func (s *Store) toolRequest(from ledger.Reader, key string) (r ToolRequest, counts bool) {
	r.Revision = from.Get(prefixTools+key, &r)
	return r, r.Revision > 0 && r.Generation == s.options.Generation && s.later().Before(r.Until)
}

// ToolRequest is a request of a gateway in a tenant, by its id.
func (s *Store) ToolRequest(tenant, caller, id string) (r ToolRequest, found bool, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) { r, found = s.toolRequest(tx, toolsOf(tenant, caller)+id) })
	return r, found && r.Text != "" && err == nil, err
}

// OpenToolRequests are the ids of the requests of a gateway in a tenant that were open at their last change.
func (s *Store) OpenToolRequests(tenant, caller string) (ids []string, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) {
		for id := range tx.Scan(prefixToolOpen+toolsOf(tenant, caller), "") {
			if ids = append(ids, id); len(ids) == mostToolRequests {
				return
			}
		}
	})
	return ids, err
}

// forgetToolRequests removes those whose time is up, and those of before the engine was copied.
func (s *Store) forgetToolRequests(ctx context.Context) error {
	return s.ledger.Past(ctx, prefixToolEnds, s.now(), func(ctx context.Context, key string) error {
		return s.ledger.Change(ctx, func(c *change) {
			r, counts := s.toolRequest(c, key)
			if counts || r.Revision == 0 {
				return
			}
			of, _, _ := strings.Cut(key, "/")
			var kept keptTools
			c.Get(prefixOfTools+of+"/", &kept)
			kept.Number, kept.Bytes = kept.Number-1, kept.Bytes-len(r.Text)
			if kept == (keptTools{}) {
				c.Delete(prefixOfTools + of + "/")
			} else {
				c.Put(prefixOfTools+of+"/", kept)
			}
			c.Delete(prefixTools + key)
			c.Delete(prefixToolOpen + key)
			c.Delete(r.ends(key))
		})
	})
}
