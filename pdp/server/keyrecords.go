package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/recorder"
	"policy-service/pdp/server/auth"
)

// The records of the API keys in the decision log count before their file: see [auth.Keys.Follow]. So that no retention takes
// it away, each start and each segment has a record of all keys, api_keys.

// keyLog is a log, or a reader of one.
type keyLog interface {
	Events(ctx context.Context, visit func(*decisionlog.Recorded) error, first string, others ...string) error
}

// KeysOnRecord reads the records of the API keys in a decision log.
func KeysOnRecord(ctx context.Context, log keyLog) (auth.KeysOnRecord, error) {
	known := auth.KeysOnRecord{}
	visit := func(r *decisionlog.Recorded) error {
		if len(r.Details) == 0 {
			return nil
		}
		var details struct {
			auth.RecordedKey
			Keys    []auth.RecordedKey `json:"keys"`
			Before  *auth.RecordedKey  `json:"before"`
			After   *auth.RecordedKey  `json:"after"`
			InForce *bool              `json:"in_force"`
		}
		if err := json.Unmarshal(r.Details, &details); err != nil {
			return fmt.Errorf("record %d says nothing of the API keys that can be read", r.Sequence)
		}
		switch {
		case r.Event == decisionlog.EventAPIKeys:
			for _, key := range details.Keys {
				known.Take(key)
			}
		case details.InForce != nil: // the file does not count, but the revocation does
			for _, said := range []*auth.RecordedKey{details.Before, details.After} {
				if said != nil && !said.Revoked.IsZero() {
					known.Revoke(said.ID, said.Revoked)
				}
			}
		case details.After != nil:
			known.Take(*details.After)
		default:
			known.Take(details.RecordedKey)
		}
		return nil
	}
	err := log.Events(ctx, visit, decisionlog.EventAPIKeys, decisionlog.EventAPIKeyAdded, decisionlog.EventAPIKeyRevoked, decisionlog.EventAPIKeyChanged)
	return known, err
}

// followKeys has the log vouch for the keys from now on.
func (d *decisionLog) followKeys(ctx context.Context, keys *auth.Keys) error {
	known, err := KeysOnRecord(ctx, d.log)
	switch {
	case errors.Is(err, decisionlog.ErrDamaged): // as with all of an altered log, callers are answered, and the operator is warned
		d.logger.Error("the decision log was altered: it may hide that an API key was revoked; run policy-service log verify", "error", err)
	case err != nil:
		return fmt.Errorf("what the decision log says of the API keys cannot be read: %w", err)
	}
	first := len(known) == 0
	record := func(events []auth.KeyEvent) error {
		if first { // the keys that there are stand in the record of all of them
			return nil
		}
		return d.events.Record(ctx, keyChanges(events)...)
	}
	if err := keys.Follow(known, record); err != nil {
		return err
	}
	first = false
	return d.events.Record(ctx, allKeys(keys))
}

// allKeys is the record of all keys.
func allKeys(keys *auth.Keys) recorder.Event {
	return recorder.Event{Name: decisionlog.EventAPIKeys, Details: map[string]any{"keys": keys.OnRecord()}}
}

func keyChanges(events []auth.KeyEvent) (all []recorder.Event) {
	for _, e := range events {
		one := recorder.Event{Name: string(e.Change), Details: e.Key}
		if e.Change == auth.KeyChanged || e.Refused {
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
