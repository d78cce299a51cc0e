package server

import (
	"policy-service/pdp/approval"
	"policy-service/pdp/datakey"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/signing"
)

// pageKeyFile is the key of page tokens, below the data directory.
const pageKeyFile = "page.key"

// maskKey makes the hashes of masked values. With it a person could try values against the log; without it new records
// cannot be joined with earlier ones.
var maskKey = datakey.Key{
	File:  "mask.key",
	Of:    "masked values",
	Moved: "to begin with a new key",
}

// PrivateFiles are the files of a data directory that nobody but the service may
// read. Not all of them need be there.
func PrivateFiles() []string {
	return []string{
		decisionlog.KeyFile, decisionlog.NextKeyFile, maskKey.File, pageKeyFile, approvalKey.File, approval.FileName,
		signing.File, auth.KeyFile,
	}
}

// CheckKeys says why [Server.Start] would refuse the keys of a data directory, one
// error a key, and touches nothing. What is not there yet is no reason: Start makes it.
func CheckKeys(data string) []error {
	var errs []error
	for _, err := range []error{decisionlog.CheckKey(data), maskKey.Check(data), approvalKey.Check(data), signing.Check(data)} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
