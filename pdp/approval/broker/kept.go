package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"policy-service/pdp/approval"
	"policy-service/pdp/datakey"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/recorder"
)

// Key keeps a person who has the file of approvals from trying values against it.
var Key = datakey.Key{
	File:  "approvals.key",
	Of:    "approvals",
	Moved: "and nothing counts that was approved before",
}

// Kept is read before the decision log is opened: the key of the approvals, and the steps in the log of a file
// of format 1.
type Kept struct {
	key      []byte
	evidence *evidence // nil if the file has another format
}

// OpenKey reads the key of the approvals in a data directory, before anything else has to do with them, and what the
// log says of a file of format 1.
func OpenKey(data string) (k *Kept, err error) {
	if err := keyWithFile(data); err != nil {
		return nil, err
	}
	if name := filepath.Join(data, approval.FileName); !Key.There(data) {
		// Nothing in the file counts, and without the key nothing in it can be believed. The file is begun anew.
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s belongs to a key that is missing, and cannot be begun anew: %w; move it away",
				name, err)
		}
	}
	k = &Kept{}
	if k.key, err = Key.Open(data); err != nil {
		return nil, err
	}
	k.evidence, err = readEvidence(data)
	return k, err
}

// keyWithFile refuses a file of approvals whose key is missing, if anything in the file waits or can be used.
func keyWithFile(data string) error {
	if Key.There(data) {
		return nil
	}
	name := filepath.Join(data, approval.FileName)
	missing := "the key of approvals, " + Key.File + ", is missing, and "
	const try = "put the key back from a backup, or move the file away to begin without any approval"
	open, err := approval.Unkeyed(data)
	switch {
	case errors.Is(err, approval.ErrLocked):
		return fmt.Errorf("%sanother process has %s open; %s", missing, name, try)
	case err != nil:
		return fmt.Errorf("%swithout it nothing in %s can be believed: %w; %s", missing, name, err, try)
	case open > 0:
		return fmt.Errorf("%s%s has %d approval requests that wait or can be used; %s", missing, name, open, try)
	}
	return nil
}

// Look counts the approvals of a data directory: how many approval requests wait, and the status in the log of
// each that the file is behind with. It touches nothing. The error says why [OpenKey] or [Open] would refuse.
func Look(
	ctx context.Context, data string, log *decisionlog.Reader,
) (pending int, behind map[string]approval.Status, err error) {
	if err := keyWithFile(data); err != nil {
		return 0, nil, err
	}
	key, err := Key.Read(data)
	if err != nil || key == nil {
		return 0, nil, err
	}
	pending, open, err := approval.Look(data, key)
	if errors.Is(err, approval.ErrOld) {
		_, err = readEvidence(data)
		return pending, nil, err
	}
	if err != nil || len(open) == 0 || log == nil {
		return pending, nil, err
	}
	behind, err = approval.Behind(ctx, open, approval.Log{
		Size:  log.Size,
		Steps: stepsIn(log.Approvals),
	})
	return pending, behind, err
}

// mark puts on record, before anything can be approved, that from now on no file of format 1 counts: if such a file was
// taken over, or if a file was begun. If the record is there, or may be, [Broker.Remark] looks.
func (b *Broker) mark() error {
	switch upgraded := b.Store.Upgraded(); {
	case upgraded != nil:
		b.options.Logger.Info("the approval requests were taken over from format 1, as the log has them",
			"kept", len(upgraded.Kept), "dropped", len(upgraded.Dropped))
		return b.putMark(context.Background(), 1, upgraded)
	case b.Store.Begun():
		return b.putMark(context.Background(), 0, nil)
	}
	return nil
}

func (b *Broker) putMark(ctx context.Context, from int, upgraded *approval.Upgraded) error {
	details := struct {
		From   int `json:"from"`
		Format int `json:"format"`
		*approval.Upgraded
	}{from, approval.FormatVersion, upgraded}
	return b.options.Events.Record(ctx, recorder.Event{Name: decisionlog.EventApprovalsUpgraded, Details: details})
}

// Remark puts the mark on record again if retention has dropped it, or if a crash came before it.
func (b *Broker) Remark(ctx context.Context) {
	page, err := b.options.Log.Query(ctx, decisionlog.Query{
		Filter: decisionlog.Filter{Event: decisionlog.EventApprovalsUpgraded},
		Newest: true,
		Cursor: decisionlog.End,
		Limit:  1,
	})
	if err == nil && len(page.Lines) == 0 {
		err = b.putMark(ctx, approval.FormatVersion, nil)
	}
	if err != nil && ctx.Err() == nil {
		b.options.Logger.Error("it cannot be put on record that old files of approvals count no more; "+
			"it is tried again after the next start", "error", err)
	}
}
