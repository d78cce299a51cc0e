package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"policy-service/pdp/internal/datakey"
)

// RenewKey proves to a server that a second secret of a name was made by [Keys.Renew], and that the marks of revocations
// were written by an edit. Write access to the file of keys alone adds no renewal, and takes no revocation back. Read access
// to this key is access to the data directory.
var RenewKey = datakey.Key{File: "api-keys.key", Of: "renewals and revocations of API keys", Moved: "with all api-keys.*, and add other keys"}

// Renewal is how a key is renewed.
type Renewal struct {
	Name string
	// Overlap is how long the secret before counts beside the new one.
	Overlap time.Duration
	// Lifetime is how long the new secret counts; 0 is as long as the one before, which may be without an end.
	Lifetime time.Duration
}

// Renew makes a second secret of a key, of the same name and the same grant. The secret before ends after an overlap. As
// with [Keys.Add], only the hash is stored.
func (k *Keys) Renew(r Renewal) (secret string, err error) {
	missing := errors.New("there is no key of that name in force; try policy-service keys list")
	err = k.store.edit(k, edit{missing: missing, afterwards: true, apply: func(file *document) error {
		var first, last *storedKey
		for i := range file.Keys {
			if stored := &file.Keys[i]; stored.Name == r.Name {
				if last = stored; first == nil {
					first = stored
				}
			}
		}
		if last == nil || last.refused || !last.Revoked.IsZero() {
			return missing
		}
		info, lifetime := last.Info, r.Lifetime
		if lifetime == 0 && !last.Expires.IsZero() {
			lifetime = last.Expires.Sub(last.Created)
		}
		info.ID, info.Renews, info.Expires, info.Revoked = "", first.ID, time.Time{}, time.Time{}
		prover, err := k.store.prover(true)
		if err != nil {
			return err
		}
		k.end(file, r.Name, k.stamp().Add(r.Overlap))
		secret = k.make(file, info, lifetime)
		made := &file.Keys[len(file.Keys)-1]
		made.Proof = proof(prover, *made)
		return nil
	}}) // and marked afterwards: a mark alone would end the secret there is
	if err != nil {
		return "", err
	}
	return secret, nil
}

func (dir directory) prover(make bool) ([]byte, error) {
	if make {
		return RenewKey.Open(string(dir))
	}
	return RenewKey.Read(string(dir))
}

// proof is a MAC of the members that make a renewal.
func proof(prover []byte, s storedKey) string {
	mac := hmac.New(sha256.New, prover)
	_, _ = fmt.Fprintf(mac, "renew\n%s\n%s\n%s\n%s\n%d", s.ID, s.Name, s.Renews, s.SHA256, s.Created.Unix())
	return hex.EncodeToString(mac.Sum(nil))
}

// renewed reports whether a key that is not on record yet renews those of its name that are: it was made by [Keys.Renew], and
// not after all of them were revoked.
func (k *Keys) renewed(s storedKey, others []Recorded) bool {
	odd := func(other Recorded) bool { return s.Renews != other.ID && s.Renews != other.Renews }
	lasts := func(other Recorded) bool { return !sooner(other.Revoked, s.Created) }
	if s.Renews == "" || slices.ContainsFunc(others, odd) || !slices.ContainsFunc(others, lasts) {
		return false
	}
	prover, err := k.store.prover(false)
	return err == nil && prover != nil && hmac.Equal([]byte(s.Proof), []byte(proof(prover, s)))
}
