package main // and not main_test: it knows the flags

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"policy-service/pdp/server"
)

var updateKeys = flag.Bool("update-keys", false, "write the table of keys into the README")

// keyFlags are the flags of keys, by their paths.
func keyFlags(t *testing.T) map[string]string {
	t.Helper()
	flags := map[string]string{}
	for field := range reflect.TypeFor[configFlags]().Fields() {
		if key := field.Tag.Get("key"); key != "" {
			flags[key] = flagName(field)
		}
	}
	return flags
}

// TestREADMEKeys holds the README's table to the keys there are. After a change of one:
// go test ./cmd/policy-service -run READMEKeys -update-keys.
func TestREADMEKeys(t *testing.T) {
	flags := keyFlags(t)
	var table strings.Builder
	for _, k := range server.Keys() {
		name, byDefault, reloads := "", "", "restart"
		if f := flags[k.Path]; f != "" {
			name = "`" + f + "`"
			delete(flags, k.Path)
		}
		switch {
		case k.Default != "":
			byDefault = "`" + k.Default + "`"
		case k.Required:
			byDefault = "required"
		}
		if k.Reloads {
			reloads = "yes"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", k.Path, name, byDefault, reloads, k.Doc)
	}
	if len(flags) > 0 {
		t.Errorf("flags of keys that do not exist: %v", flags)
	}
	text, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| key | flag | default | SIGHUP | is |\n|---|---|---|---|---|\n"
	before, after, found := strings.Cut(string(text), head)
	if !found {
		t.Fatal("the README has no table of keys")
	}
	rows := regexp.MustCompile(`\A(\|.*\n)*`).FindString(after)
	if rows == table.String() {
		return
	}
	if !*updateKeys {
		t.Fatalf("the README's table of keys is not what the tags of server.Config say; try go test ./cmd/policy-service -run READMEKeys -update-keys. Want\n%s", &table)
	}
	if err := os.WriteFile(readmePath, []byte(before+head+table.String()+strings.TrimPrefix(after, rows)), 0o644); err != nil {
		t.Fatal(err)
	}
}
