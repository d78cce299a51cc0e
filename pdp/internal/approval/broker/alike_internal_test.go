package broker

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// A long name of a member over many texts is copied neither where nothing is compared, nor for each argument. The names
// of the request are compared beside it.
func TestLongNamesAreNotCopiedForEachText(t *testing.T) {
	long := fmt.Sprintf(`{%q:[%s"b"]}`, strings.Repeat("x", 64<<10), strings.Repeat(`"b",`, 8000))
	request := jsontext.Value(`{"subject":{"type":"agent","id":"a","properties":` + long + `},"action":{"name":"n"},
		"context":{"other":` + long + `,"arguments":` + long + `,"on_behalf_of":[{"type":"user","id":"m"}]},"resource":{"type":"tool","id":"r"}}`)
	var names []string
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for at, text := range compared(request) {
		if len(at) < 1<<10 {
			names = append(names, string(at)+" "+text)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d bytes are copied", used)
	}
	if got := strings.Join(names, ", "); got != "/subject/id a, /action/name n, /context/on_behalf_of/0/id m, /resource/id r" {
		t.Errorf("compared are %s", got)
	}
	names = nil
	for at, text := range compared(jsontext.Value(`{"subject":{"id":"a"},"context":{"agent":{"type":"t","id":"i"},"arguments":{"a/b":["x",{"c":"y"}],"d":"z"}}}`)) {
		names = append(names, string(at)+" "+text)
	}
	if got := strings.Join(names, ", "); got != "/subject/id a, /context/agent/id i, /context/arguments/a~1b/0 x, /context/arguments/a~1b/1/c y, /context/arguments/d z" {
		t.Errorf("compared are %s", got)
	}
}
