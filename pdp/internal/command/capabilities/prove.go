package capabilities

import (
	"errors"
	"fmt"
	"strings"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/command/cli"
)

// parseArguments reads the flag of the arguments of a call.
func parseArguments(given cli.Given) (evaluation.Object, error) {
	if given == "" {
		return evaluation.Object{}, nil
	}
	o, err := evaluation.ParseWithNulls([]byte(given), evaluation.DefaultLimits())
	if err != nil {
		return o, fmt.Errorf("--arguments is no JSON object: %w; write it like '{\"target\":\"staging\"}'", err)
	}
	return o, nil
}

// readToken reads the text of a token; - is standard input.
func readToken(s cli.Streams, name string) (string, error) {
	text, err := cli.ReadSmall(name, s.In)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w; give a file that holds one, or -", err)
	}
	return strings.TrimSpace(string(text)), nil
}

type proveCommand struct {
	Key       cli.Given `required:"" placeholder:"FILE" help:"The holder's private key, in PEM."`
	Token     cli.Given `placeholder:"FILE" help:"The file with the token; - is standard input. Give this or --id."`
	ID        cli.Given `name:"id" placeholder:"ID" help:"The id of the capability, in place of its token. Give --audience with it."`
	Audience  cli.Given `placeholder:"A" help:"The name of the verifier. The default is the audience of the token."`
	Tool      cli.Given `required:"" placeholder:"T" help:"The id of the tool that is called, such as agent-b:restart."`
	Arguments cli.Given `placeholder:"JSON" help:"The arguments of the call as the tool gets them: a JSON object. The default is {}."`
	Nonce     cli.Given `placeholder:"N" help:"The nonce of the last answer, if there was one."`
}

// Help ends the command's help.
func (proveCommand) Help() string {
	return "A proof counts once, and for a minute: make a new one for each call. Exit codes: 0 if it is printed, 2 if it cannot be made."
}

// Run prints a proof.
func (c proveCommand) Run(s cli.Streams) error {
	holder, _, err := readKey(s, c.Key)
	if err != nil {
		return err
	}
	if holder == nil {
		return errors.New("the key is a public one, and signs nothing; give --key the private one")
	}
	if (c.Token == "") == (c.ID == "") {
		return errors.New("a proof is about one capability; give --token or --id")
	}
	claim := capability.Claim{
		Capability: string(c.ID), Audience: string(c.Audience), Tool: string(c.Tool), Nonce: string(c.Nonce),
	}
	if claim.Arguments, err = parseArguments(c.Arguments); err != nil {
		return err
	}
	if c.Token != "" {
		if err := c.of(s, &claim, holder); err != nil {
			return err
		}
	}
	if claim.Audience == "" {
		return errors.New("an id does not say who verifies; give --audience, which is the server of the tool")
	}
	proof, err := holder.Prove(claim)
	if err != nil {
		return fmt.Errorf("cannot prove the call: %w; correct it, and run it again", err)
	}
	s.Print("%s", proof)
	return nil
}

// of takes the id and the audience from the token.
func (c proveCommand) of(s cli.Streams, claim *capability.Claim, holder *capability.Holder) error {
	text, err := readToken(s, string(c.Token))
	if err != nil {
		return err
	}
	token, refusal := capability.ParseToken(text)
	if refusal != nil {
		return fmt.Errorf("%s holds no token; give --token the file that capabilities request wrote", c.Token)
	}
	if token.Key.Thumbprint() != holder.Key().Thumbprint() {
		return fmt.Errorf("the token is bound to the key %s, and --key is %s; give the key that it was requested with", token.Key.Thumbprint(), holder.Key().Thumbprint())
	}
	if claim.Capability = token.ID; claim.Audience == "" {
		claim.Audience = token.Audience
	}
	return nil
}
