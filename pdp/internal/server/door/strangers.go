package door

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/server/auth"
)

// What everybody may read has a rate of its own, so that it takes little from callers: strangerTime of work costs as much
// as a request. So all strangers together have a quarter of a processor, and one address a twentieth.
var (
	oneStranger  = Rate{PerSecond: 200, Burst: 2000}
	allStrangers = Rate{PerSecond: 1000, Burst: 4000}
)

const strangerTime = 250 * time.Microsecond

// newStrangers makes the rate. All together are a caller without a name.
func newStrangers(now func() time.Time) *rates {
	return newRates(RateLimit{Rate: oneStranger, Callers: []CallerRate{{Rate: allStrangers}}}, now)
}

// Stranger lets in a request for a page that everybody may read, with any credential or Host. It takes no parameters.
func (d *Door) Stranger(c echo.Context) (address string, err error) {
	address = "address:" + auth.AddressOf(c.Request()).String()
	for _, bucket := range []string{address, ""} {
		if wait, ok := d.strangers.take(bucket); !ok {
			return "", TooMany("rate", wait, http.StatusTooManyRequests,
				"more is asked without a credential than is answered; ask again after Retry-After seconds")
		}
	}
	_, err = parameters(c, NoParameters)
	return address, err
}

// ChargeStranger makes the next requests of an address wait for the time that one took.
func (d *Door) ChargeStranger(address string, took time.Duration) {
	d.strangers.more(address, int(took/strangerTime))
	d.strangers.more("", int(took/strangerTime))
}
