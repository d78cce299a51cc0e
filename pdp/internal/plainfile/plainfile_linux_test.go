package plainfile_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/plainfile"
)

func TestOpenTakesFilesAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, fifo, socket := filepath.Join(dir, "file"), filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	listener, err := net.Listen("unix", socket)
	must(t, errors.Join(err, os.WriteFile(file, []byte("text"), 0o600), syscall.Mkfifo(fifo, 0o600)))
	defer func() { _ = listener.Close() }()
	if got, err := plainfile.Read(file, 4); string(got) != "text" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := plainfile.Read(file, 3); err == nil || !strings.Contains(err.Error(), "more than 3 bytes") {
		t.Errorf("a file over the limit: %v", err)
	}
	if _, err := plainfile.Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for name, what := range map[string]string{fifo: "FIFO", socket: "socket", dir: "directory", "/dev/null": "device"} {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR} {
			if _, err := plainfile.OpenFile(name, flag, 0); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

func TestAFIFOSwappedInIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	must(t, errors.Join(os.WriteFile(file, []byte("text"), 0o600), syscall.Mkfifo(fifo, 0o600)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10_000 {
			if got, err := plainfile.Read(file, 4); err == nil && string(got) != "text" {
				t.Errorf("read %q", got)
			}
		}
	}()
	late := time.After(time.Minute)
	for {
		select {
		case <-done:
			return
		case <-late:
			t.Fatal("it waits for somebody to write to the FIFO")
		default:
		}
		must(t, unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, fifo, unix.RENAME_EXCHANGE))
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		write func(name string, content []byte) error
		mode  os.FileMode
	}{
		"Replace": {plainfile.Replace, 0o600},
		"Publish": {plainfile.Publish, 0o644},
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "file")
		for _, content := range []string{"longer", "new"} {
			must(t, test.write(name, []byte(content)))
			got, err := os.ReadFile(name)
			info, statErr := os.Stat(name)
			if err = errors.Join(err, statErr); err != nil || string(got) != content || info.Mode() != test.mode {
				t.Errorf("%s: %q, %v, %v", what, got, info, err)
			}
		}
		must(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
		if test.write(filepath.Join(dir, "taken"), nil) == nil || test.write(filepath.Join(dir, "none", "file"), nil) == nil {
			t.Errorf("%s: no error", what)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
			t.Errorf("%s leaves behind %v, %v", what, names, err)
		}
	}
}

// What is rewritten keeps its permissions, and so does a link to it. What nobody may write to, or is no file, stays.
func TestRewrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, errors.Join(os.WriteFile(name, []byte("longer"), 0o600), os.Chmod(name, 0o664), os.Symlink("file", link)))
	must(t, plainfile.Rewrite(link, []byte("new")))
	got, err := os.ReadFile(name)
	info, statErr := os.Stat(name)
	leads, linkErr := os.Readlink(link)
	if err = errors.Join(err, statErr, linkErr); err != nil || string(got) != "new" || info.Mode() != 0o664 || leads != "file" {
		t.Errorf("%q, %v, %q, %v", got, info, leads, err)
	}
	if plainfile.Rewrite(dir, nil) == nil || plainfile.Rewrite(filepath.Join(dir, "none"), nil) == nil {
		t.Error("no error")
	}
	if os.Geteuid() != 0 {
		must(t, os.Chmod(name, 0o444))
		if err := plainfile.Rewrite(name, nil); !errors.Is(err, os.ErrPermission) {
			t.Errorf("it may not be written to, and the error is %v", err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("it leaves behind %v, %v", names, err)
	}
}

// Of many that make one file, one does, and the others know that they have not.
func TestCreate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	made := make(chan string, 8)
	var all sync.WaitGroup
	for n := range cap(made) {
		all.Go(func() {
			content := strconv.Itoa(n)
			switch err := plainfile.Create(name, []byte(content)); {
			case err == nil:
				made <- content
			case !errors.Is(err, os.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(name)
	info, statErr := os.Stat(name)
	if err = errors.Join(err, statErr); err != nil || len(made) != 1 || string(got) != <-made || info.Mode() != 0o644 {
		t.Errorf("%q, %v, %v, %d more", got, info, err, len(made))
	}
	if err := plainfile.Create(filepath.Join(dir, "none", "file"), nil); err == nil || errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("it leaves behind %v, %v", names, err)
	}
}

func TestOnlyReplaceReadsTheDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o300))
	if os.Geteuid() == 0 { // who may read every directory: to files this thread is somebody else for a while
		const other = 65534
		must(t, errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chown(dir, other, other)))
		runtime.LockOSThread()
		must(t, unix.Setfsuid(other))
		defer func() {
			if unix.Setfsuid(0) == nil {
				runtime.UnlockOSThread()
			}
		}()
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	must(t, plainfile.Publish(filepath.Join(dir, "file"), nil))
	if err := plainfile.Replace(filepath.Join(dir, "file"), nil); !errors.Is(err, os.ErrPermission) {
		t.Errorf("the directory cannot be synced, and the error is %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
