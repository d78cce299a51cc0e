package etcd

import (
	"context"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// PREFIX + "lease/" + an id is there for a minute: so long transactions may put values under the lease that was granted with it.
const leases = "lease/"

// leaseFor is how long one lease is used, in seconds. Etcd alone measures it: this process may be stopped for any time.
const leaseFor = 60

// lease is a lease of etcd's for all values that are put within a minute and kept for equally long.
type lease struct {
	keep    time.Duration
	granted sync.Once
	id      clientv3.LeaseID
	open    string // this key is there while the lease may be used
	err     error
}

// leaseOf returns the lease to be used now. Callers wait for one grant, and share its error.
func (e *Engine) leaseOf(keep time.Duration) *lease {
	e.mu.Lock()
	if e.leased == nil || e.leased.keep != keep {
		e.leased = &lease{keep: keep}
	}
	l := e.leased
	e.mu.Unlock()
	l.granted.Do(func() {
		_, l.err = call(e, func(r *clientv3.PutResponse) *etcdserverpb.ResponseHeader { return r.Header },
			func(ctx context.Context) (*clientv3.PutResponse, error) {
				minute, err := e.Client.Grant(ctx, leaseFor)
				if err != nil {
					return nil, err
				}
				kept, err := e.Client.Grant(ctx, leaseFor+int64((keep+time.Second-1)/time.Second)) // later, so that it ends later for certain
				if err != nil {
					return nil, err
				}
				l.id, l.open = kept.ID, e.Prefix+leases+strconv.FormatInt(int64(minute.ID), 16)
				return e.Client.Put(ctx, l.open, "", clientv3.WithLease(minute.ID))
			})
	})
	return l
}

// leave stops using a lease, so that the next value is put under another one.
func (e *Engine) leave(l *lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leased == l {
		e.leased = nil
	}
}
