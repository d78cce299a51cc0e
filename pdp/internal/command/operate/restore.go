package operate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server"
)

// Restore makes a data directory of a backup.
type Restore struct {
	File       string    `arg:"" help:"The file that policy-service backup wrote."`
	Data       string    `required:"" placeholder:"DIR" help:"The data directory to make. It must not exist, or be empty."`
	Policies   cli.Given `placeholder:"DIR" help:"Write the bundle that was in force into this directory. It must not exist, or be empty."`
	Identity   cli.Given `placeholder:"FILE" help:"The file with the age key that decrypts the backup, as age-keygen writes it."`
	Key        cli.Given `placeholder:"FILE" help:"The public key of the decision log, as log key prints it. Without the flag, the key comes from the backup itself."`
	Checkpoint cli.Given `placeholder:"FILE" help:"The newest checkpoint of this decision log that you kept elsewhere. A backup that does not reach it is refused. It proves nothing about what came after it."`

	NothingCameAfter *int `placeholder:"N" help:"Go on as it was, because nothing was used, decided or revoked after the backup: N approval requests, capabilities and API keys count again. If N is another, the command lists them and restores nothing."`
}

// Help ends the command's help.
func (Restore) Help() string {
	return "The decision log in the backup is verified first. If anything is wrong, nothing is written.\n\n" +
		"A new decision log begins, and the old one is kept in DIR/restored to be read. Approval requests and capabilities " +
		"that were live end, since they may have been used after the backup; the first records of the new log say so. The " +
		"command says what else follows.\n\n" +
		"With --nothing-came-after N, all goes on as it was, if the backup was made after the server was stopped. serve asks " +
		"the witnesses and etcd of its configuration first, and starts only if they know no more of the log."
}

// Run restores, and prints the consequences.
func (c Restore) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	r := server.Restoring{Data: c.Data, Policies: string(c.Policies), NothingCameAfter: c.NothingCameAfter}
	var err error
	if r.Verify.Key, err = s.LogKey(c.Key); err != nil {
		return err
	}
	if r.Verify.Checkpoint, err = s.LogCheckpoint(c.Checkpoint); err != nil {
		return err
	}
	f, err := plainfile.Open(c.File)
	if err != nil {
		return fmt.Errorf("cannot read the backup: %w", err)
	}
	defer func() { _ = f.Close() }()
	content, err := c.open(bufio.NewReader(f))
	if err != nil {
		return err
	}
	done, err := r.From(ctx, content)
	if err != nil {
		return fmt.Errorf("cannot restore %s: %w; nothing was restored", c.File, err)
	}
	c.say(s, done)
	return nil
}

// open decrypts and unpacks the file, as far as it is encrypted and packed.
func (c Restore) open(f *bufio.Reader) (io.Reader, error) {
	if start, _ := f.Peek(len(ageStart)); string(start) == ageStart {
		if c.Identity == "" {
			return nil, fmt.Errorf("%s is encrypted with age; add --identity FILE", c.File)
		}
		keys, err := plainfile.ReadPrivate(string(c.Identity), 1<<20)
		if err != nil {
			return nil, fmt.Errorf("the identity cannot be read: %w", err)
		}
		identities, err := age.ParseIdentities(bytes.NewReader(keys))
		if err != nil {
			return nil, fmt.Errorf("%s holds no age key; try what age-keygen wrote", c.Identity) // the cause may quote it
		}
		plain, err := age.Decrypt(f, identities...)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be decrypted: %w; try the key of another recipient", c.File, err)
		}
		f = bufio.NewReader(plain)
	}
	if start, _ := f.Peek(2); string(start) == "\x1f\x8b" {
		return gzip.NewReader(f)
	}
	return f, nil
}

const ageStart = "age-encryption.org/"

func (c Restore) say(s cli.Streams, done server.Restored) {
	began := done.Head.Began.Format(time.RFC3339)
	s.Print("restored %s: the backup of %s, by version %s", c.Data, began, done.Head.Program)
	old := fmt.Sprintf("the decision log %s is verified: %s", done.Report.Origin, cli.Plural(int(done.Report.Size), "record"))
	if done.GoesOn {
		s.Print("  %s, and goes on as it was: you say that nothing came after the backup", old)
		s.Print("  start no server on the old directory any more: two logs would have one name, and verify would say forked")
	} else {
		s.Print("  %s; read it with --data %s", old, cli.Shell(filepath.Join(c.Data, server.RestoredDir)))
		s.Print("  nothing proves that no record came after it, so a new decision log begins, with a new key: give your auditors the key (policy-service log key)")
		s.Print("  checkpoints and witnesses of the old log may know more of it than the backup has; they say nothing of the new one")
		s.Print("  approval requests that were open, %d, and capabilities that were live, %d, have ended, because they may have been used after the backup: the new log names them",
			len(done.Approvals), len(done.Capabilities))
		s.Print("  new keys sign metadata and tokens: clients get them by themselves, and tokens of before are refused")
		s.Print("  API keys that were revoked after %s are good again: revoke them; those that were added after it are gone", began)
	}
	if left := done.JournalOnly; left != nil {
		s.Print("  not restored: %s that a crash left in the journal alone, and with them each revocation of an API key that they hold; back up again after the server was started once, and stopped",
			cli.Plural(int(left.Records), "record"))
	}
	if len(done.Unrecorded) > 0 {
		s.Print("  in force, and not on record: the API keys %s; if you did not add them right before the backup, its file was altered: revoke them", strings.Join(done.Unrecorded, ", "))
	}
	if len(done.Refused) > 0 {
		s.Print("  not in force, although their file says so, because of the decision log: the API keys %s", strings.Join(done.Refused, ", "))
	}
	for _, line := range done.Report.NotExcluded {
		s.Print("  %s %s", s.Colour(cli.Yellow, "not excluded:"), line)
	}
	for _, name := range slices.Sorted(maps.Keys(done.Missing)) {
		s.Print("  missing: %s: %s", name, done.Missing[name])
	}
	if c.Policies != "" {
		s.Print("  the bundle %s is in %s", done.End.Bundle, c.Policies)
	}
}
