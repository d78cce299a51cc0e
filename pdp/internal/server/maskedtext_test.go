package server_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// A text that an answer carries says no value that the configuration masks, however short, and neither does the record.
func TestTextsOfAnswersAreMasked(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	source := pdptest.Bundle(map[string]string{
		"a.cedar":          `@id("pay") @obligation("tell") permit(principal is user, action == Action::"pay", resource);`,
		"obligations.yaml": "tell: {type: notification, properties: {to: ops, body: \"pin ${context.arguments.pin}, amount ${context.arguments.amount}\"}}\n",
	})
	s := pdptest.Start(t, source, withData(data), func(c *server.Config) { c.DecisionLog.Mask = []string{"/context/arguments/pin"} })
	const one = `"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"plan"},"action":{"name":"pay"},` +
		`"context":{"arguments":{"pin":"p4711x","amount":7},"supported_obligations":["notification"]}`
	for path, body := range map[string]string{
		evaluationPath: `{` + one + `}`, "/access/v1/evaluations": `{` + one + `,"evaluations":[{},{}]}`,
	} {
		if got := s.Post(path, body); got.Status != 200 || !strings.Contains(got.Body, `"pin …, amount 7"`) || strings.Contains(got.Body, "p4711x") {
			t.Errorf("%s: got %d %s", path, got.Status, got.Body)
		}
	}
	stopAndWait(t, s)
	for _, l := range lines(t, data) {
		if strings.Contains(fmt.Sprint(l), "p4711x") {
			t.Errorf("the record of %s shows it", l.ID)
		}
	}
}
