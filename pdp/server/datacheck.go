package server

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/signing"
)

// pageKeyFile is the key of page tokens, below the data directory.
const pageKeyFile = "page.key"

// PrivateFiles are the files of a data directory that nobody but the service may
// read. Not all of them need be there.
func PrivateFiles() []string {
	return []string{decisionlog.KeyFile, decisionlog.NextKeyFile, maskKeyFile, pageKeyFile, signing.File, auth.KeyFile}
}

// CheckKeys says why [Server.Start] would refuse the keys of a data directory, one
// error a key, and touches nothing. What is not there yet is no reason: Start makes it.
func CheckKeys(data string) []error {
	var errs []error
	for _, err := range []error{decisionlog.CheckKey(data), checkMaskKey(filepath.Join(data, maskKeyFile)), signing.Check(data)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// checkMaskKey is the reading half of [keptKey].
func checkMaskKey(name string) error {
	key, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) == 0 {
		return nil
	}
	if err == nil && (len(key) != 32 || bytes.Equal(key, make([]byte, 32))) {
		err = fmt.Errorf("%s does not hold the 32 bytes of a key", name)
	}
	if err != nil {
		return fmt.Errorf("the key of masked values cannot be used: %w; put the file back from a backup, or move it away to begin with a new key", err)
	}
	return nil
}

// Leaf reads the files as [Server.Start] does, and returns the certificate that
// clients are shown.
func (f TLSFiles) Leaf() (*x509.Certificate, error) {
	config, _, err := readTLS(f)
	if err != nil {
		return nil, err
	}
	return config.Certificates[0].Leaf, nil
}
