package keys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
)

// The records of the API keys in the decision log count before their file: see [Keys.Follow]. So that no retention takes
// it away, each start and each segment has a record of all keys, api_keys.

// Log is a decision log, or a reader of one.
type Log interface {
	Vouched(ctx context.Context, visit func(r *record.Recorded, vouched bool) error, first string, others ...string) (segment.Vouched, error)
}

// ReadLog compares API keys with what a decision log vouches for. Damage says what is wrong with either. If records of
// the keys may be hidden, the newest record of all keys counts, and keys that it does not have are revoked from now on. If the
// files of the keys are older than the log, too, nobody knows which keys were revoked, and all are. The keys of a cluster are
// sealed in etcd, which says what was revoked, so none of them is.
func ReadLog(ctx context.Context, log Log, keys *Keys) (known OnRecord, damage error, err error) {
	known = OnRecord{}
	visit := func(r *record.Recorded, vouched bool) error {
		if len(r.Details) == 0 {
			return nil
		}
		var details struct {
			Recorded
			Keys    []Recorded `json:"keys"`
			Before  *Recorded  `json:"before"`
			After   *Recorded  `json:"after"`
			InForce *bool      `json:"in_force"`
		}
		if err := json.Unmarshal(r.Details, &details); err != nil {
			return fmt.Errorf("record %d says nothing of the API keys that can be read", r.Sequence)
		}
		said := details.Keys
		if r.Event != format.EventAPIKeys {
			said = []Recorded{details.Recorded}
			for _, one := range []*Recorded{details.Before, details.After} {
				if one != nil {
					said = append(said, *one)
				}
			}
		}
		for n, one := range said {
			switch before := r.Event != format.EventAPIKeys && n < len(said)-1; {
			case vouched && details.InForce == nil && !before:
				known.Take(one)
			case !one.Revoked.IsZero(): // the rest does not count, but the revocation does
				known.Revoke(one.ID, one.Revoked)
			}
		}
		return nil
	}
	v, err := log.Vouched(ctx, visit, format.EventAPIKeys, format.EventAPIKeyAdded, format.EventAPIKeyRevoked, format.EventAPIKeyChanged)
	if err != nil {
		return nil, nil, fmt.Errorf("what the decision log says of the API keys cannot be read: %w", err)
	}
	if v.Altered != nil {
		damage = fmt.Errorf("the decision log was altered, and API keys that it does not vouch for are not in force: %w", v.Altered)
	}
	if v.Hidden {
		damage = fmt.Errorf("%w: %w", ErrHidden, damage)
	}
	older := keys.Number() < v.Keys && !keys.Shared()
	if older && v.Keys < math.MaxUint64 {
		damage = errors.Join(damage, fmt.Errorf("%s and %s are of change %d of the keys, and the decision log knows of change %d; put back the newest of both",
			File, MarksFile, keys.Number(), v.Keys))
	}
	if v.Hidden && !keys.Shared() {
		if older {
			clear(known)
		}
		known.End(keys)
	}
	return known, damage, nil
}

// Compare does as [ReadLog], for a directory, also beside a running server, whose newest records it lacks. It writes nothing.
// Wrong has, by the name of each key that is not in force whatever its file says, the reason.
func Compare(ctx context.Context, data string, keys *Keys) (damage error, wrong map[string]string, err error) {
	log, err := segment.OpenReader(data)
	if errors.Is(err, fs.ErrNotExist) {
		return keys.Damage(), nil, nil
	}
	if err != nil {
		return keys.Damage(), nil, fmt.Errorf("the decision log cannot be read: %w", err)
	}
	known, damage, err := ReadLog(ctx, log, keys)
	return errors.Join(keys.Damage(), damage), known.Against(keys), errors.Join(err, log.Close())
}

// FollowLog makes the log vouch for the keys from now on.
func (k *Keys) FollowLog(ctx context.Context, log Log, events *recorder.Events) error {
	known, damage, err := ReadLog(ctx, log, k)
	if err != nil {
		return err
	}
	if damage != nil {
		k.log.Load().Error("something is wrong with the API keys, or with what the decision log says of them; run policy-service doctor and log verify", "error", damage)
	}
	first := len(known) == 0
	record := func(number uint64, changes []Event) error {
		if first { // the keys that there are stand in the record of all of them
			return nil
		}
		return events.Record(ctx, keyChanges(number, changes)...)
	}
	if err := k.Follow(known, damage, record); err != nil {
		return err
	}
	first = false
	return events.Record(ctx, k.AllKeys())
}

// AllKeys returns the record of all keys.
func (k *Keys) AllKeys() recorder.Event {
	return recorder.Event{Name: format.EventAPIKeys, Details: map[string]any{"keys": k.OnRecord()}, Keys: k.Number()}
}

func keyChanges(number uint64, events []Event) (all []recorder.Event) {
	for _, e := range events {
		one := recorder.Event{Name: string(e.Change), Details: e.Key, Keys: number}
		if e.Change == Changed || e.Refused {
			details := map[string]any{"before": e.Before, "after": e.Key}
			if e.Refused {
				details["in_force"] = false
			}
			one.Details = details
		}
		all = append(all, one)
	}
	return all
}
