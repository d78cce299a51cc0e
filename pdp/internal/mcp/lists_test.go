package mcp_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/pdptest/mcptest"
)

var updateLists = flag.Bool("update-lists", false, "write what servers of others list")

// testLists holds what toolschema's tests take for the tools of other servers to what those list.
func testLists(t *testing.T, others *mcptest.Others, everything mcptest.Everything) {
	dir := t.TempDir()
	for name, command := range map[string][]string{
		"everything": others.Server("everything"), "filesystem": others.Server("filesystem", dir), "memory": others.Server("memory"),
		"conformance": everything.Command(),
	} {
		list := bytes.ReplaceAll(listed(t, command), []byte(dir), []byte("/srv"))
		file := filepath.Join("toolschema/testdata/lists", name+".json")
		if *updateLists {
			orFail(t, os.WriteFile(file, list, 0o600))
		}
		kept, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(kept, list) {
			t.Errorf("%s lists other tools than %s has (%v): -update-lists", name, file, err)
		}
	}
}

// listed is what a server lists over its standard streams, indented.
func listed(t *testing.T, command []string) []byte {
	t.Helper()
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	in, err := c.StdinPipe()
	orFail(t, err)
	out, err := c.StdoutPipe()
	orFail(t, err)
	orFail(t, c.Start())
	defer func() { _ = in.Close(); _ = c.Wait() }()
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	lines := bufio.NewReader(out)
	answer := func(id int) jsontext.Value {
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("%v: %v", command, err)
			}
			var m struct {
				ID     any
				Result jsontext.Value
			}
			if json.Unmarshal(line, &m) == nil && m.ID == float64(id) {
				return m.Result
			}
		}
	}
	answer(1)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	result := answer(2)
	orFail(t, result.Indent())
	return append(result, '\n')
}
