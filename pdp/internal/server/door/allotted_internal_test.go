package door

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// allottedOf is what a request has whose context is given.
func allottedOf(o *allotments, ctx context.Context, each time.Duration) *allotted {
	a := &allotted{Context: ctx, of: o}
	a.begin(each)
	return a
}

// Whatever ends an allotted context, who asks and who waits learn the same as of any other context, and so do contexts
// made of it.
func TestAllottedEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		each time.Duration
		end  func(a *allotted, client context.CancelFunc)
		want error
	}{
		"late":        {time.Millisecond, func(*allotted, context.CancelFunc) {}, context.DeadlineExceeded},
		"late before": {0, func(*allotted, context.CancelFunc) {}, context.DeadlineExceeded},
		"left":        {time.Hour, func(a *allotted, _ context.CancelFunc) { a.leave() }, context.Canceled},
		"client gone": {time.Hour, func(_ *allotted, client context.CancelFunc) { client() }, context.Canceled},
	} {
		for _, waits := range []string{"before", "after", "by another"} {
			var o allotments
			client, goAway := context.WithCancel(t.Context())
			a := allottedOf(&o, client, test.each)
			var done <-chan struct{}
			switch waits {
			case "before":
				done = a.Done()
				test.end(a, goAway)
			case "after":
				test.end(a, goAway)
				done = a.Done()
			default:
				child, cancel := context.WithCancel(a)
				defer cancel()
				done = child.Done()
				test.end(a, goAway)
			}
			<-done
			if err := a.Err(); !errors.Is(err, test.want) || !errors.Is(context.Cause(a), test.want) {
				t.Errorf("%s, waited for %s: got %v and %v, want %v", name, waits, err, context.Cause(a), test.want)
			}
			a.leave() // again
			goAway()
			if err := a.Err(); !errors.Is(err, test.want) {
				t.Errorf("%s, waited for %s: it was %v, and is %v", name, waits, test.want, err)
			}
			if o.waited != 0 || o.running.after != nil && o.running.after != &o.running {
				t.Errorf("%s, waited for %s: something is left: %+v", name, waits, &o)
			}
		}
	}
}

// Who asks learns at once that the client has gone.
func TestAllottedAsksTheClient(t *testing.T) {
	t.Parallel()
	var o allotments
	client, goAway := context.WithCancel(t.Context())
	a := allottedOf(&o, client, time.Hour)
	defer a.leave()
	if a.Err() != nil {
		t.Fatal(a.Err())
	}
	goAway()
	if a.Err() != context.Canceled {
		t.Errorf("got %v", a.Err())
	}
}

func TestAllottedDeadline(t *testing.T) {
	t.Parallel()
	var o allotments
	sooner, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	of := func(ctx context.Context) time.Time { at, _ := ctx.Deadline(); return at }
	short, long := allottedOf(&o, sooner, time.Second), allottedOf(&o, sooner, time.Hour)
	defer short.leave()
	defer long.leave()
	if !of(short).Before(of(sooner)) || !of(long).Equal(of(sooner)) {
		t.Errorf("got %v and %v of %v", of(short), of(long), of(sooner))
	}
}

// However many there are, however long each has, and whoever waits: each ends, and by what was to end it.
func TestAllottedTogether(t *testing.T) {
	t.Parallel()
	var o allotments
	var all sync.WaitGroup
	for seed := range uint64(64) {
		all.Go(func() {
			g := rand.New(rand.NewPCG(seed, 25))
			for range 50 {
				client, goAway := context.WithCancel(t.Context())
				outer := allottedOf(&o, client, time.Hour)
				var a *allotted
				want := context.Canceled
				switch g.IntN(4) {
				case 0:
					want = context.DeadlineExceeded
					a = allottedOf(&o, outer, time.Duration(g.IntN(int(2*time.Millisecond))))
					<-a.Done()
				case 1:
					a = allottedOf(&o, outer, time.Hour)
					goAway()
				case 2:
					a = allottedOf(&o, outer, time.Hour)
					outer.leave()
					<-a.Done()
				default:
					a = allottedOf(&o, outer, time.Hour)
					a.leave()
				}
				if err := a.Err(); err != want {
					t.Errorf("got %v, want %v", err, want)
				}
				a.leave()
				outer.leave()
				goAway()
			}
		})
	}
	all.Wait()
	if o.waited != 0 || o.running.after != &o.running || o.running.before != &o.running {
		t.Errorf("something is left: %+v", &o)
	}
}
