package server

import (
	"crypto/x509"

	"policy-service/pdp/approval"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/signing"
)

// pageKeyFile is the key of page tokens, below the data directory.
const pageKeyFile = "page.key"

// PrivateFiles are the files of a data directory that nobody but the service may
// read. Not all of them need be there.
func PrivateFiles() []string {
	return []string{decisionlog.KeyFile, decisionlog.NextKeyFile, maskKey.file, pageKeyFile, approvalKey.file, approval.FileName, signing.File, auth.KeyFile}
}

// CheckKeys says why [Server.Start] would refuse the keys of a data directory, one
// error a key, and touches nothing. What is not there yet is no reason: Start makes it.
func CheckKeys(data string) []error {
	var errs []error
	for _, err := range []error{decisionlog.CheckKey(data), maskKey.check(data), approvalKey.check(data), signing.Check(data)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
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
