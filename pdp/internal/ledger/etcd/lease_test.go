package etcd_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/pdptest/etcdtest"
)

// Values that are kept for a while hang on one lease of etcd's, which lasts for as long after the last of them was put. Once the
// minute of the lease is over, whatever this process knows of time, the next value is put under another one. What etcd removes is
// there to no reader, may be put again, and is no news.
func TestKeptForAWhile(t *testing.T) {
	t.Parallel()
	all, client, prefix := open(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), etcdtest.Patience)
	defer cancel()
	const keep = 170*time.Second + time.Millisecond
	var mu sync.Mutex
	news := map[string]bool{}
	defer all[1].Watch(func(keys []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			news[key] = true
		}
	})()
	put := func(key string, keep time.Duration) error {
		_, err := all[0].Write(ledger.Transaction{If: map[string]uint64{key: 0}, Puts: map[string][]byte{key: []byte("x")}, KeepFor: keep})
		return err
	}
	leaseOf := func(key string) (id clientv3.LeaseID) {
		got, err := client.Get(ctx, prefix+key)
		must(t, err)
		for _, kv := range got.Kvs {
			id = clientv3.LeaseID(kv.Lease)
		}
		return id
	}
	endMinute := func() {
		got, err := client.Get(ctx, prefix+"lease/", clientv3.WithPrefix())
		must(t, err)
		if len(got.Kvs) != 1 {
			t.Fatalf("there are %d leases for a minute", len(got.Kvs))
		}
		minute, err := client.TimeToLive(ctx, clientv3.LeaseID(got.Kvs[0].Lease))
		must(t, err)
		if minute.GrantedTTL != 60 {
			t.Errorf("a lease is used for %d seconds", minute.GrantedTTL)
		}
		_, err = client.Revoke(ctx, minute.ID)
		must(t, err)
	}
	must(t, put("one", keep))
	must(t, put("two", keep))
	must(t, put("for good", 0))
	first := leaseOf("v/one")
	is, err := client.TimeToLive(ctx, first)
	must(t, err)
	if is.GrantedTTL != 60+171 || leaseOf("v/two") != first || leaseOf("v/for good") != 0 || leaseOf("rev") != 0 {
		t.Errorf("the lease is for %d seconds; it has %d, %d, %d and %d", is.GrantedTTL, first, leaseOf("v/two"), leaseOf("v/for good"), leaseOf("rev"))
	}
	if err := put("one", keep); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("what is there is put again: %v", err)
	}
	must(t, put("three", keep))
	if leaseOf("v/three") != first {
		t.Error("a conflict takes another lease")
	}
	endMinute()
	if err := put("four", keep); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("after the minute a value is put under the same lease: %v", err)
	}
	must(t, put("four", keep))
	if leaseOf("v/four") == first {
		t.Error("there is no other lease")
	}
	etcdtest.Eventually(t, "the news come", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return news["four"]
	})
	mu.Lock()
	clear(news)
	mu.Unlock()
	_, err = client.Revoke(ctx, first)
	must(t, err)
	for _, e := range all {
		etcdtest.Eventually(t, "it is gone", func() bool {
			gone := false
			must(t, e.View(func(s ledger.State) error {
				_, meta, err := s.Get("one")
				gone = meta.Revision == 0
				return err
			}))
			return gone
		})
	}
	must(t, put("one", keep))
	etcdtest.Eventually(t, "it is news again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return news["one"]
	})
	mu.Lock()
	defer mu.Unlock()
	if news["two"] || news["three"] {
		t.Errorf("what etcd removes is news: %v", news)
	}
}
