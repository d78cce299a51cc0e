package operate

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/signing"
)

// Signing is about the key that signs tokens. Each command works while a server is running.
type Signing struct {
	Rotate signingRotateCommand `cmd:"" help:"Sign tokens with a new key from now on, and print its id."`
}

type signingRotateCommand struct {
	Data string `required:"" placeholder:"DIR" help:"The data directory."`
}

// Help ends the command's help.
func (signingRotateCommand) Help() string {
	return "A running server signs with the new key within two seconds. " +
		"The previous key still verifies until the next rotation. If the key was stolen, rotate twice."
}

// Run replaces the key that signs tokens. API keys stay as they are.
func (c signingRotateCommand) Run(s cli.Streams) error {
	kid, err := signing.Rotate(c.Data)
	if err != nil {
		return err
	}
	s.Print("%s", kid)
	return nil
}
