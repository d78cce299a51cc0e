package console

import (
	"net/url"
	"testing"

	"policy-service/pdp/internal/approval/inbox"
)

// A form counts with the digest of all that there is; without it, it is left to the API only if it is certain that the API
// lets it count for nothing.
func TestFormsThatSawAll(t *testing.T) {
	t.Parallel()
	f := &facts{approval: inbox.Request{JSON: []byte(`{}`)}}
	f.approval.Version = 2
	for _, test := range []struct {
		version int
		shown   string
		want    bool
	}{
		{1, "", true}, {2, "", false}, {3, "", false}, {2, "other", false}, {2, f.digest(), true}, {3, f.digest(), true},
	} {
		v := &visit{form: url.Values{shownField: {test.shown}}}
		if got := v.hadSeen(f, test.version); got != test.want {
			t.Errorf("version %d with %q: got %t", test.version, test.shown, got)
		}
	}
}
