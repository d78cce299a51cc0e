package audit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/decisionlog/segment"
)

type keyCommand struct {
	Print  keyPrintCommand  `cmd:"" default:"withargs" help:"Print the public keys of the decision log, oldest first."`
	Rotate keyRotateCommand `cmd:"" help:"Sign checkpoints with a new key from now on, and print its public key. The old key signs the change."`
}

type keyPrintCommand struct {
	logFlags
	Policy bool `help:"Print a policy that trusts these keys, newest first, and asks no witness: verify --policy and the tools of others read it."`
}

// Run prints the input of verify --key: all keys, old ones too, because each signed the checkpoints of its time.
func (c keyPrintCommand) Run(s cli.Streams) error {
	keys, err := c.keys()
	if err != nil {
		return c.failed("read the log's public keys", err)
	}
	if c.Policy {
		slices.Reverse(keys)
		_, err := s.Out.Write(c2sp.PolicyText(keys))
		return err
	}
	for _, key := range keys {
		s.Print("%s", key)
	}
	return nil
}

func (c keyPrintCommand) keys() (keys []string, err error) {
	if c.Server == "" {
		return segment.VerifierKeys(c.Data)
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	err = c.remote(func(log *remote.Log) error {
		keys, err = log.Keys(ctx)
		return err
	})
	return keys, err
}

type keyRotateCommand struct {
	logFlags `set:"permission=log.admin on all tenants"`
	Anyway   bool `help:"Rotate it though witnesses may be required, and may not know the new key yet."`
}

// Help ends the command's help.
func (keyRotateCommand) Help() string {
	return "If a server is running, use --server. With --data, no server may be running.\n\n" +
		"If the key was stolen, keep a checkpoint elsewhere before you rotate it. With the old key a thief can sign " +
		"another history up to now, and only that checkpoint tells the two apart."
}

// Run rotates the key.
func (c keyRotateCommand) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	key, err := c.rotate(ctx)
	if err != nil {
		return c.failed("rotate the log's key", err)
	}
	s.Print("%s", key)
	return nil
}

func (c keyRotateCommand) rotate(ctx context.Context) (key string, err error) {
	if c.Server != "" {
		err = c.remote(func(log *remote.Log) error {
			key, err = log.RotateKey(ctx, c.Anyway)
			return err
		})
		return key, err
	}
	if err := c.exists(); err != nil {
		return "", err
	}
	// Only a running server knows whether it requires them.
	if _, err := os.Stat(filepath.Join(c.Data, format.WitnessedFile)); err == nil && !c.Anyway {
		return "", errors.New("witnesses cosign this log, and a server that requires them answers nothing until they know the new key; add --anyway, and have each witness add the key at once")
	}
	log, err := decisionlog.Open(c.Data, decisionlog.Options{})
	if err != nil {
		return "", err
	}
	key, err = log.RotateKey(ctx, "")
	return key, errors.Join(err, log.Close())
}
