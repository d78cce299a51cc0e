package capabilities

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/command/cli"
)

type keyCommand struct {
	Out cli.Given `short:"o" name:"out" placeholder:"FILE" help:"Write the private key to this file, which must not exist yet, and print the public key. Without the flag, the private key is printed."`
}

// Help ends the command's help.
func (keyCommand) Help() string {
	return "The key is one of Ed25519, in PEM (PKCS #8), as openssl makes it. The public key is a JWK: who holds it alone can " +
		"only ask for capabilities that the private key is needed for."
}

// The types of blocks in PEM.
const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// Run makes a key.
func (c keyCommand) Run(s cli.Streams) error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("cannot make a key: %w; try again", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fmt.Errorf("cannot write the key: %w; try again", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der})
	key, err := capability.NewKey(public)
	if err != nil {
		return err
	}
	jwk, err := key.MarshalJSON()
	if err != nil {
		return err
	}
	if c.Out == "" {
		s.Tell("public key %s", jwk)
		s.Print("%s", cli.Lines(bytes.TrimSpace(text)))
	} else {
		if err := writeNew(string(c.Out), text); err != nil {
			return fmt.Errorf("cannot write the key: %w; try another --out", err)
		}
		s.Print("%s", jwk)
	}
	s.Tell("thumbprint %s", key.Thumbprint())
	return nil
}

// writeNew writes a file for its owner alone, and refuses one that is there.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(name)
	}
	return err
}

// readKey reads the key of a holder: a private one in PEM, or a public one in PEM or as a JWK. Without the private key there
// is no Holder.
func readKey(s cli.Streams, name cli.Given) (holder *capability.Holder, public capability.Key, err error) {
	text, err := cli.ReadSmall(string(name), s.In)
	if err == nil {
		holder, public, err = parseKey(text)
	}
	if err != nil {
		return nil, public, fmt.Errorf("cannot read the key in %s: %w; policy-service capabilities key makes one", name, err)
	}
	return holder, public, nil
}

func parseKey(text []byte) (holder *capability.Holder, public capability.Key, err error) {
	block, _ := pem.Decode(text)
	switch {
	case block == nil:
		public, err = capability.ParseKey(text)
		return nil, public, err
	case block.Type == publicBlock:
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err == nil {
			public, err = capability.NewKey(key)
		}
		return nil, public, err
	case block.Type != privateBlock:
		return nil, public, fmt.Errorf("it holds a %s, and not a %s or %s", block.Type, privateBlock, publicBlock)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, public, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, public, errors.New("it signs nothing")
	}
	if holder, err = capability.NewHolder(signer); err != nil {
		return nil, public, err
	}
	return holder, holder.Key(), nil
}
