package operate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"filippo.io/age"

	"policy-service/pdp/internal/backup"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/connection"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server"
)

// Backup fetches a backup of a running server, or makes one of a data directory.
type Backup struct {
	Data       string    `xor:"backup" required:"" placeholder:"DIR" help:"The data directory of a server that does not run."`
	Server     string    `xor:"backup" required:"" asks:"server" placeholder:"URL" help:"The URL of a running server. It must be https, or http on this machine, or unix:PATH for its socket. Without it and --data, $$POLICY_SERVICE_SERVER is used."`
	Credential cli.Given `placeholder:"FILE" help:"The file with an API key or a token, which tells the server who you are. It needs the permission backup on all tenants. Without the flag, the key itself in $$POLICY_SERVICE_KEY is used."`
	CA         cli.Given `name:"ca" placeholder:"FILE" help:"The root certificates to trust instead of the system's, in PEM."`
	Out        string    `short:"o" name:"out" required:"" placeholder:"FILE" help:"The file to write. It appears as a whole or not at all, and only its owner may read it."`
	Keys       bool      `help:"Put the private keys in, too. This needs --recipient."`
	Recipient  []string  `sep:"none" placeholder:"AGE" help:"Encrypt the file for the holder of this age key, such as age1…. Repeat for more."`
}

// Help ends the command's help.
func (Backup) Help() string {
	return "A backup holds all that was answered before the command began: the decision log, the bundles that decided, " +
		"approval requests, capabilities, and hashes of API keys. It is a tar file, compressed with gzip, and encrypted " +
		"with age if there is a recipient. This program encrypts, so with --server the private keys come over TLS.\n\n" +
		"policy-service restore reads it."
}

// Validate refuses flags that would be ignored, and keys that would lie open.
func (c Backup) Validate() error {
	if c.Server == "" && (c.Credential != "" || c.CA != "") {
		return errors.New("--credential and --ca are for --server; leave them out")
	}
	if c.Keys && len(c.Recipient) == 0 {
		return errors.New("--keys writes private keys, and they are written only encrypted; add --recipient age1…")
	}
	return nil
}

// Run writes the file.
func (c Backup) Run(s cli.Streams) error {
	var recipients []age.Recipient
	for _, one := range c.Recipient {
		r, err := age.ParseX25519Recipient(one)
		if err != nil {
			return fmt.Errorf("--recipient %q is no age key: %w; try what age-keygen prints as the public key", one, err)
		}
		recipients = append(recipients, r)
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	var end backup.End
	err := c.file(func(to io.Writer) (err error) {
		var encrypted io.WriteCloser
		if len(recipients) > 0 {
			if encrypted, err = age.Encrypt(to, recipients...); err != nil {
				return err
			}
			to = encrypted
		}
		packed, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
		if err == nil {
			end, err = c.read(ctx, packed)
		}
		if err == nil {
			err = packed.Close()
		}
		if err == nil && encrypted != nil {
			err = encrypted.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	s.Tell("backed up %s: %s, %s", c.Out, end.Log.Origin, cli.Plural(int(end.Log.Size), "record"))
	return nil
}

// read copies a backup, and reads it on the way: one that was cut is none.
func (c Backup) read(ctx context.Context, to io.Writer) (end backup.End, err error) {
	from, write := io.Pipe()
	go func() { _ = write.CloseWithError(c.fetch(ctx, write)) }()
	_, end, err = backup.Read(io.TeeReader(from, to), "", func(string) int64 { return -1 })
	_ = from.CloseWithError(err)
	return end, err
}

func (c Backup) fetch(ctx context.Context, to io.Writer) error {
	if c.Server == "" {
		if err := server.BackUpStopped(c.Data, c.Keys, to); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot back up %s: %w; give the data directory of a server that has run", c.Data, err)
		} else if err != nil {
			return fmt.Errorf("cannot back up %s: %w; ask a running server with --server, and else try it as the user that serve runs as", c.Data, err)
		}
		return nil
	}
	options, err := connection.Options(c.Credential, c.CA)
	if err != nil {
		return err
	}
	from, err := httpclient.New(c.Server, options)
	if err != nil {
		return err
	}
	defer from.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	answer, err := from.Ask(ctx, http.MethodGet, fmt.Sprintf("/v1/backup?keys=%t", c.Keys), nil, nil, http.StatusOK)
	if err == nil {
		defer func() { _ = answer.Body.Close() }()
		_, err = io.Copy(to, awake{answer.Body, time.AfterFunc(idle, end)})
	}
	if err != nil {
		return fmt.Errorf("cannot fetch the backup: %w; %s", err, connection.Try(err))
	}
	return nil
}

// idle is how long a server may send nothing. Before the first byte it copies its stores.
const idle = 5 * time.Minute

// awake puts off the end of an idle connection with each read.
type awake struct {
	io.Reader
	idle *time.Timer
}

func (a awake) Read(b []byte) (int, error) {
	a.idle.Reset(idle)
	return a.Reader.Read(b)
}

// file writes a file beside its name, and gives it the name when it is whole.
func (c Backup) file(write func(io.Writer) error) (err error) {
	if info, err := os.Stat(c.Out); c.Out == "-" || err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("cannot write the backup to %s, which is no file; try another --out", c.Out)
	}
	var failed error
	err = plainfile.Stream(c.Out, func(w io.Writer) error {
		failed = write(w)
		return failed
	})
	if err != nil && failed == nil {
		err = fmt.Errorf("cannot write the backup: %w; try another --out", err)
	}
	return err
}
