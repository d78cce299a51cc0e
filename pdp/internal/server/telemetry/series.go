package telemetry

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// series are the sets of attributes that an instrument is used with. Each set is made once: to
// make one is to sort and to hash it, and a request has no time for that. There must be few keys.
type series[K comparable] struct {
	attributes func(K) []attribute.KeyValue
	made       sync.Map // of attributeSet by K
}

// attributeSet is a set of attributes in the forms that instruments take, with the count of a [Tally].
type attributeSet struct {
	counted atomic.Int64
	observe []metric.ObserveOption
	record  []metric.RecordOption
}

func (s *series[K]) of(key K) *attributeSet {
	if made, ok := s.made.Load(key); ok {
		return made.(*attributeSet)
	}
	set := metric.WithAttributeSet(attribute.NewSet(s.attributes(key)...))
	made, _ := s.made.LoadOrStore(key, &attributeSet{observe: []metric.ObserveOption{set}, record: []metric.RecordOption{set}})
	return made.(*attributeSet)
}

// Tally counts things of several kinds. It counts by itself, and its instrument is told when metrics are read: to tell it
// each time costs a decision as much as to find its policies.
type Tally[K comparable] struct{ series series[K] }

// Count counts one thing of a kind.
func (c *Tally[K]) Count(kind K) { c.series.of(kind).counted.Add(1) }

// begin has kinds there from the start. What appears only with its first event has, for
// Prometheus, not increased by it, and an event that stays alone would raise no alert.
func (c *Tally[K]) begin(kinds ...K) {
	for _, kind := range kinds {
		c.series.of(kind)
	}
}

// observe gives an instrument the counts.
func (c *Tally[K]) observe(_ context.Context, to metric.Int64Observer) error {
	c.series.made.Range(func(_, made any) bool {
		set := made.(*attributeSet)
		to.Observe(set.counted.Load(), set.observe...)
		return true
	})
	return nil
}

// histogram is how long things of several kinds take.
type histogram[K comparable] struct {
	instrument metric.Float64Histogram
	series     series[K]
}

func (h *histogram[K]) record(ctx context.Context, v float64, kind K) {
	h.instrument.Record(ctx, v, h.series.of(kind).record...)
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
	named map[string]bool
}

const (
	// maxTenantsNamed is how many tenants are counted by their names.
	maxTenantsNamed = 100
	// otherTenants is the name of all the others.
	otherTenants = "other"
)

// name is the name under which a tenant of the bundle is counted.
func (t *tenantNames) name(tenant string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.named[tenant]:
		return tenant
	case len(t.named) >= maxTenantsNamed:
		return otherTenants
	case t.named == nil:
		t.named = map[string]bool{}
	}
	t.named[tenant] = true
	return tenant
}
