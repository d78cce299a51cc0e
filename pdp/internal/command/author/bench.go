package author

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/latency"
)

// Bench measures how fast a bundle decides.
type Bench struct {
	Policies    string        `required:"" placeholder:"DIR" help:"The bundle to measure."`
	Requests    string        `placeholder:"FILE" help:"The file with requests in either shape, one on each line (NDJSON). - is standard input. Without the flag, bench uses the requests of the bundle's tests."`
	Tenant      string        `placeholder:"T" help:"The tenant of the requests in the file. A native request names its own."`
	Duration    time.Duration `default:"5s" placeholder:"D" help:"How long to measure. The default is ${default}. The warm-up before, and the measurement of the single policies after, take a fifth of this each, or as long as one round takes."`
	Concurrency int           `placeholder:"N" help:"How many requests run at once. The default is one for each core."`
	JSON        bool          `name:"json" help:"Print JSON, for programs."`
}

// Help ends the command's help.
func (Bench) Help() string {
	return "bench decides requests as eval and serve do, without HTTP and without a decision log. " +
		"Reading the JSON of the requests is not measured.\n\n" +
		"Exit codes: 0, or 2 if it cannot run: the bundle does not load, a request is malformed, or there is no request."
}

// Run measures, and prints the results.
func (c Bench) Run(s cli.Streams) error {
	c.Concurrency = cmp.Or(c.Concurrency, runtime.GOMAXPROCS(0))
	if c.Duration <= 0 || c.Concurrency < 0 {
		return errors.New("--duration and --concurrency must be greater than 0; " +
			"try --duration 5s, and leave --concurrency out")
	}
	bundle, err := bundledir.Load(c.Policies, s)
	if err != nil {
		return err
	}
	asked, err := c.asked(s)
	if err != nil {
		return err
	}
	b := bench{decider: pdp.Of(bundle, pdp.Options{}), outcomes: outcomes{Reasons: map[string]int{}}}
	if err := b.decideEach(asked); err != nil {
		return err
	}
	if err := b.measure(c); err != nil {
		return fmt.Errorf("could not decide: %w; try policy-service check on the bundle", err)
	}
	report := b.report(bundle, c)
	if c.JSON {
		return s.PrintJSON(report)
	}
	report.print(s, c.Policies)
	return nil
}

// bench has the requests that are measured, and the results.
type bench struct {
	decider  *pdp.PDP
	calls    []pdp.Call
	outcomes outcomes
	took     time.Duration
	times    *latency.Histogram
	memory   [2]runtime.MemStats // before and after
	costs    []pdp.PolicyCost
}

// outcomes count the answers, one for each request.
type outcomes struct {
	Allow int `json:"allow"`
	// Obliging are the allows that come with obligations.
	Obliging int `json:"allow_with_obligations"`
	Deny     int `json:"deny"`
	// Possible and Impossible are the answers to requests with unknown values.
	Possible   int            `json:"possible,omitzero"`
	Impossible int            `json:"impossible,omitzero"`
	Reasons    map[string]int `json:"reasons"`
}

// decideEach answers each request once, so that a request without an answer is found before anything is measured.
func (b *bench) decideEach(all []askedRequest) error {
	for _, a := range all {
		d, err := b.decider.Evaluate(context.Background(), a.call)
		if err != nil {
			return fmt.Errorf("%s: %w", a.place, undecided(err, a.call.Request))
		}
		b.calls = append(b.calls, a.call)
		switch {
		case d.Possible == evaluation.Possible:
			b.outcomes.Possible++
		case d.Possible == evaluation.Impossible:
			b.outcomes.Impossible++
		case !d.Allow:
			b.outcomes.Deny++
		case len(d.Obligations) > 0:
			b.outcomes.Obliging++
			fallthrough
		default:
			b.outcomes.Allow++
		}
		if d.Reason != "" {
			b.outcomes.Reasons[string(d.Reason)]++
		}
	}
	return nil
}

// measure has three steps. The first brings caches, branch predictors and the heap into their usual state. The second
// measures decisions. The third measures each policy alone: during the second it would slow decisions down.
func (b *bench) measure(c Bench) error {
	aside := c.Duration / 5
	if _, _, err := b.drive(aside, c.Concurrency); err != nil {
		return err
	}
	runtime.GC()
	runtime.ReadMemStats(&b.memory[0])
	var err error
	if b.times, b.took, err = b.drive(c.Duration, c.Concurrency); err != nil {
		return err
	}
	runtime.ReadMemStats(&b.memory[1])

	ctx, cancel := context.WithTimeout(context.Background(), aside)
	defer cancel()
	b.costs, err = b.decider.Costs(ctx, sample(b.calls, mostCosted))
	return err
}

// mostCosted is with how many requests at most the policies are evaluated. One round may take long, and always runs to
// its end.
const mostCosted = 1000

// sample takes n of many, evenly.
func sample[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	some := make([]T, n)
	for i := range some {
		some[i] = all[i*len(all)/n]
	}
	return some
}

// drive decides for a while, with several workers at once. Each worker begins with another request.
func (b *bench) drive(d time.Duration, workers int) (*latency.Histogram, time.Duration, error) {
	return latency.Measure(d, workers, func(worker int) func() error {
		next := worker * len(b.calls) / workers
		return func() error {
			call := b.calls[next%len(b.calls)]
			next++
			_, err := b.decider.Evaluate(context.Background(), call)
			return err
		}
	})
}
