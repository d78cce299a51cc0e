package cluster

import (
	"context"
	"fmt"
	"time"

	"policy-service/pdp/internal/ledger"
)

// imported is the import of the state that the server of one data directory had. Its first value says nothing: it could be put
// again. See [ledger].
type imported struct {
	Origin string    `json:"origin"` // "" is none
	Begun  time.Time `json:"begun"`
	Done   time.Time `json:"done,omitzero"`
}

// Importable refuses an origin whose state cannot be taken into the cluster, by the keys and the length of its log. [Cluster.Join]
// does, too. It writes nothing.
func (c *Cluster) Importable(origin string, keys []string, size uint64) error {
	return c.values.View(func(tx *ledger.Tx) {
		var is imported
		var was Origin
		tx.Get(keyImport, &is)
		tx.Get(keyOrigin(origin), &was)
		tx.Fail(is.mayImport(origin, tx.Get(keyFacts, new(facts)) > 0))
		tx.Fail(was.fits(origin, keys, size))
	})
}

// mayImport refuses the import of an origin. Used says that the cluster has had members.
func (is *imported) mayImport(origin string, used bool) error {
	switch {
	case is.Origin == "" && used:
		return fmt.Errorf("%w: the cluster has had replicas, and may have state; take another cluster.etcd.prefix", ErrRefused)
	case is.Origin != "" && is.Origin != origin:
		return fmt.Errorf("%w: the cluster has the state of %s, or is to have it; take another cluster.etcd.prefix", ErrRefused, is.Origin)
	case !is.Done.IsZero():
		return fmt.Errorf("%w: the state of %s is in the cluster since %s, and is taken once; start its server as a replica",
			ErrRefused, origin, is.Done.Format(time.RFC3339))
	}
	return nil
}

// beginImport writes the first value.
func (c *Cluster) beginImport(ctx context.Context) error {
	return c.values.Update(ctx, func(ch *ledger.ValuesChange) {
		if ch.Get(keyImport, new(imported)) == 0 {
			ch.Put(keyImport, imported{})
		}
	})
}

// meetImport has one member at a time while state is imported.
func (c *Cluster) meetImport(ch *ledger.ValuesChange, j Joining, used bool) error {
	var is imported
	ch.Get(keyImport, &is)
	if j.Import {
		if err := is.mayImport(j.Origin, used); err != nil {
			return err
		}
		if is.Origin == "" {
			ch.Put(keyImport, imported{Origin: j.Origin, Begun: c.options.Now().UTC()})
		}
		return nil
	}
	if is.Origin != "" && is.Done.IsZero() {
		return fmt.Errorf("%w: the import of %s, which began at %s, has not ended; run policy-service cluster import with its data directory again",
			ErrRefused, is.Origin, is.Begun.Format(time.RFC3339))
	}
	return nil
}

// Imported says that the state of the member's data directory is in the cluster.
func (c *Cluster) Imported(ctx context.Context) error {
	return c.values.Update(ctx, func(ch *ledger.ValuesChange) {
		var is imported
		if ch.Get(keyImport, &is); is.Origin != c.Origin() {
			ch.Fail(fmt.Errorf("%w: %s began no import", ErrRefused, c.Origin()))
		}
		is.Done = c.options.Now().UTC()
		ch.Put(keyImport, is)
	})
}
