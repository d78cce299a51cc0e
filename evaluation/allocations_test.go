package evaluation_test

import (
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/pdptest/night"
)

// TestDecodeAllocations: a request is one text and one array, however much is in it. A native one has besides the name
// of its tenant, and its purpose beside its context.
func TestDecodeAllocations(t *testing.T) {
	night.Measures(t)
	limits := evaluation.DefaultLimits()
	for what, c := range map[string]struct {
		body   string
		most   float64
		decode func(body []byte) error
	}{
		"AuthZEN": {authzenBody, 2, func(body []byte) error { _, err := evaluation.DecodeAuthZEN(body, "t1", limits); return err }},
		"native":  {nativeBody, 4, func(body []byte) error { _, err := evaluation.DecodeNative(body, limits); return err }},
		"object":  {escapedBody, 3, func(body []byte) error { _, err := evaluation.ParseObject(body, limits); return err }},
	} {
		body := []byte(c.body)
		if n := testing.AllocsPerRun(200, func() {
			if err := c.decode(body); err != nil {
				t.Fatal(err)
			}
		}); n > c.most {
			t.Errorf("%s: %v allocations, and not %v", what, n, c.most)
		}
	}
}
