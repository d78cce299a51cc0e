package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// asRoot tags the transcripts of a machine on which somebody installs the service.
const asRoot = "console root"

// machine is a terminal of root, on a machine that has what this one has, but a network of its own and no Go. What is
// installed there is gone with it.
type machine struct {
	*terminal
	manager *net.UnixConn // hears what the service says to systemd
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	for _, program := range []string{"unshare", "ip", "mount", "systemd-sysusers", "runuser", "openssl", "curl"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			t.Skipf("the page is for root on Linux, and there is no %s here, or no root (%v); run it as root, as the gate does", program, err)
		}
	}
	m := &machine{terminal: &terminal{dir: t.TempDir(), address: loopback}}
	outside, err := os.MkdirTemp("", "s") // a short one: an address has 108 bytes
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(outside) })
	socket := filepath.Join(outside, "notify")
	m.manager = supervisor(t, socket)
	for name, mode := range map[string]os.FileMode{m.dir: 0o755, outside: 0o755, socket: 0o666} {
		must(t, os.Chmod(name, mode))
	}
	m.shell = []string{"unshare", "--mount", "--net", "sh", "-c", `set -e
ip link set lo up
mkdir disk
mount -t tmpfs tmpfs disk
for d in etc usr/local var/lib; do
	mkdir -p disk/$d/new disk/$d/work
	mount -t overlay overlay -o lowerdir=/$d,upperdir=$PWD/disk/$d/new,workdir=$PWD/disk/$d/work /$d
done
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin exec "$0"`}
	m.open(t, "/usr/local/bin")
	return m
}

// systemctl does what systemd does for a unit of Type=notify.
func (m *machine) systemctl(t *testing.T, command string) {
	t.Helper()
	switch command {
	case "systemctl enable --now policy-service":
		m.start(t)
	case "systemctl restart policy-service":
		m.stop(t)
		m.start(t)
	case "systemctl stop policy-service":
		m.stop(t)
	case "systemctl start policy-service":
		m.start(t)
	case "systemctl daemon-reload":
	default:
		t.Fatalf("%s: what does it do?", command)
	}
}

func (m *machine) stop(t *testing.T) {
	t.Helper()
	m.must(t, "kill $!; wait $!")
	heard(t, m.manager, "STOPPING=1")
}

// start starts what the unit says, as the user that it says, with the environment that it and its drop-ins say and no
// other, and waits until the service says that it answers.
func (m *machine) start(t *testing.T) {
	t.Helper()
	unit := m.must(t, "cat /etc/systemd/system/policy-service.service; cat /etc/systemd/system/policy-service.service.d/*.conf 2>/dev/null; true")
	get := func(key string) (values []string) {
		for _, found := range regexp.MustCompile(`(?m)^`+key+`=(.*)$`).FindAllStringSubmatch(unit, -1) {
			values = append(values, found[1])
		}
		return values
	}
	user, state := get("User")[0], "/var/lib/"+get("StateDirectory")[0]
	environment := strings.Join(get("Environment"), " ")
	m.must(t, fmt.Sprintf("install -d -m 700 -o %s -g %[1]s %s", user, state))
	as := fmt.Sprintf("setpriv --reuid %s --regid %[1]s --clear-groups env -i %s ", user, environment)
	m.must(t, as+strings.TrimPrefix(get("ExecStartPre")[0], "-")+" || true")
	m.must(t, as+"NOTIFY_SOCKET="+m.manager.LocalAddr().String()+" "+get("ExecStart")[0]+" >journal 2>&1 &")
	must(t, m.manager.SetReadDeadline(time.Now().Add(patience)))
	heard(t, m.manager, "READY=1")
	if t.Failed() {
		t.Fatal(m.must(t, "cat journal"))
	}
}

// TestInstall types the page for installing, on a machine that has the release and no Go: from the archive to a service that
// answers over TLS, and whose metrics are scraped.
func TestInstall(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	files := dist(t)
	for _, pattern := range []string{"policy-service-*.tar.gz", "SHA256SUMS"} {
		found, err := filepath.Glob(filepath.Join(files, pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v %v", found, err)
		}
		must(t, os.Link(found[0], filepath.Join(m.dir, filepath.Base(found[0]))))
	}
	if shown, _ := m.run(t, "command -v go", patience); shown != "" {
		t.Errorf("this machine has Go: %s", shown)
	}
	p, k := readPage(t, installPage), newKnown(nil)
	for _, s := range p.stepsOf(t, asRoot) {
		if strings.HasPrefix(s.command, "systemctl ") {
			m.systemctl(t, s.command)
			continue
		}
		shown := strings.Replace(m.must(t, s.command), "commit unknown: it was built without the repository", "commit 0a1b2c, 2026-11-20T13:00:00Z", 1)
		if !k.fits(s.want, shown) {
			t.Errorf("%s:%d:\n$ %s\nshows\n%s\nand the page says\n%s", p.path, s.line, s.command, shown, s.want)
		}
	}
}

// TestPublish types what gives the module another path, and sees that all imports are found.
func TestPublish(t *testing.T) {
	t.Parallel()
	needProgram(t, "perl")
	m := &terminal{dir: t.TempDir(), address: loopback}
	for _, name := range []string{"cmd", "pdp", "evaluation", "obligations", "policies", "schemas", "conformance", ".ci", "go.mod", "go.sum"} {
		must(t, exec.Command("cp", "-r", filepath.Join(root, name), m.dir).Run())
	}
	m.open(t, built(t))
	p := readPage(t, installPage)
	m.read(t, p, p.stepsOf(t, "console go"))
	shown, alive := m.run(t, "go list -deps ./cmd/policy-service ./.ci/release | grep -e '^policy-service/' -e '^example.com/me/policy-service/pdp/internal/version$'", patience)
	if !alive || shown != "example.com/me/policy-service/pdp/internal/version\n" {
		t.Error(shown)
	}
}
