package operate

import (
	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/signing"
)

type keysRotateCommand struct {
	Data string `required:"" placeholder:"DIR" help:"The data directory."`
}

// Help ends the command's help.
func (keysRotateCommand) Help() string {
	return "A running server signs with the new key within two seconds. " +
		"The previous key still verifies until the next rotation. If the key was stolen, rotate twice."
}

// Run replaces the key that signs tokens. API keys stay as they are.
func (c keysRotateCommand) Run(s cli.Streams) error {
	kid, err := signing.Rotate(c.Data)
	if err != nil {
		return err
	}
	s.Print("%s", kid)
	return nil
}
