package broker_test

import (
	"slices"
	"testing"

	"policy-service/obligations"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
)

// TestUnboundDigest: the digest of a resource is bound whatever material says, and its other properties are not.
func TestUnboundDigest(t *testing.T) {
	t.Parallel()
	for shown, want := range map[string][]string{
		`{"resource":{"properties":{"digest":"d"}}}`:           nil,
		`{"resource":{"properties":{"digest":"d","other":1}}}`: {"resource.properties"},
		`{"subject":{"properties":{"digest":"d"}}}`:            {"subject.properties"},
	} {
		a := approval.Approval{ApprovalRequest: approval.ApprovalRequest{
			Shown: []byte(shown),
			Terms: obligations.Terms{Material: []string{"action"}},
		}}
		if got := broker.Unbound(a); !slices.Equal(got, want) {
			t.Errorf("%s: not bound to %v, want %v", shown, got, want)
		}
	}
}
