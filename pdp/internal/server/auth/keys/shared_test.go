package keys

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/etcd"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/etcdtest"
)

// sharing are replicas and commands of one cluster.
type sharing struct {
	t      *testing.T
	prefix string
	client *clientv3.Client // of a writer to etcd
	c      *clock.Clock
}

func share(t *testing.T) *sharing {
	t.Parallel()
	client, err := etcdtest.Dial(etcdtest.One(t)...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return &sharing{t, "/" + rand.Text() + "/", client, clock.New()} // a prefix for each run of a test
}

func (s *sharing) options(endpoints ...string) Shared {
	return s.optionsWithin(etcdtest.Patience, endpoints...)
}

// optionsWithin are those of a replica each of whose calls of etcd may take so long.
func (s *sharing) optionsWithin(timeout time.Duration, endpoints ...string) Shared {
	client, err := etcdtest.Dial(endpoints...)
	must(s.t, err)
	s.t.Cleanup(func() { _ = client.Close() })
	return Shared{
		Engine: etcd.New(etcd.Options{Client: client, Prefix: s.prefix, Errors: SharedErrors(), Timeout: timeout, Pulse: true}),
		Key:    []byte("the key of the approvals, which all replicas have"),
		Stale:  30 * time.Second, Now: s.c.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

func (s *sharing) open(o Shared) *Keys {
	s.t.Helper()
	k, err := OpenShared(s.t.Context(), o)
	must(s.t, err)
	s.t.Cleanup(func() { must(s.t, k.Close()) })
	return k
}

// command is what a command line opens.
func (s *sharing) command() *Keys {
	s.t.Helper()
	return s.open(s.options(etcdtest.One(s.t)...))
}

// replica reads again whenever something has changed, and its log vouches for the keys.
func (s *sharing) replica(o Shared) (k *Keys, log *[]Event) {
	s.t.Helper()
	k, log = s.open(o), new([]Event)
	must(s.t, k.Follow(OnRecord{}, nil, func(_ uint64, all []Event) error { *log = append(*log, all...); return nil }))
	s.run(k)
	return k, log
}

// run has a replica read again until the test ends.
func (s *sharing) run(k *Keys) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	s.t.Cleanup(func() { cancel(); <-done })
}

func (s *sharing) eventually(what string, is func() bool) {
	s.t.Helper()
	etcdtest.Eventually(s.t, what, is)
}

func finds(k *Keys, secret string) bool { _, found := find(k, secret); return found }

// What a command does counts at each replica, and each has it on record once.
func TestKeysOfACluster(t *testing.T) {
	s := share(t)
	a, logA := s.replica(s.options(etcdtest.One(t)...))
	b, logB := s.replica(s.options(etcdtest.One(t)...))
	command := s.command()
	if a.Configured() {
		t.Error("configured before there was a key")
	}
	secret := add(t, command, "pep")
	s.eventually("the key counts", func() bool { return finds(a, secret) && finds(b, secret) })
	if _, err := s.command().Add(Spec{Name: "pep"}); err == nil {
		t.Error("a name was used again")
	}
	renewed, err := s.command().Renew(Renewal{Name: "pep", Overlap: time.Hour})
	must(t, err)
	s.eventually("both secrets count", func() bool { return finds(a, secret) && finds(a, renewed) && finds(b, renewed) })
	must(t, s.command().Revoke("pep"))
	s.eventually("no secret counts", func() bool { return !finds(a, secret) && !finds(a, renewed) && !finds(b, secret) && !finds(b, renewed) })
	if err := s.command().Revoke("nobody"); err == nil {
		t.Error("a key that there is not was revoked")
	}
	if list := s.command().List(); len(list) != 2 || list[0].Renews != "" || list[1].Renews != list[0].ID || !list[1].forGood {
		t.Errorf("the list is %+v", list)
	}
	must(t, a.refresh())
	must(t, b.refresh())
	for _, log := range []*[]Event{logA, logB} {
		a.mu.Lock()
		b.mu.Lock()
		var changes []Change
		for _, e := range *log {
			changes = append(changes, e.Change)
		}
		if changes[0] != Added || changes[len(changes)-1] != Revoked {
			t.Errorf("on record are %v", changes)
		}
		a.mu.Unlock()
		b.mu.Unlock()
	}
}

// Of commands at once none loses what another did.
func TestKeysAddedAtOnce(t *testing.T) {
	s := share(t)
	names := []string{"a", "b", "c", "d"}
	secrets := make(chan string, len(names))
	for _, name := range names {
		k := s.command()
		go func() {
			secret, err := k.Add(Spec{Name: name})
			if err != nil {
				t.Error(err)
			}
			secrets <- secret
		}()
	}
	var all []string
	for range names {
		all = append(all, <-secrets)
	}
	k := s.command()
	for _, secret := range all {
		if !finds(k, secret) {
			t.Errorf("a key that was printed is lost")
		}
	}
}

// A writer to etcd that has not the key of the approvals puts nothing in force: not an older value, not one of another key,
// and not what it took away. It takes away, and opens no door by that.
func TestWriterToEtcd(t *testing.T) {
	s := share(t)
	k, _ := s.replica(s.options(etcdtest.One(t)...))
	secret, other := add(t, s.command(), "pep"), add(t, s.command(), "other")
	s.eventually("the keys count", func() bool { return finds(k, secret) && finds(k, other) })
	at := s.prefix + "v/" + prefixKeys + auth.KeyID(secret)
	had, err := s.client.Get(t.Context(), at)
	must(t, err)
	made := had.Kvs[0]
	if made.Version != 2 {
		t.Fatalf("the key was written %d times", made.Version)
	}
	first, err := s.client.Get(t.Context(), at, clientv3.WithRev(made.CreateRevision))
	must(t, err)
	must(t, s.command().Revoke("pep"))
	s.eventually("it is revoked", func() bool { return !finds(k, secret) })
	revoked, err := s.client.Get(t.Context(), at)
	must(t, err)

	put := func(values ...string) {
		t.Helper()
		for _, value := range values {
			_, err := s.client.Put(t.Context(), at, value)
			must(t, err)
		}
		must(t, k.refresh())
		if finds(k, secret) {
			t.Errorf("a key that was revoked is in force after %d writes", len(values))
		}
		if !finds(k, other) {
			t.Error("the other key is not in force")
		}
		if again := s.command(); finds(again, secret) || !finds(again, other) {
			t.Error("a process that starts now takes it")
		}
	}
	take := func() { _, err := s.client.Delete(t.Context(), at); must(t, err) }
	put(string(made.Value))
	if k.Refused() != 1 {
		t.Errorf("%d keys are refused, and one is damaged", k.Refused())
	}
	take()
	put(string(first.Kvs[0].Value))
	put(string(made.Value))
	take()
	put(string(first.Kvs[0].Value), string(made.Value), string(revoked.Kvs[0].Value))
	put("garbage")

	_, err = s.client.Delete(t.Context(), s.prefix, clientv3.WithPrefix())
	must(t, err)
	if err := k.refresh(); !errors.Is(err, etcd.ErrRestored) { // transactions that were known are gone
		t.Errorf("without any value got %v", err)
	}
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8180/", nil)
	r.RemoteAddr = "127.0.0.1:1"
	if _, err := (&auth.Authenticator{Keys: k}).Authenticate(r); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("without keys got %v", err)
	}
	if finds(s.command(), secret) {
		t.Error("a process that starts then takes a key that was revoked")
	}
}

// A command that ended between its two writes left a key that grants nothing, and whose name is free.
func TestKeyWrittenAndNotPutInForce(t *testing.T) {
	s := share(t)
	k := s.command()
	store := k.store.(*cluster)
	var secret string
	ended := errors.New("the command ended")
	must(t, store.values.Update(t.Context(), func(c *ledger.ValuesChange) {
		file := document{}
		secret = k.make(&file, Info{Name: "pep", Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Decide}}}, 0)
		follows(c, "", "its change")
		sharedKey{storedKey: file.Keys[0], Order: 1}.replace(c)
	}))
	if again := s.command(); finds(again, secret) || len(again.List()) != 0 {
		t.Error("the key is in force")
	}
	if got := add(t, s.command(), "pep"); !finds(s.command(), got) || finds(s.command(), secret) {
		t.Error(ended)
	}
	if got, err := s.client.Get(t.Context(), s.prefix+"v/"+prefixKeys+auth.KeyID(secret)); err != nil || got.Count != 0 {
		t.Errorf("it is still there: %v", err)
	}
}

// An etcd of before the revocation is put back: each log that has it on record refuses the key.
func TestRevokedKeyOfARestoredEtcd(t *testing.T) {
	s := share(t)
	known := OnRecord{}
	secret := add(t, s.command(), "pep")
	before := s.command()
	must(t, before.Follow(known, nil, func(uint64, []Event) error { return nil }))
	known.Revoke(auth.KeyID(secret), s.c.Now())
	k := s.command()
	var events []Event
	must(t, k.Follow(known, nil, func(_ uint64, all []Event) error { events = append(events, all...); return nil }))
	if finds(k, secret) || len(events) != 1 || events[0].Change != Restored || !events[0].Refused {
		t.Errorf("it is in force, or the events are %+v", events)
	}
}

// A change that cannot be put on record leaves no key in force.
func TestKeysWithoutARecord(t *testing.T) {
	s := share(t)
	secret := add(t, s.command(), "pep")
	k := s.command()
	full := errors.New("the log is full")
	if err := k.Follow(OnRecord{}, nil, func(uint64, []Event) error { return full }); !errors.Is(err, full) || finds(k, secret) {
		t.Errorf("got %v, or the key is in force", err)
	}
}

// A replica that is cut off refuses keys once keys_stale is over, and says that it does not know. It goes on with what it
// reads when it is no longer cut off.
func TestKeysOfAReplicaThatIsCutOff(t *testing.T) {
	s := share(t)
	members := etcdtest.Start(t, etcdtest.Options{Members: 1})
	near, far := members.Client(), members.Client()
	const stale = 5 * time.Second
	var k *Keys
	etcdtest.Succeeds(t, "it opens, once etcd answers in time", func() (err error) {
		o := s.optionsWithin(time.Second, far.Endpoints()...)
		o.Stale = stale
		if k, err = OpenShared(t.Context(), o); err != nil {
			return err
		}
		if err = k.Follow(OnRecord{}, nil, func(uint64, []Event) error { return nil }); err != nil {
			return errors.Join(err, k.Close())
		}
		return nil
	})
	t.Cleanup(func() { must(t, k.Close()) })
	s.run(k)
	command := s.open(s.options(near.Endpoints()...))
	secret, other := add(t, command, "pep"), add(t, command, "other")
	s.eventually("the keys count", func() bool { return finds(k, secret) && finds(k, other) })

	far.Cut()
	revoked, last := time.Now(), contact(k)
	must(t, command.Revoke("pep"))
	if !finds(k, other) && time.Since(last) < stale/2 {
		t.Error("it takes no key as soon as it is cut off")
	}
	refusal := func() error {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8180/", nil)
		r.Header.Set("Authorization", "Bearer "+other)
		_, err := (&auth.Authenticator{Keys: k}).Authenticate(r)
		return err
	}
	s.eventually("no key counts", func() bool {
		late := time.Since(revoked) > stale
		counts := finds(k, other)
		if late && counts {
			t.Error("a key counts that is too old")
		}
		return !counts
	})
	s.eventually("it is cut off", func() bool { return far.Refused() > 0 })
	if err := refusal(); !errors.Is(err, auth.ErrUnavailable) || finds(k, secret) {
		t.Errorf("got %v, or a revoked key is in force", err)
	}
	if k.Holds("default", "other", auth.Decide) {
		t.Error("a vote by a key counts that may be revoked")
	}
	if _, err := (&auth.Authenticator{Keys: k, JWT: &auth.JWT{}}).Authenticate(withToken()); errors.Is(err, auth.ErrUnavailable) {
		t.Error("tokens are refused because keys are not known")
	}
	far.Heal()
	s.eventually("the key counts again", func() bool {
		if finds(k, secret) {
			t.Error("a revoked key is in force again until the keys are read")
		}
		return finds(k, other)
	})
	if err := refusal(); err != nil || finds(k, secret) {
		t.Errorf("got %v, or a revoked key is in force", err)
	}
}

// contact is a moment up to which a replica knows all keys.
func contact(k *Keys) time.Time {
	s := k.store.(*cluster)
	s.mu.Lock()
	defer s.mu.Unlock()
	last := later(s.Engine.Contact(), s.read)
	if !s.behind.IsZero() && s.behind.Before(last) {
		return s.behind
	}
	return last
}

func withToken() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8180/", nil)
	r.Header.Set("Authorization", "Bearer a.b.c")
	return r
}
