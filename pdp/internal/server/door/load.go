package door

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// LoadConfig limits the cost of all requests together. [Options.Limits] limit that of one. The zero
// value limits nothing but the number of connections.
type LoadConfig struct {
	// MaxConcurrent is how many requests are worked on at once; 0 is no limit. Batches, searches and large bodies do
	// not count: they take turns. A request beyond the limit waits for QueueTime, and is refused then.
	MaxConcurrent int64 `yaml:"max_concurrent" min:"1" max:"1048576" doc:"How many requests the service works on at once. Batches, searches and large bodies do not count: they take turns. Further requests wait for queue_time and then get 503 with Retry-After. No limit unless given."`
	// QueueTime is at most a second; the default is 100 ms.
	QueueTime time.Duration `yaml:"queue_time" default:"100ms" min:"1ms" max:"1s" doc:"How long a request beyond max_concurrent waits for a place."`
	// RequestTime is how long a request may take once it has arrived. The default, and the most, is 10 s: less than a
	// stop waits, so that a stop never cuts a decision off.
	RequestTime time.Duration `yaml:"request_time" default:"10s" min:"1ms" max:"10s" doc:"How long a request may take once it has arrived."`
	// MaxConnections is how many connections there are at once. The default is 4,096, or fewer if the process may not
	// open so many.
	MaxConnections int64 `yaml:"max_connections" min:"1" max:"1048576" doc:"How many connections may be open at once. 4096 unless given, or fewer if the process may not open so many files."`
	// RateLimit is how often one caller may ask; the zero value is no limit.
	RateLimit RateLimit `yaml:"rate_limit"`
}

// RateLimit limits how often a caller may ask. Each item of a batch counts as one request, and so do each 1,000
// candidates of a search, or 1,000 records that a page of the log looks at.
type RateLimit struct {
	Rate `yaml:",inline"`
	// Callers have a rate of their own instead of the rate for all.
	Callers []CallerRate `yaml:"callers" doc:"Callers that have a rate of their own instead of the rate for all."`
}

// Rate is a token bucket; the zero value is no limit.
type Rate struct {
	// PerSecond is how many requests a second there are in the long run.
	PerSecond int64 `yaml:"per_second" min:"1" max:"1048576" doc:"How many requests a second one caller may make in the long run. An item of a batch counts as a request. Required in callers; elsewhere no limit unless given."`
	// Burst is how many may come at once; the default is PerSecond.
	Burst int64 `yaml:"burst" min:"1" max:"1048576" doc:"How many requests may come at once. As many as per_second unless given."`
}

// CallerRate is the rate of one caller, by its name in records and policies. jwt:ISSUER without a subject gives the
// rate to each subject of that issuer.
type CallerRate struct {
	Caller string `yaml:"caller" required:"yes" doc:"The caller, as records name it: key:NAME, jwt:ISSUER#SUBJECT or mtls:SAN. jwt:ISSUER gives the rate to each subject of the issuer."`
	Rate   `yaml:",inline"`
}

// Check adds each mistake besides the bounds of each key, with the path of the key.
func (r RateLimit) Check(add func(path string, err error)) {
	burst := func(path string, r Rate) {
		if r.Burst > 0 && r.PerSecond == 0 {
			add(path, fmt.Errorf("%s has a burst and no per_second; write both, or leave both out", path))
		}
	}
	burst("rate_limit", r.Rate)
	for n := range r.Callers {
		path := fmt.Sprintf("rate_limit.callers[%d]", n)
		if err := r.checkCaller(n); err != nil {
			add(path, fmt.Errorf("%s: %w", path, err))
		}
	}
}

func (r RateLimit) checkCaller(n int) error {
	c := r.Callers[n]
	kind, name, _ := strings.Cut(c.Caller, ":")
	switch {
	case !slices.Contains([]string{"key", "jwt", "mtls"}, kind) || name == "":
		return errors.New("caller is none; write key:NAME, jwt:ISSUER, jwt:ISSUER#SUBJECT or mtls:SAN")
	case slices.ContainsFunc(r.Callers[:n], func(before CallerRate) bool { return before.Caller == c.Caller }):
		return errors.New("one before has the same caller; delete one of them")
	case c.PerSecond == 0:
		return errors.New("per_second is missing; write how many requests a second this caller may make")
	}
	return nil
}
