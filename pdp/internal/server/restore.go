package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/backup"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/decisionlog/witness"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/auth/keys"
)

// Restoring makes a data directory of a backup.
//
// Nothing in a backup proves that no record came after it. A record that did may be a use of an approval or a capability, or
// a revocation. A log that went on from the backup would be a second history under the same name, and an approval could be
// used twice. So the old log is kept to be read, below [RestoredDir], and a new one begins, with a new key: its first records
// name all that ended. Approval requests, capabilities and the keys that sign tokens are not restored then.
//
// The directory goes on as it was only if the log ends with the stop of its server, and NothingCameAfter says so of as many
// items as would count again. Before its log grows, the next start asks the witnesses and etcd: see [decisionLog.mayGoOn].
type Restoring struct {
	Data     string // must not exist, or be empty
	Policies string // gets the bundle in force, and must not exist, or be empty; "" is nowhere
	// Verify verifies the log. The log must contain the checkpoint in it, which proves nothing about what came after.
	Verify verify.Options
	// NothingCameAfter is the number of approval requests, capabilities and API keys that would count as the log has them,
	// or nil if all that is open is to end.
	NothingCameAfter *int
}

// Restored is the outcome of a restore.
type Restored struct {
	Head   backup.Head
	End    backup.End
	Report verify.Report
	GoesOn bool // the log, with all that counts by it
	// Missing has the consequence of each file that the directory goes on without, by its name.
	Missing map[string]string
	// JournalOnly are the records that a crash left in the journal, where no reader of the restored log finds them; nil is
	// none.
	JournalOnly *segment.Unfilled
	// Unrecorded are the names of API keys in force that the log does not know.
	Unrecorded []string
	// Refused are the names of API keys that the file has in force and the log has not.
	Refused []string
	Ended
	stopped  bool     // the last record is of the stop of the server
	inForce  []string // the names of the API keys that are in force, by the log or by their file alone
	asked    asked
	policies string // where the bundle is until all is well
	loaded   []loaded
	keys     []keys.Recorded
}

// loaded is a record of a bundle that was put in force.
type loaded struct {
	sequence int64
	bundle   string
}

// asked says who else knows how long a log is, by the last configuration on record.
type asked struct {
	Witnesses bool `json:"witnesses,omitzero"`
	Cluster   bool `json:"cluster,omitzero"`
}

// Ended has the approval requests and capabilities that are live by the log. They end unless the log goes on.
type Ended struct {
	Approvals    []string `json:"approvals"`
	Capabilities []string `json:"capabilities"`
}

// RestoredDir is where a restored log is that does not go on. It is laid out as a data directory.
const RestoredDir = "restored"

// restoredFile makes the next start record the restore. It stays until that is on record.
const restoredFile = "restored.json"

// restoredBefore is the content of restoredFile.
type restoredBefore struct {
	Record restoredRecord  `json:"record"`
	Keys   []keys.Recorded `json:"keys,omitempty"` // as the restored log has them, if another log begins
	Asked  asked           `json:"asked,omitzero"` // if the log goes on
	Begun  *begunAnew      `json:"begun,omitzero"` // in the place of a restore
}

// restoredRecord has the details of the record.
type restoredRecord struct {
	Began  string `json:"began"` // the backup
	Origin string `json:"origin"`
	Size   uint64 `json:"size"`
	Root   string `json:"root"`
	// NothingCameAfter is set if the log goes on: as the operator said.
	NothingCameAfter *int `json:"nothing_came_after,omitzero"`
	Counted          struct {
		Approvals    int `json:"approvals"`
		Capabilities int `json:"capabilities"`
	} `json:"counted"`
	Ended
}

// mostEnded is how many of either the record names. The restored log has all of them.
const mostEnded = 1000

// From makes the directory, as a whole or not at all.
func (r Restoring) From(ctx context.Context, archive io.Reader) (done Restored, err error) {
	for _, dir := range []string{r.Data, r.Policies} {
		if entries, err := os.ReadDir(dir); dir != "" && (err == nil && len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)) {
			return done, errors.Join(err, fmt.Errorf("%s is there, and is no empty directory; try another", dir))
		}
	}
	made, err := beside(r.Data)
	if err != nil {
		return done, err
	}
	defer func() { // they have their names already if all went well
		_ = os.RemoveAll(made)
		_ = os.RemoveAll(done.policies)
	}()
	if done.Head, done.End, err = backup.Read(archive, made, knownFile); err != nil {
		return done, err
	}
	for _, step := range []func(context.Context, string, *Restored) error{r.verify, takeKeys, r.decide, r.putBundle, goOn} {
		if err := step(ctx, made, &done); err != nil {
			return done, err
		}
	}
	if err = place(made, r.Data); err == nil && r.Policies != "" {
		if err = place(done.policies, r.Policies); err != nil {
			err = errors.Join(err, os.RemoveAll(r.Data))
		}
	}
	return done, err
}

// knownFile is how large a file of a backup may be.
func knownFile(name string) int64 {
	dir, _, inLog := strings.Cut(name, "/")
	isKept := func(k kept) bool { return k.name == name }
	switch {
	case slices.ContainsFunc(storeFiles, isKept), inLog && dir == format.LogDir:
		return -1
	case slices.ContainsFunc(slices.Concat(keptFiles, privateFiles), isKept), name == format.PublicKeyFile:
		return 64 << 20
	}
	return 0
}

// verify verifies the log, and finds the items that are live by it.
func (r Restoring) verify(_ context.Context, made string, done *Restored) error {
	approvals, capabilities := map[string]bool{}, map[string]bool{}
	var odd error
	o := r.Verify
	o.Record = func(sequence int64, line []byte) {
		done.stopped = false
		if !bytes.Contains(line, []byte(`"kind":"`+format.KindApproval+`"`)) && !bytes.Contains(line, []byte(`"kind":"`+format.KindCapability+`"`)) &&
			!bytes.Contains(line, []byte(`"`+format.EventBundleLoaded+`"`)) && !bytes.Contains(line, []byte(`"`+format.EventStop+`"`)) &&
			!bytes.Contains(line, []byte(`"`+format.EventConfiguration+`"`)) {
			return
		}
		record, err := record.Parse(line)
		var said struct {
			Approval   string           `json:"approval"`
			Status     approval.Status  `json:"status"`
			Capability string           `json:"capability"`
			State      capability.State `json:"state"`
			Bundle     string           `json:"bundle"`
			Log        struct {
				Witnesses jsontext.Value `json:"witnesses"`
			} `json:"decision_log"`
			Cluster jsontext.Value `json:"cluster"`
		}
		if err == nil && len(record.Details) > 0 {
			err = json.Unmarshal(record.Details, &said)
		}
		switch {
		case err != nil:
			odd = err
		case record.Kind == format.KindApproval:
			approvals[said.Approval] = !said.Status.Final()
		case record.Kind == format.KindCapability:
			capabilities[said.Capability] = !said.State.Final()
		case record.Event == format.EventStop:
			done.stopped = true
		case record.Event == format.EventConfiguration:
			done.asked = asked{Witnesses: said.Log.Witnesses != nil, Cluster: said.Cluster != nil}
		case record.Event == format.EventBundleLoaded:
			done.loaded = append(done.loaded, loaded{sequence, said.Bundle})
		}
	}
	done.Report = verify.Directory(made, o)
	if done.Report.Code == verify.Usage {
		return fmt.Errorf("its decision log cannot be verified: %w", done.Report.Problem)
	}
	if !done.Report.Verified() {
		return fmt.Errorf("its decision log is not what was signed (%s): %w", done.Report.Code, done.Report.Problem)
	}
	done.Approvals, done.Capabilities = idsOf(approvals), idsOf(capabilities)
	if odd != nil {
		return fmt.Errorf("a record of its decision log cannot be read: %w", odd)
	}
	return nil
}

// idsOf are the ids of those that are live.
func idsOf(live map[string]bool) []string {
	maps.DeleteFunc(live, func(_ string, is bool) bool { return !is })
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(live))))
}

// takeKeys reads the log's records of API keys. A new log is to begin with that: else a key that was revoked would be good
// again with an older file of keys.
func takeKeys(ctx context.Context, made string, done *Restored) error {
	log, err := segment.OpenReader(made)
	if err != nil {
		return err
	}
	done.JournalOnly = log.Unfilled()
	if err = keys.SealRestored(made); err != nil {
		return errors.Join(err, log.Close())
	}
	apiKeys, err := keys.Open(made)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	known, _, err := keys.ReadLog(ctx, log, apiKeys) // it is verified
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	done.Refused = slices.Sorted(maps.Keys(known.Against(apiKeys)))
	for _, key := range apiKeys.List() {
		if _, recorded := known[key.ID]; !recorded && !key.Ended(time.Now()) {
			done.Unrecorded = append(done.Unrecorded, key.Name)
		}
	}
	done.inForce = slices.Clone(done.Unrecorded)
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if done.keys = append(done.keys, known[id]); !known[id].Ended(time.Now()) {
			done.inForce = append(done.inForce, known[id].Name)
		}
	}
	return nil
}

// decide lets the log go on if the operator says, of as many items as there are, that nothing came after.
func (r Restoring) decide(_ context.Context, _ string, done *Restored) error {
	n := len(done.Approvals) + len(done.Capabilities) + len(done.inForce)
	switch {
	case r.NothingCameAfter == nil:
		return nil
	case !done.stopped || done.Report.Unsigned > 0 || done.JournalOnly != nil:
		return errors.New("its decision log does not end with the stop of its server, so more came after it; " +
			"leave out --nothing-came-after, and what was open ends")
	case *r.NothingCameAfter != n:
		return fmt.Errorf("%d would count again, and --nothing-came-after is %d; if one of them was used, decided or revoked after the backup, "+
			"nothing here knows it: %s; if nothing was, give --nothing-came-after %d, else leave it out, and what was open ends",
			n, *r.NothingCameAfter, strings.Join([]string{
				listSome("approval requests", done.Approvals), listSome("capabilities", done.Capabilities), listSome("API keys", done.inForce),
			}, "; "), n)
	}
	done.GoesOn = true
	return nil
}

// listSome lists the first twenty names of a kind, and says how many more there are.
func listSome(kind string, names []string) string {
	const most = 20
	switch more := len(names) - most; {
	case len(names) == 0:
		return kind + ": none"
	case more > 0:
		return fmt.Sprintf("%s: %s and %d more", kind, strings.Join(names[:most], " "), more)
	}
	return kind + ": " + strings.Join(names, " ")
}

// bundle is the bundle that was in force, by the records that are signed: a backup can be altered. Only if retention took
// all of those away, the backup is believed.
func (r Restored) bundle() (digest string, err error) {
	digest = r.End.Bundle
	for _, one := range r.loaded {
		if one.sequence >= r.Report.Size && one.bundle != digest {
			return "", errors.New("a record behind the last checkpoint, which nothing proves, has another bundle in force; leave out --policies")
		}
		digest = one.bundle
	}
	return digest, nil
}

// putBundle writes the bundle that was in force beside the place where it is to be. The names of its files come out of the
// backup.
func (r Restoring) putBundle(_ context.Context, made string, done *Restored) (err error) {
	if r.Policies == "" {
		return nil
	}
	if done.End.Bundle, err = done.bundle(); err != nil {
		return err
	}
	bundles, err := segment.OpenBundles(made)
	if err != nil {
		return err
	}
	files, err := bundles.Files(done.End.Bundle)
	if err != nil {
		return fmt.Errorf("the bundle that was in force is not in it: %w; leave out --policies", err)
	}
	if done.policies, err = beside(r.Policies); err != nil {
		return err
	}
	root, err := os.OpenRoot(done.policies)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for name, content := range files {
		err := root.MkdirAll(filepath.Dir(name), 0o700)
		if err == nil {
			err = root.WriteFile(name, content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beside makes a directory that is to have another name once it is whole.
func beside(dir string) (made string, err error) {
	dir = filepath.Clean(dir)
	return os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".restore-*")
}

// place gives directories their names, durably.
func place(made, name string) error {
	err := filepath.WalkDir(made, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = plainfile.SyncDir(path)
		}
		return err
	})
	if err == nil {
		err = os.Rename(made, name)
	}
	if err == nil {
		err = plainfile.SyncDir(filepath.Dir(filepath.Clean(name)))
	}
	return err
}

// goOn takes out of the directory the files that do not go on, names those that are missing, and has the next start record
// the restore.
func goOn(_ context.Context, made string, done *Restored) error {
	secret := privateFiles
	before := restoredBefore{Record: restoredRecord{
		Began: done.Head.Began.Format(format.TimeLayout), Origin: done.Report.Origin, Size: uint64(done.Report.Size), Root: done.Report.Root,
		Ended: Ended{Approvals: []string{}, Capabilities: []string{}},
	}}
	if done.GoesOn {
		n := len(done.Approvals) + len(done.Capabilities) + len(done.inForce)
		before.Record.NothingCameAfter, before.Asked = &n, done.asked
	} else {
		if err := beginAnew(made); err != nil {
			return err
		}
		before.Record.Counted.Approvals, before.Record.Counted.Capabilities = len(done.Approvals), len(done.Capabilities)
		before.Record.Approvals = done.Approvals[:min(len(done.Approvals), mostEnded)]
		before.Record.Capabilities = done.Capabilities[:min(len(done.Capabilities), mostEnded)]
		before.Keys = done.keys
		secret = slices.DeleteFunc(slices.Clone(secret), func(k kept) bool { return !k.anyLog })
	}
	done.Missing = map[string]string{}
	for _, one := range slices.Concat(keptFiles, secret) {
		if _, err := os.Stat(filepath.Join(made, one.name)); err != nil && one.without != "" {
			done.Missing[one.name] = one.without
		}
	}
	content, err := json.Marshal(before, json.Deterministic(true))
	if err == nil {
		err = plainfile.Replace(filepath.Join(made, restoredFile), append(content, '\n'))
	}
	return err
}

// beginAnew takes away what belongs to the old log, and puts that where it is read alone.
func beginAnew(made string) error {
	for _, one := range slices.Concat(storeFiles, privateFiles) {
		if one.anyLog {
			continue
		}
		if err := plainfile.Remove(filepath.Join(made, one.name)); err != nil {
			return err
		}
	}
	old := filepath.Join(made, RestoredDir)
	err := os.Mkdir(old, 0o700)
	for _, name := range []string{format.LogDir, format.PublicKeyFile} {
		if err == nil {
			err = os.Rename(filepath.Join(made, name), filepath.Join(old, name))
		}
	}
	return err
}

// goesOn reports whether the restored log goes on.
func (b *restoredBefore) goesOn() bool { return b != nil && b.Record.NothingCameAfter != nil }

// readRestored reads restoredFile; without it there is nil.
func readRestored(data string) (*restoredBefore, error) {
	content, err := plainfile.Read(filepath.Join(data, restoredFile), 64<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	before := new(restoredBefore)
	if err == nil {
		err = json.Unmarshal(content, before)
	}
	if err != nil {
		return nil, fmt.Errorf("%s says what a restore left to this start, and cannot be read: %w; restore again", restoredFile, err)
	}
	return before, nil
}

// mayGoOn asks the witnesses of a log that goes on after a restore whether they know more of it. Nothing was added to the log
// yet. Each of them must cosign the log as it is: the one that does not answer may be the one that saw more. Etcd is asked
// when the server joins the cluster: see [decisionLog.joining].
func (d *decisionLog) mayGoOn(ctx context.Context) error {
	if !d.restored.goesOn() {
		return nil
	}
	const remedy = "or restore once more, into another directory, without --nothing-came-after"
	switch asked := d.restored.Asked; {
	case asked.Witnesses && d.witnesses == nil:
		return fmt.Errorf("this log goes on after a restore, it had witnesses, and the configuration has none that could be asked; add %s, %s", keyWitnesses, remedy)
	case asked.Cluster && d.config.Cluster == nil:
		return fmt.Errorf("this log goes on after a restore, it was that of a replica, and the configuration has no etcd that could be asked; add %s, %s", keyCluster, remedy)
	case d.witnesses == nil:
		return nil
	}
	d.witnesses.Round(ctx)
	for _, one := range d.witnesses.Status().Witnesses {
		if one.Outcome != witness.Cosigned {
			return fmt.Errorf("this log goes on after a restore only if each witness cosigns it as it is, and %s does not: %s; see to that, %s",
				one.Witness, cmp.Or(one.Detail, string(one.Outcome), "it knows a checkpoint that is not of this log"), remedy)
		}
	}
	return nil
}

// recordRestored puts a restore on record. If a crash comes before the file is gone, there are two such records.
func (d *decisionLog) recordRestored(ctx context.Context) (err error) {
	if d == nil || d.restored == nil {
		return nil
	}
	before := d.restored
	events := []recorder.Event{{Name: format.EventRestored, Details: before.Record}}
	if before.Begun != nil {
		events[0] = recorder.Event{Name: format.EventBegun, Details: before.Begun}
	}
	if len(before.Keys) > 0 {
		// A log that has such a record, or may hide one, knows better than a file that anybody may have put there.
		had := false
		v, err := d.Vouched(ctx, func(*record.Recorded, bool) error { had = true; return nil }, format.EventAPIKeys)
		if err != nil {
			return fmt.Errorf("whether the decision log knows API keys, besides those that were restored: %w", err)
		}
		if !had && v.Altered == nil {
			events = append(events, recorder.Event{Name: format.EventAPIKeys, Details: map[string]any{"keys": before.Keys}})
		}
	}
	if err = d.events.Record(ctx, events...); err == nil {
		err = plainfile.Remove(filepath.Join(d.config.Data, restoredFile))
	}
	if err == nil {
		err = plainfile.SyncDir(d.config.Data)
	}
	if err != nil {
		return fmt.Errorf("that a backup was restored cannot be recorded: %w; see that the disk has room, and that the data directory belongs to the user that serve runs as", err)
	}
	d.restored = nil
	return nil
}
