// Package door lets requests in. Start with [Door.Admit]: everything that happens to a request before its route looks
// at it stands there once, in one order. A route declares its demands in a [Need].
//
// A request that may not enter gets a [Problem], and so does every other request that gets no answer of its own.
// [Door.Fail] is where errors become problems.
//
// The cost of all requests together is limited here as well: how many there are at once ([Gate], [Places], [Shift]),
// how often a caller may ask ([LoadConfig]), and how many connections there are ([listener.Connections]). No request is refused
// before its caller is known, and each caller has a share that no other caller can take.
//
// The package knows no question and no answer: it imports neither the PDP nor the decision log. Its [Options] have
// functions that ask them.
package door

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/listener"
)

// Authenticator says which caller a request comes from. An error that is an [*auth.Refusal] is answered with 401 or
// 403; any other is a 500.
type Authenticator interface {
	Authenticate(*http.Request) (auth.Caller, error)
}

// Meters counts refusals at the door.
type Meters interface {
	// Problem counts a problem by its status; bound says that the request exceeds a bound.
	Problem(status int, bound bool)
	// Limit counts a refusal by the limit that was in the way.
	Limit(limit string)
	// Undecided counts a question that was refused because no decision came, by one of a few words.
	Undecided(reason string)
	// Credential counts a credential that is not good.
	Credential(kind auth.Credential)
}

// Options of a Door. All of them must be set.
type Options struct {
	Limits evaluation.Limits
	Load   LoadConfig
	Now    func() time.Time // of rates, page tokens, signed metadata and elicitations
	Log    *slog.Logger
	Meters Meters
	// LogContext is the context of a log line about a request.
	LogContext func(*http.Request) context.Context
	// Callers is the authenticator of the request that a context belongs to; with any other context it is the one for
	// new requests. They differ while a request lasts longer than the configuration that it began with.
	Callers func(context.Context) Authenticator
	// HasTenant reports whether there is a tenant of this legal name. The error says why that is not known.
	HasTenant func(name string) (bool, error)
	// Room is why nothing more of a caller can be put on record now; nil if there is room.
	Room func(*auth.Caller) error
	// Explain is the problem of an error that the door does not know; nil if the error is a failure of the service.
	Explain func(err error, shape evaluation.Shape) *Problem
}

// Door is the one way in. Make it with [New].
type Door struct {
	Options Options
	// Connections belong to the server behind whose listener the door is.
	Connections *listener.Connections
	// Short limits the short work that goes on at once.
	Short *Gate
	// Long limits the work that may keep a processor for long: batches, searches, and requests with large bodies. As
	// many of them go on at once as there are processors but one, and callers take turns even in the middle of a
	// request: Go gives each goroutine as much time as any other, so one caller's many would leave little to all
	// others.
	Long *Gate
	// Large are the places of large bodies.
	Large *Places
	// Stopping is set when the server begins to stop.
	Stopping atomic.Bool

	strange *Places // of large forms whose callers are not known yet
	rates   *rates
	// strangers are those who need no credential: see [Door.Stranger].
	strangers *rates
	allotted  allotments
}

// New makes a Door.
func New(o Options) *Door {
	d := &Door{
		Options: o,
		Short:   &Gate{Limit: int(o.Load.MaxConcurrent), Patience: o.Load.QueueTime},
		Long:    &Gate{Limit: max(1, runtime.GOMAXPROCS(0)-1), Queue: DecisionQueue, Patience: o.Load.RequestTime},
		Large:   &Places{Gate: Gate{Limit: MostLargeBodies, Share: LargeOfOne, Queue: DecisionQueue}},
		strange: &Places{Gate: Gate{Limit: mostPages, Share: pagesOfOne, Queue: LongQueue}},
		rates:   newRates(o.Load.RateLimit, o.Now),

		strangers: newStrangers(o.Now),
	}
	d.Connections = listener.NewConnections(int(o.Load.MaxConnections), func() { d.Refused("connections") })
	return d
}

// Busy reports whether any request is being worked on.
func (d *Door) Busy() bool { return d.Short.Inside()+d.Long.Inside() > 0 }

// Within is the time that a request has for its answer once it was let in. It ends as well when the client goes away.
func (d *Door) Within(c echo.Context) (context.Context, context.CancelFunc) {
	a := d.allot(c)
	return a, a.leave
}

// Charge makes a caller's next requests wait for the further cost of this one, in requests.
func (d *Door) Charge(caller auth.Caller, requests int) { d.rates.more(caller.Name, requests) }

// examinedForOne is how many candidates of a search, or records of the log, cost as much as one request.
const examinedForOne = 1000

// ChargeExamined is [Door.Charge] for so many candidates or records that were looked at. A request that reads the whole
// log, such as an export, is not charged for the records that it reads: it costs its caller one request. There are few places for
// such requests, and they take turns with other readers, so no number of them can crowd out others.
func (d *Door) ChargeExamined(caller auth.Caller, examined int) {
	d.Charge(caller, examined/examinedForOne)
}
