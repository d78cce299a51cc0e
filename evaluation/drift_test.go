package evaluation_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
)

func TestDecodeDrift(t *testing.T) {
	t.Parallel()
	limits := evaluation.DefaultLimits()
	x := func(n int) string { return strings.Repeat("x", n) }
	parts := func(n, length int) string {
		return `["` + strings.TrimSuffix(strings.Repeat(x(length)+`","`, n), `","`) + `"]`
	}
	for body, want := range map[string]evaluation.Drift{
		`{"server":"jira","tool":"create_ticket","change":"changed","parts":["description","inputSchema"],"locked":"sha256:a-_9","found":"sha256:b"}`: {
			Server: "jira", Tool: "create_ticket", Change: "changed", Parts: []string{"description", "inputSchema"}, Locked: "sha256:a-_9", Found: "sha256:b",
		},
		`{"server":"jira","change":"more"}`:                                                                         {Server: "jira", Change: "more"},
		`{"server":"jira","change":"gone"}`:                                                                         {Server: "jira", Change: "gone"},
		`{"server":"jira","tool":"t","change":"swapped","with":"` + x(256) + `"}`:                                   {Server: "jira", Tool: "t", Change: "swapped", With: x(256)},
		`{"server":"jira","change":"instructions"}`:                                                                 {Server: "jira", Change: "instructions"},
		`{"server":"jira","tool":null,"change":"instructions","parts":null,"locked":null,"found":""}`:               {Server: "jira", Change: "instructions"},
		`{"server":"` + x(64) + `","tool":"` + x(256) + `","change":"new","found":"` + x(128) + `"}`:                {Server: x(64), Tool: x(256), Change: "new", Found: x(128)},
		`{"server":"jira","tool":"reset_password 漢 é \\u202e","change":"gone","parts":[]}`:                          {Server: "jira", Tool: `reset_password 漢 é \u202e`, Change: "gone"},
		`{"server":"jira","tool":"t","change":"renamed","parts":` + parts(1, 64) + `}`:                              {Server: "jira", Tool: "t", Change: "renamed", Parts: []string{x(64)}},
		`{"server":"jira","tool":"t","change":"renamed","parts":` + strings.Replace(parts(32, 1), "x", "", 1) + `}`: {Server: "jira", Tool: "t", Change: "renamed", Parts: append([]string{""}, strings.Split(x(31), "")...)},
	} {
		if got, err := evaluation.DecodeDrift([]byte(body), limits); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%.200s: got %+v, %v", body, got, err)
		}
	}
	const begins = `{"server":"jira","tool":"t","change":"changed",`
	for body, pointer := range map[string]string{
		``:   "",
		`[]`: "",
		`{}`: "/server",
		`{"server":"jira","tool":"t","change":"changed"`:                              "",
		`{"server":"","tool":"t","change":"changed"}`:                                 "/server",
		`{"server":7,"tool":"t","change":"changed"}`:                                  "/server",
		`{"server":"` + x(65) + `","tool":"t","change":"changed"}`:                    "/server",
		`{"server":"a\nb","tool":"t","change":"changed"}`:                             "/server",
		`{"server":"jira","change":"changed"}`:                                        "/tool",
		`{"server":"jira","tool":"","change":"swapped"}`:                              "/tool",
		`{"server":"jira","change":"renamed"}`:                                        "/tool",
		begins + `"with":"a\n"}`:                                                      "/with",
		begins + `"with":"` + x(257) + `"}`:                                           "/with",
		`{"server":"jira","tool":"t","change":"instructions"}`:                        "/tool",
		`{"server":"jira","tool":["t"],"change":"new"}`:                               "/tool",
		`{"server":"jira","tool":"` + x(257) + `","change":"new"}`:                    "/tool",
		`{"server":"jira","tool":"a\u202eb","change":"new"}`:                          "/tool",
		`{"server":"jira","tool":"a\u0000","change":"new"}`:                           "/tool",
		`{"server":"jira","tool":"a\u3164","change":"new"}`:                           "/tool",
		`{"server":"jira","tool":"a\ufe0fb","change":"new"}`:                          "/tool",
		`{"server":"jira\u2800","tool":"a","change":"new"}`:                           "/server",
		`{"server":"jira","tool":"t"}`:                                                "/change",
		`{"server":"jira","tool":"t","change":null}`:                                  "/change",
		`{"server":"jira","tool":"t","change":"Changed"}`:                             "/change",
		`{"server":"jira","tool":"t","change":""}`:                                    "/change",
		begins + `"parts":"description"}`:                                             "/parts",
		begins + `"parts":{}}`:                                                        "/parts",
		begins + `"parts":` + parts(33, 1) + `}`:                                      "/parts",
		begins + `"parts":["a",7]}`:                                                   "/parts/1",
		begins + `"parts":["a",null]}`:                                                "/parts/1",
		begins + `"parts":["a",` + parts(1, 65)[1:] + `}`:                             "/parts/1",
		begins + `"parts":["\u2066"]}`:                                                "/parts/0",
		begins + `"locked":"` + x(129) + `"}`:                                         "/locked",
		begins + `"locked":"a b"}`:                                                    "/locked",
		begins + `"found":"é"}`:                                                       "/found",
		begins + `"found":1}`:                                                         "/found",
		begins + `"founds":"a"}`:                                                      "/founds",
		begins + `"Locked":"a"}`:                                                      "/Locked",
		begins + `"tool":"u"}`:                                                        "/tool",
		begins + `"x":` + strings.Repeat(`{"x":`, 16) + "1" + strings.Repeat("}", 17): strings.Repeat("/x", 16),
	} {
		var bad *evaluation.Error
		if got, err := evaluation.DecodeDrift([]byte(body), limits); !reflect.DeepEqual(got, evaluation.Drift{}) || !errors.As(err, &bad) || bad.Pointer != pointer || bad.TooLarge {
			t.Errorf("%.100s: got %+v, %v, not at %s", body, got, err, pointer)
		}
	}
}

// What is accepted is within its bounds, and is the same when it is sent again.
func FuzzDecodeDrift(f *testing.F) {
	f.Add([]byte(`{"server":"jira","tool":"create_ticket","change":"changed","parts":["description"],"locked":"sha256:a","found":"sha256:b"}`))
	f.Add([]byte(`{"server":"jira","change":"instructions","tool":null}`))
	f.Add([]byte(`{"server":"jira","server":"","x":1}`))
	limits := evaluation.DefaultLimits()
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := evaluation.DecodeDrift(body, limits)
		if err != nil {
			holds(t, evaluation.Request{}, err)
			if !reflect.DeepEqual(d, evaluation.Drift{}) {
				t.Errorf("it is refused, and yet a drift: %+v", d)
			}
			return
		}
		text, err := json.Marshal(d)
		if err != nil || len(text) > 6*(evaluation.DriftServer+2*evaluation.DriftTool+2*evaluation.DriftDigest+evaluation.DriftParts*evaluation.DriftPart)+300 {
			t.Errorf("%d bytes go on record: %v", len(text), err)
		}
		if again, err := evaluation.DecodeDrift(text, limits); err != nil || fmt.Sprintf("%q", again) != fmt.Sprintf("%q", d) {
			t.Errorf("%+v is decoded again to %+v, %v", d, again, err)
		}
	})
}
