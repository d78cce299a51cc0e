package server

import (
	"crypto/rand"
	"fmt"
	"os"
	"slices"

	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/datakey"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/signing"
)

// maskKey makes the hashes of masked values, and seals what guesses could be held against. With it a person could try
// values against the log; without it new records cannot be joined with earlier ones, and no evidence in these opens.
var maskKey = datakey.Key{
	File:  mask.KeyFile,
	Of:    "masked values",
	Moved: "to begin with a new key, by which no evidence of before opens",
}

// pageKey seals page tokens. It is kept so that a search goes on after a restart.
var pageKey = datakey.Key{
	File:  "page.key",
	Of:    "page tokens",
	Moved: "to begin with a new key, by which searches of the last hour cannot go on",
}

// CheckKeys says why [Server.Start] would refuse the keys of a data directory, one error a key, and touches nothing. A
// key that does not exist yet is no error: Start makes it.
func CheckKeys(data string) []error {
	_, ofMasks := maskKey.Read(data)
	_, ofPages := pageKey.Read(data)
	_, ofApprovals := broker.Key.Read(data)
	errs := []error{segment.CheckKey(data), ofMasks, ofPages, ofApprovals, signing.Check(data)}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// ownKeys are the keys of a data directory, but for those of the log: one signs documents and tokens, one seals page tokens, and
// one is of the approvals, nil if the server will have none.
type ownKeys struct {
	signing   *signing.Keys
	pages     *pager
	approvals []byte
	api       *keys.Keys // those of callers; nil unless the server tells callers apart by them
}

// Ready implements [ready].
func (k *ownKeys) Ready(is *readiness) {
	if k.api == nil {
		return
	}
	if damage := k.api.Damage(); damage != nil {
		is.Keys = damage.Error()
		is.degrade()
	}
}

// openKeys makes the data directory if it does not exist, and opens the keys in it. Without a data directory the keys
// last as long as the process.
func openKeys(c *Config) (k ownKeys, err error) {
	data, log := c.Data, c.Program.Logger
	sealing := make([]byte, 32)
	_, _ = rand.Read(sealing) // never fails: it ends the program instead
	if data == "" {
		if k.signing, err = signing.Ephemeral(); err != nil {
			return k, err
		}
		log.Info("no data directory is given: there are no API keys, and what this process signs does not verify after it ends", "kid", k.signing.Current().KeyID())
	} else {
		if err := os.MkdirAll(data, 0o700); err != nil {
			return k, fmt.Errorf("cannot make the data directory: %w; try another --data", err)
		}
		if k.signing, err = signing.Open(data, log); err != nil {
			return k, err
		}
		if sealing, err = pageKey.Open(data); err != nil {
			return k, err
		}
	}
	if k.pages, err = newPager(sealing); err == nil && data != "" && c.Program.PDP.Recorder == nil {
		k.approvals, err = broker.OpenKey(data)
	}
	return k, err
}
