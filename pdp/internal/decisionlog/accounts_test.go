package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/pdptest/night"
)

// counted is a log of small segments that bounds callers, with a clock that a test sets.
type counted struct {
	*testing.T
	*Log
	data string
	at   atomic.Int64 // what the clock shows, in nanoseconds: the writer reads it at any time
}

func (c *counted) now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

var countedKeep = Retention{Bytes: 1 << 20, LeastAge: time.Hour, Share: 0.25}

func openCounted(t *testing.T) *counted {
	t.Helper()
	c := &counted{T: t, data: memory(t)}
	c.at.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	c.open()
	return c
}

func (c *counted) open() {
	c.Helper()
	l, err := Open(c.data, Options{SegmentBytes: 256 << 10, RetryEvery: time.Millisecond, Checkpoints: Checkpoints{Records: 10, Idle: time.Hour, Every: time.Hour}, Kinds: []string{format.KindApproval}, Now: c.now})
	c.ok(err)
	c.Log = l
	c.Cleanup(func() { _ = l.Close() })
	c.ok(l.Limit(c.Context(), countedKeep))
}

func (c *counted) ok(err error) {
	c.Helper()
	must(c.T, err)
}

// puts puts a decision of a caller on record.
func (c *counted) puts(caller string, bytes int) error {
	return c.Append(c.Context(), []record.Entry{{Kind: format.KindDecision, Caller: caller, Decision: &record.Decision{ReasonUser: strings.Repeat("x", bytes)}}})
}

// uses is what a caller has.
func (c *counted) uses(name string) int64 {
	c.writer.accounts.mu.Lock()
	defer c.writer.accounts.mu.Unlock()
	c.writer.accounts.dropAged()
	return c.writer.accounts.usedBy(name)
}

// content is what retention sees of all segments that have any.
func (c *counted) content() (sum int64) {
	c.removals.Lock()
	defer c.removals.Unlock()
	segments, err := c.removals.unretired()
	c.ok(err)
	for _, s := range segments {
		bytes, err := c.removals.contentSize(s)
		c.ok(err)
		sum += bytes
	}
	return sum
}

// bound wants an error to be for a bound.
func (c *counted) bound(err error, want Bound) time.Duration {
	c.Helper()
	var none *RoomError
	if !errors.As(err, &none) || none.Bound != want || none.RetryAfter < time.Second || none.RetryAfter > time.Hour {
		c.Fatalf("got %+v, want %s", err, want)
	}
	return none.RetryAfter
}

// However lines fit into pages, all accounts together are what retention sees, but for what
// is the log's own; and they are the same after a restart.
func TestAccountsAreWhatRetentionSees(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]func(n int) int{
		"small": func(int) int { return 100 }, "two a page": func(int) int { return 600 }, "one a page too many": func(n int) int { return []int{10, 3700}[n%2] }, "large": func(int) int { return 60_000 },
	} {
		t.Run(name, func(t *testing.T) {
			c := openCounted(t)
			c.ok(c.Limit(t.Context(), Retention{Bytes: 1 << 30, LeastAge: time.Hour, Share: 1}))
			for n, sum := 0, 0; sum < 600_000 && n < 500; n++ {
				c.ok(c.puts(fmt.Sprint("key:", n%3), size(n)))
				sum += size(n)
			}
			c.ok(c.Rotate(t.Context()))
			callers := func() (sum int64) { return c.uses("key:0") + c.uses("key:1") + c.uses("key:2") }
			content, all := c.content(), callers()
			if recent := c.Status().Recent; recent < content || recent > content+content/20 {
				t.Errorf("retention sees %d, and together it is %d", content, recent)
			}
			if own := content - all; own < 0 || own > 2*segmentBase*int64(c.Status().Segments) {
				t.Errorf("retention sees %d, and callers have %d", content, all)
			}
			c.ok(c.Close())
			c.open()
			if again := callers(); again < all-all/100 || again > all+all/100 {
				t.Errorf("callers had %d and have %d", all, again)
			}
		})
	}
}

// Nothing goes for its size before its time, however much there is; and then it does.
func TestRetentionBySizeSparesWhatIsYoung(t *testing.T) {
	t.Parallel()
	c := openCounted(t)
	for range 8 {
		c.ok(c.puts("", 16<<10)) // where callers are not told apart, one may fill all
	}
	c.ok(c.Rotate(t.Context()))
	small := countedKeep
	small.Bytes = 1
	done, err := c.Retain(t.Context(), small, c.now().Add(time.Hour))
	if c.ok(err); len(done.Segments) > 0 {
		t.Errorf("%+v", done)
	}
	done, err = c.Retain(t.Context(), small, c.now().Add(time.Hour+time.Second))
	if c.ok(err); len(done.Segments) == 0 {
		t.Error("nothing goes")
	}
}

// One request at most goes beyond a share, whatever is sent at once; what an approver says
// and what is done to the log is counted, and never refused.
func TestShareBoundsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	c := openCounted(t)
	var err error
	refused := make(chan error, 100)
	for range cap(refused) {
		go func() { refused <- c.puts("key:a", 8<<10) }()
	}
	written := 0
	for range cap(refused) {
		if err := <-refused; err == nil {
			written++
		} else {
			c.bound(err, BoundShare)
		}
	}
	if most := 256/8 + 1; written > most || written < most/8 {
		t.Errorf("%d are written", written)
	}
	for err = nil; err == nil; err = c.puts("key:a", 8<<10) { // what is there now may take less than it looked like
	}
	c.bound(err, BoundShare)
	c.bound(c.Room("key:a"), BoundShare)
	for _, caller := range []string{"key:a", "key:mia"} {
		err = c.Append(t.Context(), []record.Entry{{Kind: format.KindAdmin, Caller: caller, Event: "said", Details: []byte(`{"a":"` + strings.Repeat("x", 8<<10) + `"}`)}})
		if c.ok(err); c.uses(caller) < 8<<10 {
			t.Error("it is not counted")
		}
	}
	c.ok(c.puts("key:b", 100))
	c.ok(c.Flush(t.Context()))
	if c.writer.accounts.coming != 0 {
		t.Errorf("%d are on their way", c.writer.accounts.coming)
	}
	// What was never written counts for nothing.
	c.ok(c.Close())
	used := c.uses("key:b")
	if err := c.puts("key:b", 100); !errors.Is(err, ErrClosed) || c.uses("key:b") != used || c.writer.accounts.coming != 0 {
		t.Errorf("got %v, and %d on their way", err, c.writer.accounts.coming)
	}
}

// Subjects that one issuer names leave half of the log, and half of the memory, to others.
func TestIssuerCannotNameItsWayPastTheShares(t *testing.T) {
	t.Parallel()
	c := openCounted(t)
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = c.puts(fmt.Sprint("jwt:https://idp#", n), 4<<10)
	}
	c.bound(err, BoundIssuer)
	if most := 512/4 + 2; n > most || n < most/8 {
		t.Errorf("%d subjects wrote something", n)
	}
	c.bound(c.Room("jwt:https://idp#another"), BoundIssuer)
	c.ok(c.puts("jwt:https://other#0", 100))
	c.ok(c.puts("key:a", 100))

	a := newAccounts(time.Now, func() {})
	a.setLimits(Retention{Bytes: 1 << 40, LeastAge: time.Hour, Share: 0.25}, nil)
	for n := range 2 * mostAccounts {
		name, err := a.countComing(fmt.Sprint("jwt:https://idp#", n), 1000, true)
		if c.ok(err); n > mostAccounts/2 && name != "jwt:https://idp#" {
			t.Fatalf("the subject %d is %s", n, name)
		}
	}
	if len(a.byName) > mostAccounts/2+2 || a.usedBy("jwt:https://idp") < 2*mostAccounts*1000 {
		t.Errorf("there are %d accounts, and the issuer has %d", len(a.byName), a.usedBy("jwt:https://idp"))
	}
	for n := range mostAccounts {
		_, err := a.countComing(fmt.Sprint("key:", n), 1000, true)
		c.ok(err)
	}
	if len(a.byName) > mostAccounts+1 || a.usedBy("key:7") < 1000 || a.usedBy(others) < 1000 {
		t.Errorf("there are %d accounts", len(a.byName))
	}
}

// Accounts without one of their own are told apart from those that have one when they are
// read back, and what is redacted leaves no name behind.
func TestChargesAreReadBackWithoutNames(t *testing.T) {
	t.Parallel()
	c := openCounted(t)
	c.ok(c.puts("key:known", 100))
	c.writer.accounts.mu.Lock()
	c.writer.accounts.account("key:pep")
	for n := range mostAccounts { // elsewhere
		c.writer.accounts.account(fmt.Sprint("key:", n)).coming = 1
	}
	c.writer.accounts.mu.Unlock()
	// What comes of an approval by itself is whose request it was.
	err := c.Append(t.Context(), []record.Entry{{Kind: format.KindApproval, Payer: "key:pep", Event: "used", Details: []byte(`{"requester":"key:pep"}`)}})
	c.ok(err)
	for _, caller := range []string{"jwt:https://idp#somebody", "key:nobody"} {
		for range 3 {
			c.ok(c.puts(caller, 1000))
		}
	}
	if c.uses("jwt:https://idp#") < 3000 || c.uses(others) < 3000 || c.uses("key:nobody") != 0 {
		t.Error("they have accounts")
	}
	c.ok(c.Close())
	c.open()
	if c.uses("jwt:https://idp#") < 3000 || c.uses("jwt:https://idp") < 3000 || c.uses(others) < 3000 || c.uses("key:nobody") != 0 || c.uses("key:known") == 0 || c.uses("key:pep") == 0 {
		t.Error("after a restart it is another")
	}
	rec, err := c.Get(1) // after log_created
	c.ok(err)
	if !bytes.Contains(rec.Line, []byte("key:known")) {
		t.Fatalf("%s", rec.Line)
	}
	var s record.Recorded
	c.ok(json.Unmarshal(rec.Line, &s))
	c.ok(c.Redact(t.Context(), "", s.ID, "on request"))
	for _, segment := range c.Segments() {
		content, err := os.ReadFile(segment.Path)
		c.ok(err)
		if bytes.Contains(content, []byte("key:known")) {
			t.Errorf("its caller is in %s", segment.Path)
		}
	}
	c.ok(c.Close())
	c.open()
	if c.uses("key:known") != 0 || c.uses(others) == 0 {
		t.Error("what was redacted is somebody's")
	}
}

// Other bounds count what there is, from as far back as they say.
func TestLimitIsTakenAnew(t *testing.T) {
	t.Parallel()
	c := openCounted(t)
	for range 10 {
		c.ok(c.puts("key:a", 8<<10))
	}
	c.ok(c.Rotate(t.Context()))
	used := c.uses("key:a")
	for _, keep := range []Retention{{}, {Bytes: 1 << 30, LeastAge: 2 * time.Hour, Share: 1}, countedKeep} {
		c.ok(c.Limit(t.Context(), keep))
	}
	if got := c.uses("key:a"); got != used {
		t.Errorf("it had %d and has %d", used, got)
	}
	c.at.Add(int64(time.Hour + time.Second))
	c.ok(c.Limit(t.Context(), countedKeep))
	if got := c.uses("key:a"); got != 0 {
		t.Errorf("it has %d", got)
	}
	c.ok(c.Limit(t.Context(), Retention{Bytes: 1 << 20, LeastAge: 3 * time.Hour, Share: 0.25}))
	if got := c.uses("key:a"); got != used {
		t.Errorf("it had %d and has %d", used, got)
	}
}

// Of what an earlier release wrote nobody knows whose it is; it counts for all together.
func TestRecordsOfAnEarlierReleaseAreNobodys(t *testing.T) {
	t.Parallel()
	c := openCounted(t)
	for range 6 {
		c.ok(c.puts("key:a", 8<<10))
	}
	c.ok(c.Rotate(t.Context()))
	for range 6 {
		c.ok(c.puts("key:a", 8<<10))
	}
	c.ok(c.Flush(t.Context()))
	segments, recent := c.Segments(), c.Status().Recent
	c.ok(c.Close())
	for _, s := range segments {
		c.ok(os.Chmod(s.Path, 0o600))
		db, err := bbolt.Open(s.Path, 0o600, nil)
		c.ok(err)
		c.ok(db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(format.BucketCharges)) }))
		c.ok(db.Close())
	}
	c.open()
	if now := c.Status().Recent; c.uses("key:a") != 0 || now < recent || now > recent+64<<10 {
		t.Errorf("together it was %d and is %d", recent, now)
	}
	c.ok(c.puts("key:a", 8<<10))
	if used := c.uses("key:a"); used < 8<<10 || used > 32<<10 {
		t.Errorf("it uses %d", used)
	}
}

// A disk that fails makes nobody's account more or less than what is on record.
func TestAccountsSurviveAFailingDisk(t *testing.T) {
	t.Parallel()
	c := openCounted(t)
	for n := range 8 {
		if n%4 == 3 {
			c.ok(c.writer.runHeld(t.Context(), func() error { c.writer.fail(errors.New("the disk failed")); return nil }))
		}
		for {
			err := c.puts("key:a", 8<<10)
			if err == nil {
				break
			}
			if !errors.Is(err, segment.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	}
	c.ok(c.Flush(t.Context()))
	var lines int64
	for r, err := range c.Records(t.Context(), 0, c.Size()) {
		c.ok(err)
		if bytes.Contains(r.Line, []byte(`"key:a"`)) {
			lines += int64(len(r.Line)) + lineWeight
		}
	}
	c.writer.accounts.mu.Lock()
	open, coming := c.writer.accounts.byName["key:a"].open, c.writer.accounts.coming+c.writer.accounts.byName["key:a"].coming
	c.writer.accounts.mu.Unlock()
	if open < lines-lines/20 || open > lines+lines/20 || coming != 0 {
		t.Errorf("the records weigh %d, and it has %d and %d", lines, open, coming)
	}
}

// Counting costs a decision no memory.
func TestCountingAllocatesNothing(t *testing.T) {
	night.Measures(t)
	a := newAccounts(time.Now, func() {})
	a.setLimits(Retention{Bytes: 1 << 40, LeastAge: time.Hour, Share: 1}, nil)
	c := &call{weight: 1000}
	calls := []*call{c}
	if n := testing.AllocsPerRun(1000, func() {
		c.payer, _ = a.countComing("jwt:https://idp#somebody", c.weight, true)
		c.taken = true
		a.countWritten(calls, 1<<20)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
