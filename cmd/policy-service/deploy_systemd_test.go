package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// unit is a unit file: section, key, values in order.
type unit map[string]map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	u, section := unit{}, ""
	for line := range strings.Lines(string(deployed(t, name))) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
			u[section] = map[string][]string{}
		case ok && section != "":
			u[section][key] = append(u[section][key], value)
		default:
			t.Fatalf("%s: %q is no line of a unit", name, line)
		}
	}
	return u
}

// hardening is what the unit must say, so that no edit loosens it in passing.
var hardening = map[string]string{
	"AmbientCapabilities":     "",
	"CapabilityBoundingSet":   "",
	"LimitCORE":               "0",
	"LimitNOFILE":             "65536",
	"LockPersonality":         "yes",
	"MemoryDenyWriteExecute":  "yes",
	"NoNewPrivileges":         "yes",
	"PrivateDevices":          "yes",
	"PrivateTmp":              "yes",
	"PrivateUsers":            "yes",
	"ProtectClock":            "yes",
	"ProtectControlGroups":    "yes",
	"ProtectHome":             "yes",
	"ProtectHostname":         "yes",
	"ProtectKernelLogs":       "yes",
	"ProtectKernelModules":    "yes",
	"ProtectKernelTunables":   "yes",
	"ProtectProc":             "invisible",
	"ProtectSystem":           "strict",
	"RemoveIPC":               "yes",
	"RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
	"RestrictNamespaces":      "yes",
	"RestrictRealtime":        "yes",
	"RestrictSUIDSGID":        "yes",
	"StateDirectoryMode":      "0700",
	"SystemCallArchitectures": "native",
	"SystemCallErrorNumber":   "EPERM",
	"SystemCallFilter":        "@system-service|~@privileged @resources",
	"Type":                    "notify",
	"UMask":                   "0077",
}

// running is the rest of the section.
var running = []string{
	"Environment", "ExecReload", "ExecStart", "ExecStartPre", "Group", "MemoryMax", "Restart", "RestartSec", "StateDirectory", "TimeoutStartSec", "TimeoutStopSec", "User",
}

func TestUnit(t *testing.T) {
	for _, name := range []string{"systemd/policy-service.service", "systemd/mcp-gateway.service"} {
		t.Run(name, func(t *testing.T) { checkUnit(t, readUnit(t, name)) })
	}
}

func checkUnit(t *testing.T, u unit) {
	t.Helper()
	service := u["Service"]
	for key, want := range hardening {
		if values, ok := service[key]; !ok || strings.Join(values, "|") != want {
			t.Errorf("%s=%s, want %s", key, strings.Join(values, "|"), want)
		}
	}
	for key := range service {
		if _, hard := hardening[key]; !hard && !slices.Contains(running, key) {
			t.Errorf("%s is a directive that no test knows: it is misspelt, or add it to one of the lists", key)
		}
	}
	for section, wants := range map[string]string{"Unit": "StartLimitIntervalSec=0", "Install": "WantedBy=multi-user.target"} {
		key, value, _ := strings.Cut(wants, "=")
		if got := u[section][key]; len(got) != 1 || got[0] != value {
			t.Errorf("[%s] %s=%v, want %s", section, key, got, value)
		}
	}
}

// TestUnitRuns: what it runs is what this program has, in places that the unit provides, within bounds that fit.
func TestUnitRuns(t *testing.T) {
	service := readUnit(t, "systemd/policy-service.service")["Service"]
	one := func(key string) string {
		if len(service[key]) != 1 {
			t.Fatalf("%s=%v", key, service[key])
		}
		return service[key][0]
	}
	start, examine := strings.Fields(one("ExecStart")), strings.Fields(strings.TrimPrefix(one("ExecStartPre"), "-"))
	c, command := parsed(t, start[1:])
	if command != "serve" || string(c.Serve.Data) != "/var/lib/"+one("StateDirectory") {
		t.Errorf("%s --data %s", command, c.Serve.Data)
	}
	if _, command := parsed(t, examine[1:]); command != "doctor" || !slices.Equal(examine[2:], start[2:]) || !strings.HasPrefix(one("ExecStartPre"), "-") {
		t.Errorf("%s is not about what is served, or keeps it from starting", one("ExecStartPre"))
	}
	if one("ExecReload") != "/bin/kill -HUP $MAINPID" || one("Restart") != "on-failure" {
		t.Error(one("ExecReload"), one("Restart"))
	}
	if stop, err := time.ParseDuration(one("TimeoutStopSec") + "s"); err != nil || stop < stopsWithin {
		t.Errorf("a stop takes up to %v, and systemd kills after %v (%v)", stopsWithin, stop, err)
	}
	var limit, most int64
	if _, err := fmt.Sscanf(one("Environment")+" "+one("MemoryMax"), "GOMEMLIMIT=%dMiB %dG", &limit, &most); err != nil {
		t.Fatal(err)
	}
	ninetyPercent(t, limit<<20, most<<30)
	user := one("User")
	if users := string(deployed(t, "systemd/policy-service.conf")); !strings.Contains(users, "\nu "+user+" - ") || one("Group") != user {
		t.Errorf("nobody makes the user %s", user)
	}
}

// ninetyPercent is where the doctor wants GOMEMLIMIT, more or less.
func ninetyPercent(t *testing.T, goLimit, limit int64) {
	t.Helper()
	if goLimit < limit/100*85 || goLimit > limit/100*92 {
		t.Errorf("GOMEMLIMIT is %d of %d", goLimit, limit)
	}
}

// TestUnitVerified has systemd itself read the unit, where there is one: it knows every directive and every value. TestUnit
// holds the unit without it.
func TestUnitVerified(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze; install systemd")
	}
	binary, err := exec.LookPath("policy-service") // testscript puts this program's tests there
	must(t, err)
	text := strings.ReplaceAll(string(deployed(t, "systemd/policy-service.service")), "/usr/local/bin/policy-service", binary)
	file := filepath.Join(t.TempDir(), "policy-service.service")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	// It exits 0 also for a directive that it does not know. Of other units of this machine it may speak, too.
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", file).CombinedOutput(); err != nil || strings.Contains(string(out), "policy-service") {
		t.Errorf("%v\n%s", err, out)
	}
	// Of 100, the less the better; 30 is what it calls OK.
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
