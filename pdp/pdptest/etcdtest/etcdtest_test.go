package etcdtest_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/pdptest/etcdtest"
)

func dial(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := etcdtest.Dial(endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func put(t *testing.T, client *clientv3.Client, value string) error {
	return putAs(t, client, "key", value)
}

func putAs(t *testing.T, client *clientv3.Client, key, value string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := client.Put(ctx, key, value)
	return err
}

// mustPut puts as soon as there is a leader again.
func mustPut(t *testing.T, client *clientv3.Client, value string) {
	t.Helper()
	etcdtest.Succeeds(t, "it is put", func() error { return put(t, client, value) })
}

func mustGet(t *testing.T, client *clientv3.Client, want string) {
	t.Helper()
	got, err := client.Get(t.Context(), "key")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != want {
		t.Fatalf("it is %v, not %s: %v", got, want, err)
	}
}

// What was answered outlives the leader and its place in the minority; what is done to the members takes effect.
func TestMembers(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	way := c.Client()
	client := dial(t, way.Endpoints()...)
	mustPut(t, client, "1")

	leader, term := c.Leader()
	c.Kill(leader)
	mustPut(t, client, "2")
	if _, after := c.Leader(); after <= term {
		t.Errorf("the term was %d, and is %d after the leader was killed", term, after)
	}
	c.Restart(leader)
	c.Settled()

	leader, term = c.Leader()
	refused := c.Refused()
	c.Isolate(leader)
	others := dial(t, append(way.Endpoints()[:leader:leader], way.Endpoints()[leader+1:]...)...)
	mustPut(t, others, "3")
	if now, after := c.Leader(); after <= term || now == leader || c.Refused() == refused {
		t.Errorf("the leader is cut off: it was %d in term %d, and is %d in term %d; %d connections were refused", leader, term, now, after, c.Refused()-refused)
	}
	alone := dial(t, way.Endpoints()[leader])
	if putAs(t, alone, "another key", "4") == nil { // what it was asked for it may do once it is back
		t.Error("the minority takes a value")
	}
	c.Join()
	c.Settled()
	mustGet(t, client, "3")

	way.Cut()
	if err := put(t, client, "5"); err == nil || way.Refused() == 0 {
		t.Errorf("a client that is cut off: %v, and %d connections were refused", err, way.Refused())
	}
	way.Heal()
	mustPut(t, client, "6")
	way.Hold()
	if err := put(t, client, "7"); err == nil {
		t.Error("a client whose answers are held is answered")
	}
	way.Heal()
	mustPut(t, client, "8")

	before := c.CopyOf()
	mustPut(t, client, "9")
	c.PutBack(before)
	mustGet(t, dial(t, way.Endpoints()...), "8")
}
