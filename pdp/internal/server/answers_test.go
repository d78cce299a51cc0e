package server_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// TestAnswers: the bundle in testdata/answers has its digest, and each request gets the answer that it always got.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const digest = "h1:RD6GAoxt1MUH3iwo5GRa4FW8p/SRQ9rCqDi/wI8ZZd4="
	dir := filepath.Join("testdata", "answers")
	bundle := pdp.Dir(filepath.Join(dir, "bundle"))
	loaded, err := pdp.New(bundle, pdp.Options{})
	must(t, err)
	if got := loaded.Bundle().Digest(); got != digest {
		t.Errorf("the digest is %s, and was %s", got, digest)
	}
	var all []struct {
		Path   string            `json:"path"`
		Header map[string]string `json:"header"`
		Body   string            `json:"body"`
		Status int               `json:"status"`
		Answer string            `json:"answer"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "answers.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &all))
	if len(all) < 40 {
		t.Fatalf("there are %d answers", len(all))
	}
	s := pdptest.Start(t, bundle, func(c *server.Config) {
		c.Program.PDP.Now = func() time.Time { return time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC) }
	})
	dropped := regexp.MustCompile(`,"dropped":\[[^]]*\]`) // which explanations did not have yet
	for n, e := range all {
		var header []string
		for name, value := range e.Header {
			header = append(header, name, value)
		}
		if got := s.Post(e.Path, e.Body, header...); got.Status != e.Status || dropped.ReplaceAllString(got.Body, "") != e.Answer {
			t.Errorf("%d: %s %s %v\ngot %d %s\nwas %d %s", n, e.Path, e.Body, e.Header, got.Status, got.Body, e.Status, e.Answer)
		}
	}
}
