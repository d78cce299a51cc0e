package auth

import (
	"context"
	"errors"
	"sync"

	"github.com/go-jose/go-jose/v4"
)

// HaveKeys looks for the keys of all issuers now, and says of each why none of its tokens could be verified; nil if they
// can. It is for those who look before anything depends on it.
func (j *JWT) HaveKeys(ctx context.Context) []error {
	errs := make([]error, len(j.issuers))
	var all sync.WaitGroup
	for n, issuer := range j.issuers {
		all.Go(func() {
			keys, err := issuer.source.keys(ctx, func(jose.JSONWebKey) bool { return true })
			if err == nil && len(keys) == 0 {
				err = errors.New("the issuer has no key that can be used")
			}
			errs[n] = err
		})
	}
	all.Wait()
	return errs
}
