package keys

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A decision log outlives the file of keys: an older file can be put back, or an edited one. So the record of a key counts
// before its file. A key that was revoked once stays revoked, and a key has one secret for good.

// Recorded is a key as it is on record.
type Recorded struct {
	Info
	// Digest is the SHA-256 of the hash that the file has of the key, in lower-case hex.
	Digest string `json:"digest,omitzero"`
	// Missing says that the file has no such key any more.
	Missing bool `json:"missing,omitzero"`
}

// Change is a kind of change of a key, by the name of its record.
type Change string

// The changes.
const (
	Added    Change = "api_key_added"
	Revoked  Change = "api_key_revoked" // by an edit of the file, or by the mark beside it
	Restored Change = "api_key_restored"
	Changed  Change = "api_key_changed"
)

// Event is a change that goes on record.
type Event struct {
	Change Change
	// Key is the key as its file has it now. Before is the key on record, if it differs.
	Key, Before Recorded
	// Refused says that the key is not in force because of the change.
	Refused bool
}

// OnRecord are the keys that a decision log knows, by their ids.
type OnRecord map[string]Recorded

// Take adds a key of a record, in the order of the records.
func (r OnRecord) Take(key Recorded) {
	before, known := r[key.ID]
	if known {
		key.Revoked, key.Expires = soonest(before.Revoked, key.Revoked), soonest(before.Expires, key.Expires)
		key.Digest = cmp.Or(before.Digest, key.Digest)
	}
	key.Missing = false
	r[key.ID] = key
}

// Revoke has a key that is known revoked, from a time on.
func (r OnRecord) Revoke(id string, at time.Time) {
	if key, known := r[id]; known {
		key.Revoked = soonest(at, key.Revoked)
		r[id] = key
	}
}

// ErrHidden: a decision log may have had records of API keys that nobody sees now.
var ErrHidden = errors.New("records of API keys may be hidden")

// End revokes every stored key that the log does not know, from now on.
func (r OnRecord) End(k *Keys) {
	for _, stored := range k.current().stored {
		if _, known := r[stored.ID]; !known {
			key := stored.recorded()
			key.Revoked = soonest(k.stamp(), key.Revoked)
			r[stored.ID] = key
		}
	}
}

// Against compares keys with the file that an operator sees. It returns, by the name of each key that the file would put in
// force against the record, the reason why it is not.
func (r OnRecord) Against(k *Keys) map[string]string {
	wrong := map[string]string{}
	for _, stored := range k.current().stored {
		if stored.refused {
			wrong[stored.Name] = "it was revoked, and its file has it in force"
			continue
		}
		switch change := r.compare(stored, k); change.Change {
		case Restored:
			wrong[stored.Name] = "it was revoked at " + change.Before.Revoked.Format(time.RFC3339) + ", and its file has it in force"
		case Changed:
			if change.Refused {
				wrong[stored.Name] = "its secret or its end is another than the one on record, or its name was another key's"
			}
		}
	}
	return wrong
}

// compare finds the change of a stored key; there is none if Change is "".
func (r OnRecord) compare(stored storedKey, k *Keys) Event {
	is := stored.recorded()
	was, known := r[stored.ID]
	if !known || was.Name != is.Name {
		// Votes and records name keys, so no key gets the name of another that it does not renew.
		if others := r.named(is); len(others) > 0 && (known || !k.renewed(stored, others)) {
			return Event{Change: Changed, Key: is, Before: others[0], Refused: true}
		}
	}
	if !known {
		return Event{Change: Added, Key: is}
	}
	e := Event{Key: is, Before: was}
	switch {
	case was.Digest != "" && was.Digest != is.Digest, sooner(was.Expires, is.Expires):
		e.Change, e.Refused = Changed, true
	case sooner(is.Revoked, was.Revoked):
		e.Change = Revoked
	case sooner(was.Revoked, is.Revoked) && sooner(k.now(), is.Revoked):
		e.Change, e.Refused = Restored, true
	case !is.sameHolder(was):
		e.Change = Changed
	}
	return e
}

// named are the other keys of the name of one, by their ids.
func (r OnRecord) named(is Recorded) (others []Recorded) {
	for id, other := range r {
		if id != is.ID && other.Name == is.Name {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b Recorded) int { return strings.Compare(a.ID, b.ID) })
	return others
}

// sameHolder reports whether nothing but the secret and its end can differ.
func (k Recorded) sameHolder(other Recorded) bool {
	a, b := k.Grant, other.Grant
	return k.Name == other.Name && k.Principal == other.Principal && k.Via == other.Via && k.Created.Equal(other.Created) &&
		k.Expires.Equal(other.Expires) &&
		slices.Equal(a.Tenants, b.Tenants) && slices.Equal(a.Permissions, b.Permissions) &&
		(a.Obligations == nil) == (b.Obligations == nil) && slices.Equal(a.Obligations, b.Obligations) &&
		slices.Equal(a.Audiences, b.Audiences) && a.Forwards == b.Forwards
}

func (s storedKey) recorded() Recorded {
	hash, _ := s.hash() // it was checked as the file was read
	digest := sha256.Sum256(hash[:])
	return Recorded{Info: s.Info, Digest: hex.EncodeToString(digest[:])}
}

// Follow has the log vouch for each key from now on: known are the keys on record, damage says what is wrong with them, and
// record puts changes there, durably, with the number of the keys. A change counts only after that. An error leaves no key in
// force.
func (k *Keys) Follow(known OnRecord, damage error, record func(number uint64, events []Event) error) error {
	k.mu.Lock()
	k.known, k.damage, k.record, k.refused = known, damage, record, map[string]string{}
	k.named.Store(len(known) > 0 || errors.Is(damage, ErrHidden))
	again := *k.view.Load()
	again.info = nil // so that it is read, and compared
	err := k.look(&again).err
	k.mu.Unlock()
	return err
}

// OnRecord lists the keys that are on record, those first that the file has, in its order.
func (k *Keys) OnRecord() []Recorded {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, listed := []Recorded{}, map[string]bool{}
	for _, stored := range k.view.Load().stored {
		if key, ok := k.known[stored.ID]; ok {
			all, listed[stored.ID] = append(all, key), true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.known)) {
		if !listed[id] {
			key := k.known[id]
			key.Missing = true
			all = append(all, key)
		}
	}
	return all
}

// Refused is how many keys the file has in force that are not, because the log says otherwise. Of a cluster, damaged keys
// count, too.
func (k *Keys) Refused() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.refused) + k.view.Load().damaged
}

// vouch compares a file that was just read with the record, puts the changes on record, and takes the keys out of it that
// may not be in force.
func (k *Keys) vouch(view *snapshot) error {
	if k.known == nil {
		return nil
	}
	var events []Event
	refused := map[string]string{}
	for n := range view.stored {
		stored := &view.stored[n]
		if at, marked := view.marks.ended[stored.ID]; marked && sooner(at, stored.Revoked) && sooner(at, k.known[stored.ID].Revoked) {
			// Its revocation is not on record yet.
			revoked := Event{Change: Revoked, Key: stored.recorded(), Before: k.known[stored.ID]}
			revoked.Key.Revoked = at
			events = append(events, revoked)
			k.known.Take(revoked.Key)
		}
		e := k.known.compare(*stored, k)
		if !e.Refused {
			if e.Change != "" {
				events = append(events, e)
			}
			continue
		}
		// Each file that has it so is reported once, and so is each start with it.
		if refused[stored.ID] = e.Key.Digest; k.refused[stored.ID] != e.Key.Digest {
			events = append(events, e)
		}
		view.byID[stored.ID].refused, stored.refused = true, true
		if e.Change == Restored {
			stored.Revoked = e.Before.Revoked
		}
	}
	if len(events) > 0 {
		if err := k.record(view.marks.number, events); err != nil {
			for _, e := range events { // so that the next look records them
				if e.Before.ID == "" {
					delete(k.known, e.Key.ID)
				} else {
					k.known[e.Key.ID] = e.Before
				}
			}
			return fmt.Errorf("what has changed about the keys cannot be recorded: %w", err)
		}
	}
	k.refused = refused
	for _, e := range events {
		if !e.Refused {
			k.known.Take(e.Key)
			continue
		}
		if !e.Key.Revoked.IsZero() { // the secret is another one, and it is revoked, too
			k.known.Revoke(e.Key.ID, e.Key.Revoked)
		}
		k.log.Load().Error("a key is not in force, because the decision log says otherwise; make a new key, and find out who changed the file",
			"key", e.Key.Name, "change", e.Change)
	}
	return nil
}
