package etcd

import (
	"fmt"
	"runtime"
	"testing"
)

// Keys without values take memory, too: a browser without a session can ask for any number of sessions that there are not.
func TestCacheOfNothing(t *testing.T) {
	c := newCache()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range 1_000_000 {
		key := fmt.Sprintf("s/%064x", n)
		c.get(key, 1, 1)
		c.keep(key, stored{at: 1})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := after.HeapAlloc - before.HeapAlloc; grown > 3*cacheHalf {
		t.Errorf("a cache of two times %d MiB takes %d MiB", cacheHalf>>20, grown>>20)
	}
	runtime.KeepAlive(c)
}
