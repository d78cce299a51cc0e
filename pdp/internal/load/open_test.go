package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/server/floor"
	"policy-service/pdp/pdptest/night"
)

// slowly is a server that takes so long for each answer, and notes when it was asked.
type slowly struct {
	takes time.Duration
	mu    sync.Mutex
	asked []time.Time
}

func (s *slowly) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, time.Now())
	s.mu.Unlock()
	<-time.After(s.takes)
	_, _ = w.Write(floor.Answer)
}

func (s *slowly) when() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *slowly) connect(t *testing.T, l load) *client {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := dial(target{addr: strings.TrimPrefix(server.URL, "http://")}, l, []exchange{newExchange("127.0.0.1", "/", "", "{}", floor.Answer)})
	if err != nil {
		t.Fatal(err)
	}
	ends(t, c.close)
	return c
}

// At a rate, as much is asked of a slow server as of a fast one, and nothing before its time.
func TestRateIsKept(t *testing.T) {
	night.Measures(t)
	const rate, d = 500, 200 * time.Millisecond
	for _, connections := range []int{1, 16} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			server := slowly{}
			c := server.connect(t, load{connections, rate})
			start := time.Now()
			times, took, err := c.drive(t.Context(), d)
			asked := server.when()
			if err != nil || times.Count() != 100 || len(asked) != 100 {
				t.Fatalf("%d times of %d requests, %v; want 100", times.Count(), len(asked), err)
			}
			if last := 99 * time.Second / rate; took < last {
				t.Errorf("all took %v, and the last is due after %v", took, last)
			}
			for n, at := range asked { // in order: each connection sends the next request that is due
				if due := start.Add(time.Duration(n) * time.Second / rate); connections == 1 && at.Before(due) {
					t.Errorf("request %d came %v before its time", n, due.Sub(at))
				}
			}
		})
	}
}

// A request that waits because the one before is not answered yet has waited for the server. The clock of a closed load
// begins when it is sent: it sees the time of an answer, and asks less.
func TestWaitingIsTimed(t *testing.T) {
	night.Measures(t)
	const each = 10 * time.Millisecond
	server := slowly{takes: each}
	open, _, err := server.connect(t, load{1, 1000}).drive(t.Context(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	// Request n, from 0, is due after n ms and answered after 10 (n+1) at the earliest.
	if open.Count() != 50 || open.Quantile(.5) < 25*each-24*time.Millisecond || open.Max() < 50*each-49*time.Millisecond {
		t.Errorf("%d requests, p50 %v, max %v", open.Count(), open.Quantile(.5), open.Max())
	}
	closed, took, err := server.connect(t, load{connections: 1}).drive(t.Context(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if most := uint64(took / each); closed.Count() < 1 || closed.Count() > most {
		t.Errorf("%d requests in %v, one after the other", closed.Count(), took)
	}
}

// A load that lasts until something is done ends then, and tells of an error of either.
func TestAskedDuring(t *testing.T) {
	t.Parallel()
	server := slowly{}
	c := server.connect(t, load{4, 1000})
	asked := func() int { return len(server.when()) }
	until := func(n int, err error) func() error {
		return func() error {
			return errors.Join(poll(t.Context(), patience, func() (bool, error) { return asked() >= n, nil }), err)
		}
	}
	times, took, err := c.driveDuring(t.Context(), until(50, nil))
	if err != nil || times.Count() < 50 || times.Count() != uint64(asked()) || took >= patience {
		t.Errorf("%d of %d requests in %v, %v", times.Count(), asked(), took, err)
	}
	if _, _, err := c.driveDuring(t.Context(), until(0, errors.New("not done"))); err == nil || err.Error() != "not done" {
		t.Errorf("the error is %v", err)
	}
	c.exchanges[0].answer = []byte("another")
	if _, _, err := c.driveDuring(t.Context(), until(asked()+1, nil)); err == nil || !strings.Contains(err.Error(), "is right") {
		t.Errorf("after a wrong answer, the error is %v", err)
	}
}
