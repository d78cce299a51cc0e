package server_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// Every route that is served is described, and every one described is served.
func TestRoutesAreDescribed(t *testing.T) {
	t.Parallel()
	served, err := server.Routes()
	must(t, err)
	described := pdptest.NewOpenAPI(t).Operations()
	slices.Sort(served)
	slices.Sort(described)
	if !slices.Equal(served, described) {
		in := func(all []string) func(string) bool {
			return func(one string) bool { return slices.Contains(all, one) }
		}
		t.Errorf("served and not in schemas/openapi.yaml %v\nthere and not served %v", slices.DeleteFunc(slices.Clone(served), in(described)), slices.DeleteFunc(described, in(served)))
	}
}

// Everything that goes over the wire in this package's goldens is as the
// OpenAPI document says.
func TestWireIsAsDescribed(t *testing.T) {
	t.Parallel()
	o := pdptest.NewOpenAPI(t)
	files, err := filepath.Glob("testdata/wire/*.txtar")
	must(t, err)
	files = append(files, "testdata/discovery/public.txtar")
	checked := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		must(t, err)
		for _, f := range archive.Files {
			name, ok := strings.CutSuffix(f.Name, ".request")
			if !ok {
				continue
			}
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(rawRequest(f.Data))))
			if err != nil {
				continue // malformed on purpose
			}
			sent, _ := io.ReadAll(r.Body)
			resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(bytes.ReplaceAll(find(archive, name+".response"), []byte("\n"), []byte("\r\n")))), r)
			if err != nil {
				continue // refused by net/http before it was a request
			}
			got, _ := io.ReadAll(resp.Body)
			if r.Method == http.MethodHead || len(bytes.TrimSpace(got)) == 0 || resp.StatusCode == 400 && !strings.Contains(resp.Header.Get("Content-Type"), "json") {
				continue
			}
			checked++
			if err := o.Check(r.Method, r.URL.Path, sent, resp.StatusCode, resp.Header.Get("Content-Type"), got); err != nil {
				t.Errorf("%s, %s: %v", file, name, err)
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d exchanges checked", checked)
	}
	for _, operation := range o.Operations() {
		if !o.Asked(operation) && !strings.Contains(operation, "/tenants/") && !strings.Contains(operation, "well-known") {
			t.Errorf("no golden asks %s", operation)
		}
	}
}
