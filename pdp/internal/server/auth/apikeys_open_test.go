package auth_test

import (
	"time"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
)

func init() {
	auth.KeyFile = keys.File
	auth.OpenKeys = func(dir string, now func() time.Time) (auth.APIKeys, error) {
		k, err := keys.OpenAt(dir, now)
		return apiKeys{k}, err
	}
}

type apiKeys struct{ *keys.Keys }

func (k apiKeys) Add(s auth.KeySpec) (string, error) {
	return k.Keys.Add(keys.Spec{Name: s.Name, Principal: s.Principal, Via: s.Via, Grant: s.Grant})
}

func (k apiKeys) List() any { return k.Keys.List() }
