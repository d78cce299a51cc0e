package listener_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"

	"policy-service/pdp/internal/server/listener"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open listens on a socket until the test ends.
func open(t *testing.T, path string, mode fs.FileMode) net.Listener {
	t.Helper()
	on, err := listener.Listen(t.Context(), "unix:"+path, mode)
	must(t, err)
	t.Cleanup(func() { _ = on.Close() })
	return on
}

// left is a socket whose server has died.
func left(t *testing.T, path string) {
	t.Helper()
	on, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	must(t, err)
	on.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, on.Close())
}

// In its directory, a socket is never there with another mode than its own, whatever the umask is: it comes once, and its
// mode does not change after that.
func TestSocketIsNeverWider(t *testing.T) {
	t.Parallel()
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		dir := t.TempDir()
		path, last := filepath.Join(dir, "pdp.sock"), filepath.Join(dir, "last")
		watcher, err := fsnotify.NewWatcher()
		must(t, err)
		defer func() { _ = watcher.Close() }()
		must(t, watcher.Add(dir))
		open(t, path, mode)
		must(t, os.WriteFile(last, nil, 0o600))
		var heard []string
		for event := range watcher.Events {
			if event.Name == path {
				heard = append(heard, event.Op.String())
			}
			if event.Name == last {
				break
			}
		}
		if got := strings.Join(heard, " "); got != "CREATE" {
			t.Errorf("mode %o: the socket got %q, want CREATE alone", mode, got)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|mode {
			t.Errorf("got %v, %v, want %o", info.Mode(), err, mode)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
			t.Errorf("something else was left: %v, %v", files, err)
		}
	}
}

// Users who could put a socket of their own in the place of ours, or a link in that of its lock, gain nothing by it.
func TestSocketAmongOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, elsewhere := filepath.Join(dir, "pdp.sock"), filepath.Join(t.TempDir(), "made")
	must(t, os.Chmod(dir, 0o777))
	for name, there := range map[string]func(){"nothing": func() {}, "a dead socket": func() { left(t, path) }} {
		there()
		if on, err := listener.Listen(t.Context(), "unix:"+path, 0o600); err == nil || !strings.Contains(err.Error(), "every user of this machine may put a socket of their own in its place") {
			t.Errorf("with %s in a directory of everybody: %v, %v", name, on, err)
		}
	}
	must(t, os.Remove(path))
	must(t, os.Chmod(dir, 0o777|fs.ModeSticky)) // as /tmp
	must(t, open(t, path, 0o600).Close())

	must(t, os.Symlink(elsewhere, path+".lock"))
	if on, err := listener.Listen(t.Context(), "unix:"+path, 0o600); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("with a link for a lock: %v, %v", on, err)
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("the link had a file made elsewhere")
	}
}

// What is at the path stays there, unless it is the socket of a dead server.
func TestSocketTakesNothingAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("file"), []byte("x"), 0o600))
	must(t, os.Mkdir(at("directory"), 0o700))
	must(t, syscall.Mkfifo(at("fifo"), 0o600))
	open(t, at("live"), 0o600)
	left(t, at("dead"))
	must(t, os.Symlink(at("dead"), at("link")))
	packets, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at("packets"), Net: "unixgram"})
	must(t, err)
	defer func() { _ = packets.Close() }()
	for name, want := range map[string]string{
		"file": "there is a file, not a socket", "directory": "there is a directory, not a socket", "fifo": "there is a FIFO, not a socket",
		"link": "there is a special file, not a socket", "live": syscall.EADDRINUSE.Error(), "packets": syscall.EPROTOTYPE.Error(),
		"none/pdp.sock": "no such file",
	} {
		before, _ := os.Lstat(at(name))
		on, err := listener.Listen(t.Context(), "unix:"+at(name), 0o600)
		if err == nil {
			_ = on.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
		if after, _ := os.Lstat(at(name)); before != nil && (after == nil || !os.SameFile(before, after)) {
			t.Errorf("%s is not what it was", name)
		}
	}
	open(t, at("dead"), 0o600)
	conn, err := net.Dial("unix", at("dead"))
	must(t, err)
	_ = conn.Close()
}

// Of servers that find one dead socket at the same time, one listens, and clients reach that one.
func TestOneServerTakesADeadSocket(t *testing.T) {
	t.Parallel()
	for range 20 {
		path := filepath.Join(t.TempDir(), "pdp.sock")
		left(t, path)
		var all sync.WaitGroup
		got := make(chan net.Listener, 8)
		for range cap(got) {
			all.Go(func() {
				on, err := listener.Listen(t.Context(), "unix:"+path, 0o600)
				if err == nil {
					got <- on
				} else if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(got) != 1 {
			t.Fatalf("%d servers have the socket", len(got))
		}
		on := <-got
		conn, err := net.Dial("unix", path)
		must(t, err)
		_, err = on.Accept()
		must(t, errors.Join(err, conn.Close(), on.Close()))
	}
}

// A server that ends removes its socket, once, and never that of another.
func TestSocketIsRemovedIfItIsOurs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pdp.sock")
	first := open(t, path, 0o600)
	must(t, os.Remove(path))
	second := open(t, path, 0o600)
	must(t, first.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the end of one server took the socket of another: %v", err)
	}
	must(t, second.Close())
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	third := open(t, path, 0o600)
	_ = second.Close() // a stop closes twice
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the second close took the socket of another: %v", err)
	}
	must(t, third.Close())
}

func TestSocketPaths(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("d", len(syscall.RawSockaddrUnix{}.Path)-1-len("/.0123456789/s"))
	for path, want := range map[string]string{
		"": "whole path", "pdp.sock": "whole path", "@pdp": "whole path", "./pdp.sock": "whole path", "/": "whole path", "/run/": "whole path",
		"/run/../pdp.sock": "whole path", "/run/pdp.sock": "", long[:len(long)-1] + "/s": "", long + "d/s": "2 bytes longer",
		"/" + strings.Repeat("n", 200): "bytes longer",
	} {
		if err := listener.CheckPath(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", path, err, want)
		}
	}
	for text, want := range map[string]fs.FileMode{"": 0o600, "0600": 0o600, "660": 0o660, "0666": 0o666, "0777": 0, "0060": 0, "4600": 0, "rw": 0, "0o600": 0, "-600": 0, "600.": 0} {
		if got, err := listener.SocketMode(text); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: got %o, %v", text, got, err)
		}
	}
	if !listener.IsClosed(0o600) || listener.IsClosed(0o660) || listener.IsClosed(0o606) || listener.IsClosed(0o620) {
		t.Error("a mode that lets others in is closed")
	}
}

// A client may give itself any name, also one that reads like the address of a proxy.
func TestPeersOfASocketHaveNoAddress(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	on := open(t, filepath.Join(dir, "pdp.sock"), 0o600)
	dialer := net.Dialer{LocalAddr: &net.UnixAddr{Name: "10.0.0.5:443", Net: "unix"}}
	conn, err := dialer.DialContext(context.Background(), "unix", "pdp.sock")
	must(t, err)
	defer func() { _ = conn.Close() }()
	peer, err := on.Accept()
	must(t, err)
	defer func() { _ = peer.Close() }()
	if got := peer.RemoteAddr().String(); got != "@" {
		t.Errorf("the client is called %q", got)
	}
}
