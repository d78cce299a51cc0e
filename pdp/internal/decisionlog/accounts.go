package decisionlog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"policy-service/evaluation"
)

// accounts say how much each caller has put on record that retention may not drop yet. So no
// caller can fill the log, and get the records of others dropped or refused.
//
// A record counts until its segment can go, as a part of the segment's size on disk:
// the content of a segment, as retention counts it, is divided among its records by their
// length. So all accounts together are as large as retention counts, however well lines fit into
// pages. Each segment says itself whose its records are (see charges), in the same
// transaction as they: neither a restart nor a crash forgets any.
type accounts struct {
	now  func() time.Time
	aged func() // called when retention may drop more than before

	mu        sync.Mutex
	keep      Retention
	byName    map[string]*account // by caller, and by issuer: the sum of its subjects
	stretches []stretch           // sealed segments, oldest first
	content   int64               // of the stretches
	active    int64               // content of the active segment
	weight    int64               // of its records
	coming    int64               // weight of records on their way to it
}

// account counts the records of one caller.
type account struct {
	kept   int64 // bytes of the stretches
	open   int64 // weight in the active segment
	coming int64 // and on its way there
}

// stretch is a sealed segment, or several that were sealed soon after each other.
type stretch struct {
	begun, until time.Time // when the first of them was sealed, and the last
	content      int64
	byName       map[string]int64
}

const (
	// mostAccounts bounds the memory. The subjects of issuers, of which an issuer can name any
	// number, have half of them, so that they do not crowd out others.
	mostAccounts = 10_000
	// stretchesKept is how many parts the time is divided into, which bounds it too.
	stretchesKept = 32
	// others are all callers without an account of their own: they have one together.
	others = "*"
	// lineWeight is the weight of a record besides its line: its key, its id, and the part that the
	// writer adds to it.
	lineWeight = 256
	// segmentBase is the size of a segment without records, and of checkpoints:
	// it is no caller's, and would make the first records of a segment dear.
	segmentBase = 32 << 10
	// mostPrice bounds the ratio of a segment's content to the weight of its records. Only a segment with little besides its
	// checkpoints has more.
	mostPrice = 16
	// firstWeight at firstPrice is added to the active segment, so that
	// its first few records say little about the next ones.
	firstWeight = 64 << 10
	firstPrice  = 2
	// mostRetry bounds RetryAfter.
	mostRetry = time.Hour
)

// Bound names the bound that a caller is at.
type Bound string

// The bounds.
const (
	BoundShare  Bound = "log_share"  // of the caller
	BoundPerson Bound = "log_person" // of a person for whom a caller asks that relays many
	BoundIssuer Bound = "log_issuer" // of all subjects of its issuer together
	BoundAll    Bound = "log_full"   // of everybody
)

// RoomError refuses records because retention may not drop enough of the present ones yet. None of the records was put on record.
type RoomError struct {
	Bound Bound
	// RetryAfter is when enough of that will be old enough, from a second to an hour.
	RetryAfter time.Duration
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("there is no room for more records (%s)", e.Bound)
}

func newAccounts(now func() time.Time, aged func()) *accounts {
	return &accounts{now: now, aged: aged, byName: map[string]*account{}}
}

// issuerOf returns the issuer of a caller that is a subject of one, by the caller's name, and otherwise "".
func issuerOf(caller string) string {
	if issuer, _, subject := strings.Cut(caller, "#"); subject && strings.HasPrefix(caller, "jwt:") {
		return issuer
	}
	return ""
}

// ofPersonsMark stands between the name of a caller that relays many persons and the person for whom it asks. No caller's
// name contains it.
const ofPersonsMark = "\n"

// ForPerson returns the account of a person, or else a subject, for whom a caller asks that relays many. If one is "", it returns the
// account of all of them together.
func ForPerson(caller, one string) string { return caller + ofPersonsMark + one }

// Anyone is the account, for [ForPerson], of persons without an account of their own. Their sum is bounded as a part
// of the sum of all persons for whom the caller asks.
const Anyone = "#"

// PersonIn returns whom accounts count a request for: the first person that it names, or else its subject.
func PersonIn(person string, subject evaluation.Ref) string {
	if first, _, _ := strings.Cut(person, " "); first != "" {
		return first
	}
	one := subject.Type + "/" + subject.ID
	if len(one) > longestSubject {
		sum := sha256.Sum256([]byte(one))
		one = hex.EncodeToString(sum[:])
	}
	return strings.ReplaceAll(one, ofPersonsMark, " ")
}

// longestSubject bounds the name of a subject in an account; a longer one is hashed.
const longestSubject = 128

// groupsOf yields the sums that an account is part of: that of all persons for whom its caller
// asks, and that of all subjects of its issuer.
func groupsOf(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if caller, _, ofPerson := strings.Cut(name, ofPersonsMark); ofPerson && !yield(name[:len(caller)+len(ofPersonsMark)]) {
			return
		}
		if issuer := issuerOf(name); issuer != "" {
			yield(issuer)
		}
	}
}

// Room reports as a [*RoomError] if nothing may be put on record for a caller now. [Log.Append] reports
// the same, later.
func (l *Log) Room(caller string) error {
	a := l.writer.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.checkRoom(a.accountName(caller))
}

// Limit sets the bounds of callers from now on, by Bytes, LeastAge and Share of a
// retention. Until it is called no caller is bounded.
func (l *Log) Limit(ctx context.Context, keep Retention) error {
	w := l.writer
	return w.runHeld(ctx, func() error {
		if keep != w.accounts.keep { // else all is counted, and reading it again would keep the writer
			w.setLimits(keep)
		}
		return nil
	})
}

// setLimits sets the bounds. Only the writer's goroutine calls it.
func (w *writer) setLimits(keep Retention) {
	w.accounts.setLimits(keep, readStretches(w.reader, keep, w.options.Now()))
}

// accountName returns the account that a caller's records count toward: its own, or, where there is no
// room for another, the account of all such subjects of its issuer, or of all others.
func (a *accounts) accountName(caller string) string {
	if caller == "" || a.byName[caller] != nil {
		return caller
	}
	by, _, ofPerson := strings.Cut(caller, ofPersonsMark)
	switch issuer := issuerOf(caller); {
	case ofPerson && len(a.byName) >= mostAccounts/2:
		return ForPerson(by, Anyone)
	case issuer != "" && len(a.byName) >= mostAccounts/2:
		return issuer + "#"
	case len(a.byName) >= mostAccounts:
		return others
	}
	return caller
}

// countComing counts records that are about to be written for a caller, and returns the name of the account. If refusable is
// set, it refuses them once the account is at its bound, so that at most one call exceeds
// the bound.
func (a *accounts) countComing(caller string, weight int64, refusable bool) (name string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name = a.accountName(caller)
	if refusable {
		if err := a.checkRoom(name); err != nil {
			return "", err
		}
	}
	a.coming += weight
	a.forAccounts(name, func(one *account) { one.coming += weight })
	return name, nil
}

// giveBackComing gives back records that were not written, or are not known to be.
func (a *accounts) giveBackComing(c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endComing(c)
}

// endComing ends that a call is on its way.
func (a *accounts) endComing(c *call) {
	if c.taken {
		c.taken = false
		a.coming -= c.weight
		a.forAccounts(c.payer, func(one *account) { one.coming -= c.weight })
	}
}

// countWritten counts the records of calls in the active segment, and sets its content.
func (a *accounts) countWritten(calls []*call, content int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range calls {
		a.endComing(c)
		a.weight += c.weight
		a.forAccounts(c.payer, func(one *account) { one.open += c.weight })
	}
	a.active = content
}

// sealStretch makes a stretch of the active segment. Records on their way go to the next segment.
func (a *accounts) sealStretch(c *charges, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := c.toStretch(until, a.active)
	a.startActive(newCharges(), 0)
	if a.keep.LeastAge > 0 && s.content > 0 {
		a.addStretch(s)
	}
	a.deleteEmpty()
}

// recountActive replaces the counts of the active segment.
func (a *accounts) recountActive(c *charges, content int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.startActive(c, content)
}

func (a *accounts) startActive(c *charges, content int64) {
	for _, one := range a.byName {
		one.open = 0
	}
	for name, of := range c.byName {
		a.forAccounts(name, func(one *account) { one.open += of.weight })
	}
	a.weight, a.active = c.weight, content
}

// groupShare is the share of all subjects of one issuer together, or of all persons for whom one caller asks, unless one caller
// may have more. An issuer can name any number of subjects, but is one party, and must leave
// as much to others.
const groupShare = 0.5

// setLimits sets the bounds, and the content of the sealed segments.
func (a *accounts) setLimits(keep Retention, stretches []stretch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep, a.stretches, a.content = keep, nil, 0
	for _, one := range a.byName {
		one.kept = 0
	}
	for _, s := range stretches {
		a.addStretch(s)
	}
	a.deleteEmpty()
}

// addStretch adds the newest stretch.
func (a *accounts) addStretch(s stretch) {
	a.content += s.content
	for name, bytes := range s.byName {
		a.account(name).kept += bytes
	}
	if n := len(a.stretches); n > 0 && s.until.Sub(a.stretches[n-1].begun) < a.keep.LeastAge/stretchesKept {
		last := &a.stretches[n-1]
		last.until, last.content = s.until, last.content+s.content
		for name, bytes := range s.byName {
			last.byName[name] += bytes
		}
		return
	}
	a.stretches = append(a.stretches, s)
}

// dropAged drops stretches that retention may drop.
func (a *accounts) dropAged() {
	now, n := a.now(), 0
	for n < len(a.stretches) && a.stretches[n].until.Add(a.keep.LeastAge).Before(now) {
		a.content -= a.stretches[n].content
		for name, bytes := range a.stretches[n].byName {
			a.account(name).kept -= bytes
		}
		n++
	}
	if n > 0 {
		a.stretches = append([]stretch(nil), a.stretches[n:]...)
		a.deleteEmpty()
		a.aged()
	}
}

func (a *accounts) deleteEmpty() {
	for name, one := range a.byName {
		if *one == (account{}) {
			delete(a.byName, name)
		}
	}
}

func (a *accounts) account(name string) *account {
	one := a.byName[name]
	if one == nil {
		one = &account{}
		a.byName[name] = one
	}
	return one
}

// forAccounts calls do for the account with a name and for its groups. It does nothing if the name is empty.
func (a *accounts) forAccounts(name string, do func(*account)) {
	if name == "" {
		return
	}
	do(a.account(name))
	for group := range groupsOf(name) {
		if group != name {
			do(a.account(group))
		}
	}
}

// price returns how many bytes of content a unit of weight takes.
func price(content, weight int64) float64 {
	return min(max(1, float64(content-segmentBase)/float64(max(1, weight))), mostPrice)
}

// openPrice returns the price in the active segment.
func (a *accounts) openPrice() float64 {
	return price(a.active+firstWeight*firstPrice, a.weight+firstWeight)
}

func (a *accounts) usedBy(name string) int64 {
	one := a.byName[name]
	if one == nil {
		return 0
	}
	return one.kept + int64(float64(one.open+one.coming)*a.openPrice())
}

func (a *accounts) usedByAll() int64 {
	return a.content + a.active + int64(float64(a.coming)*a.openPrice())
}

// checkRoom refuses a caller that is at a bound. A record without a caller is checked against the bound of
// all together alone.
func (a *accounts) checkRoom(name string) error {
	if a.keep.LeastAge == 0 || a.keep.Bytes == 0 {
		return nil
	}
	a.dropAged()
	_, person, ofPerson := strings.Cut(name, ofPersonsMark)
	share, bound := a.keep.Share, BoundShare
	if ofPerson {
		share, bound = cmp.Or(a.keep.SharePerson, share), BoundPerson
	}
	if name != "" && !strings.HasSuffix(name, "#") && (!ofPerson || person != "") {
		if over := a.usedBy(name) - a.partOfBytes(share); over >= 0 {
			return a.refusal(bound, over, func(s *stretch) int64 { return s.byName[name] })
		}
	}
	for group := range groupsOf(name) {
		bound := BoundIssuer
		if strings.HasSuffix(group, ofPersonsMark) {
			bound = BoundShare
		}
		if over := a.usedBy(group) - a.partOfBytes(max(a.keep.Share, groupShare)); over >= 0 {
			return a.refusal(bound, over, func(s *stretch) int64 { return s.byName[group] })
		}
	}
	if over := a.usedByAll() - a.keep.Bytes; over >= 0 {
		return a.refusal(BoundAll, over, func(s *stretch) int64 { return s.content })
	}
	return nil
}

func (a *accounts) partOfBytes(share float64) int64 { return int64(share * float64(a.keep.Bytes)) }

// refusal returns the error of a bound, with the time until enough stretches are old enough. When the active segment will be
// dropped is not known yet.
func (a *accounts) refusal(bound Bound, over int64, of func(*stretch) int64) error {
	now := a.now()
	for i := range a.stretches {
		if over -= of(&a.stretches[i]); over < 0 {
			wait := a.stretches[i].until.Add(a.keep.LeastAge).Sub(now)
			return &RoomError{bound, min(max(time.Second, wait), mostRetry)}
		}
	}
	return &RoomError{bound, mostRetry}
}

// usage returns the sum of all accounts, and whether it is at its bound.
func (a *accounts) usage() (recent int64, full bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keep.LeastAge == 0 || a.keep.Bytes == 0 {
		return 0, false
	}
	a.dropAged()
	recent = a.usedByAll()
	return recent, recent >= a.keep.Bytes
}
