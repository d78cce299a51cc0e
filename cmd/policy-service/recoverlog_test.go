package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"policy-service/pdp/pdptest/crashedlog"
	"policy-service/pdp/pdptest/inside/cli"
	"policy-service/pdp/pdptest/inside/command"
	"policy-service/pdp/pdptest/inside/format"
)

// says runs a command, and holds its exit code and what it prints against what they should be.
func says(t *testing.T, code cli.ExitCode, args string, parts ...string) {
	t.Helper()
	var out strings.Builder
	if got := command.Run(strings.Fields(args), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); got != code {
		t.Errorf("%s: exit %d, and not %d", args, got, code)
	}
	for _, part := range parts {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%s does not say %q:\n%s", args, part, out.String())
		}
	}
}

// What a crash left in the journal is no finding, and each command that reads a directory says that it is there.
func TestJournalOfACrash(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 3)
	const left = "3 records are in the journal only, left by a crash, and not here: the next start of the server puts"
	says(t, 0, "log verify "+data, "verified "+data, "not read: "+left)
	says(t, 0, "log verify --json "+data, `"journal_only":{"records":3}`)
	says(t, 0, "log export --data "+data, left)
	says(t, 0, "log stats --data "+data, "journal", left)
	says(t, 0, "log stats --json --data "+data, `"journal_only":{"records":3}`)
	says(t, 0, "log report --data "+data, left)
	says(t, 0, "log tail --data "+data, left)
	says(t, 2, "log show --data "+data+" "+crashedlog.ID(2), "no such record", left)
	says(t, 2, "log recover --data "+data, "--accept-loss")
	says(t, 2, "log recover --accept-loss --data "+data, "the journal is not damaged; there is no loss to accept")
	startAndStop(t, data)
	says(t, 0, "log show --data "+data+" "+crashedlog.ID(2), crashedlog.Secret(2))
	says(t, 0, "log tail --json --last 1000 --event log_opened_after_crash --data "+data, `"details":{"cut_bytes":9437184,"cut_seconds":60,"replayed":3,"signed":2,"size":2}`)
}

// startAndStop has a server open a data directory, and end in good order.
func startAndStop(t *testing.T, data string) {
	t.Helper()
	c := crash{data: data}
	server, _ := c.serve(t)
	stop(t, server)
}

// What the service cannot know to be its own is named by verify, report and doctor for ever, and is a finding strictly.
func TestUnsignedTailIsNamed(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 2)
	db, err := bbolt.Open(filepath.Join(data, format.LogDir, "00000001.db"), 0o600, nil)
	must(t, err)
	err = db.Update(func(tx *bbolt.Tx) error { // without the last checkpoint, one record has nothing but the MAC
		c := tx.Bucket([]byte(format.BucketCheckpoints)).Cursor()
		_, _ = c.Last()
		return errors.Join(c.Delete(), tx.Bucket([]byte(format.BucketMeta)).Delete([]byte(format.MetaHead)))
	})
	must(t, errors.Join(err, db.Close()))
	says(t, 10, "log verify --strict "+data, "unsigned not excluded: the last 1 records are covered by no checkpoint", "try: ")
	for range 2 {
		startAndStop(t, data)
		says(t, 0, "log verify "+data, "verified "+data, "not excluded: records 1 to 3 are somebody else's: a start found them without a checkpoint and without a MAC (missing)")
		says(t, 0, "log verify --json "+data, `"unsigned_tails":[{"from":1,"to":3,"cause":"missing"}]`)
		says(t, 10, "log verify --strict "+data, "unsigned not excluded: records 1 to 3")
		says(t, 10, "log verify --json --strict "+data, `"result":"unsigned","exit":10`)
		says(t, 0, "log report --data "+data, "unsigned tail", "record 4: records 1 to 3 may be anybody's")
		says(t, 0, "log report --json --data "+data, `"from":1,"to":3,"cause":"missing"}]`)
		says(t, 1, "doctor --policies "+starter(t)+" --data "+data, "records 1 to 3 may be anybody's")
	}
}

// A damaged journal keeps everything from writing until its loss is accepted; then the loss is on record.
func TestRecoverLog(t *testing.T) {
	t.Parallel()
	data := crashedlog.Make(t, 3)
	damage := fmt.Sprintf("journal.0 at byte %d: a frame that was durable is not there as it was written; missing are frames 2 to 2; 1 records are lost", crashedlog.Damage(t, data, 2))
	refused, err := exec.CommandContext(t.Context(), "policy-service", "serve", "--listen", "127.0.0.1:0", "--policies", starter(t), "--data", data).CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(refused), damage) || !strings.Contains(string(refused), "log recover --help") {
		t.Errorf("serve: %v\n%s", err, refused)
	}
	says(t, 2, "log key rotate --data "+data, damage, "log recover --accept-loss --data "+data)
	says(t, 2, "log redact --reason r --data "+data+" "+crashedlog.ID(1), damage, "log recover --accept-loss --data "+data)
	says(t, 0, "log verify "+data, "verified "+data, "2 records are in the journal only", damage)
	says(t, 1, "doctor --policies "+starter(t)+" --data "+data, damage, "policy-service log recover --accept-loss --data "+data)
	says(t, 0, "log recover --accept-loss --data "+data, "1 record lost, 2 kept", "journal.0.lost-", "journal.1.lost-")
	says(t, 0, "log verify "+data, "verified "+data)
	says(t, 0, "log report --data "+data, "1 record lost with a damaged journal, journal.0 at byte")
	says(t, 0, "log show --data "+data+" "+crashedlog.ID(3), crashedlog.Secret(3))
	startAndStop(t, data)
	says(t, 2, "log recover --accept-loss --data "+data, "there is no loss to accept")
}
