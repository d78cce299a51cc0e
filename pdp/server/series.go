package server

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// series are the attributes that an instrument is used with, by what they say. Each set is
// made once: to make one is to sort and to hash it, and a request has no time for that.
// Whoever makes a key sees to it that there are few.
type series[K comparable] struct {
	attributes func(K) []attribute.KeyValue
	mu         sync.Mutex // of who adds one
	made       atomic.Pointer[map[K]options]
}

// options are a set of attributes in the forms that instruments take.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func (s *series[K]) of(key K) options {
	if made := s.made.Load(); made != nil {
		if o, ok := (*made)[key]; ok {
			return o
		}
	}
	return s.make(key)
}

func (s *series[K]) make(key K) options {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := metric.WithAttributeSet(attribute.NewSet(s.attributes(key)...))
	o := options{[]metric.AddOption{set}, []metric.RecordOption{set}}
	next := map[K]options{key: o}
	if made := s.made.Load(); made != nil {
		maps.Copy(next, *made)
	}
	s.made.Store(&next) // readers have the map before, which nobody changes
	return o
}

// tally counts things of several kinds.
type tally[K comparable] struct {
	instrument metric.Int64Counter
	series     series[K]
}

func (c *tally[K]) add(ctx context.Context, n int64, key K) {
	c.instrument.Add(ctx, n, c.series.of(key).add...)
}

// begin has kinds there from the start. What appears only with its first event has, for
// Prometheus, not increased by it: nobody would be told of an event that stays alone.
func (c *tally[K]) begin(keys ...K) {
	for _, key := range keys {
		c.add(context.Background(), 0, key)
	}
}

// histogram is how long things of several kinds take.
type histogram[K comparable] struct {
	instrument metric.Float64Histogram
	series     series[K]
}

func (h *histogram[K]) record(ctx context.Context, v float64, key K) {
	h.instrument.Record(ctx, v, h.series.of(key).record...)
}

// named is a series with one attribute.
func named[K ~string](name string) func(K) []attribute.KeyValue {
	return func(value K) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String(name, string(value))}
	}
}

// tenantNames bound how many tenants are told apart, over the life of the process: tenants
// come and go with bundles, and what was counted once is kept.
type tenantNames struct {
	mu    sync.Mutex
	named atomic.Pointer[map[string]bool]
}

const (
	// maxTenantsNamed is how many tenants are counted by their names.
	maxTenantsNamed = 100
	// otherTenants is the name of all the others.
	otherTenants = "other"
)

// name is what a tenant of the bundle is counted as.
func (t *tenantNames) name(tenant string) string {
	if named := t.named.Load(); named != nil {
		if (*named)[tenant] {
			return tenant
		}
		if len(*named) >= maxTenantsNamed {
			return otherTenants
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	next := map[string]bool{tenant: true}
	if named := t.named.Load(); named != nil {
		if len(*named) >= maxTenantsNamed && !(*named)[tenant] {
			return otherTenants
		}
		maps.Copy(next, *named)
	}
	t.named.Store(&next)
	return tenant
}
