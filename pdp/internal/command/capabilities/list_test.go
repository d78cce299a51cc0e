package capabilities

import (
	"bytes"
	"strings"
	"testing"

	"policy-service/pdp/internal/command/cli"
)

// Where several replicas share capabilities, a use that may be on record or not is shown with where that is, and since when.
func TestUnderWay(t *testing.T) {
	var out bytes.Buffer
	text := `{"id":"cap_1","state":"revoked","holder":{"type":"agent","id":"a"},"in_flight":[{"decision":"d7","origin":"pdp/eu-2","since":"2026-01-02T03:04:05Z"}]}`
	if err := (serverFlags{}).print(cli.Streams{Out: &out}, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, "under way one use was under way, since") || !strings.Contains(got, "at pdp/eu-2, by decision d7") {
		t.Error(got)
	}
}
