package operate

import (
	"fmt"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/signing"
)

// Signing is about the key that signs tokens. Each command works while a server is running.
type Signing struct {
	Rotate signingRotateCommand `cmd:"" help:"Sign tokens with a new key from now on, and print its id."`
}

type signingRotateCommand struct {
	Data   string `xor:"signing" required:"" placeholder:"DIR" help:"The data directory."`
	Config string `xor:"signing" required:"" placeholder:"FILE" help:"The configuration of a replica, if the key is that of a cluster."`
}

// Help ends the command's help.
func (signingRotateCommand) Help() string {
	return "A running server signs with the new key within two seconds. " +
		"The previous key still verifies until the next rotation. If the key was stolen, rotate twice. " +
		"In a cluster, copy signing.jwks of this replica to all others then."
}

// Run replaces the key that signs tokens. API keys stay as they are.
func (c signingRotateCommand) Run(s cli.Streams) error {
	kid, err := c.rotate()
	if err != nil {
		return err
	}
	s.Print("%s", kid)
	return nil
}

func (c signingRotateCommand) rotate() (kid string, err error) {
	if c.Config == "" {
		if server.IsReplica(c.Data) { // its next start might be refused
			return "", fmt.Errorf("%s is the directory of a replica, and all have the same signing keys; give its configuration with --config in place of --data", c.Data)
		}
		return signing.Rotate(c.Data)
	}
	told, err := readConfig(c.Config)
	if err != nil {
		return "", err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	return server.RotateSigning(ctx, told)
}
