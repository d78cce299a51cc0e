package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// What a tenant writes so that a load takes long is refused in its place, and the root's
// emergency forbid comes into force once the tenant's directory is out.
func TestATenantsFilesHoldUpNoForbid(t *testing.T) { tenantsFiles(t, false) }

// It is refused in no time.
func TestATenantsFilesTakeNoTime(t *testing.T) {
	night.Measures(t)
	tenantsFiles(t, true)
}

func tenantsFiles(t *testing.T, measured bool) {
	var flood, paths strings.Builder
	for i := range 20 {
		fmt.Fprintf(&flood, "%s{\"uid\":{\"type\":\"e\",\"id\":\"%d\"},\"attrs\":{\"a\":[", map[bool]string{true: "[\n", false: ",\n"}[i == 0], i)
		for n := range 2_000 {
			flood.WriteString(strconv.Itoa(n+1) + ",")
		}
		flood.WriteString(strings.Repeat("true,", 2_000) + `true]},"parents":[]}`)
	}
	flood.WriteString("]")
	paths.WriteString("permit(principal == user::\"x\", action, resource) when {\nfalse")
	for i := range 4_000 {
		fmt.Fprintf(&paths, "||context has a%d.b.c.d.e.f.g.h.i.j.k.l.m.n.o", i)
	}
	paths.WriteString("};")
	for name, c := range map[string]struct{ file, text, code string }{
		"colliding values": {"entities/e.json", flood.String(), "entity_form"},
		"long paths":       {"y.cedar", paths.String(), "policy_has"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, away := t.TempDir(), t.TempDir()
			writeAll(t, dir, map[string]string{"a.cedar": "@id(\"a\") permit(principal is user, action, resource);\n", "tenants/acme/x.cedar": "// nothing\n", "tenants/acme/" + c.file + ".not": "x"})
			loads := make(chan pdp.Status, 1_000)
			s := pdptest.Start(t, pdp.Dir(dir), func(config *server.Config) {
				config.Program.PDP.Quiet = 50 * time.Millisecond
				config.Program.PDP.OnLoad = func(status pdp.Status) { loads <- status }
			})
			start := processCPU(t)
			must(t, os.WriteFile(filepath.Join(away, "next"), []byte(c.text), 0o644)) // which is read whole
			must(t, os.Rename(filepath.Join(away, "next"), filepath.Join(dir, "tenants/acme", c.file)))
			for refused := false; !refused; {
				select {
				case status := <-loads:
					if status.Refused == nil {
						continue
					}
					refused = true
					for _, p := range status.Refused.Problems {
						if p.Severity == pdp.SeverityError && (p.Code != c.code || p.File != "tenants/acme/"+c.file || p.Line < 2) {
							t.Errorf("got %v", p)
						}
					}
				case <-time.After(patience):
					t.Fatal("the load is not refused")
				}
			}
			if took := processCPU(t) - start; measured && took > 10*time.Second {
				t.Errorf("the refusal took %v of CPU", took)
			}
			if answer := s.Post(evaluationPath, reloadQuestion); !strings.Contains(answer.Body, `"decision":true`) {
				t.Fatalf("got %v", answer)
			}
			writeAll(t, dir, map[string]string{"stop.cedar": "@id(\"stop\") forbid(principal, action, resource);\n"})
			must(t, os.Rename(filepath.Join(dir, "tenants/acme"), filepath.Join(away, "acme")))
			eventually(t, "the forbid", func() bool {
				return strings.Contains(s.Post(evaluationPath, reloadQuestion).Body, `"decision":false`)
			})
		})
	}
}

func processCPU(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
