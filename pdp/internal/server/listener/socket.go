package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"policy-service/pdp/internal/plainfile"
)

// Socket is the path of a Unix socket in an address unix:PATH. It is not ok in any other address.
func Socket(address string) (path string, ok bool) { return strings.CutPrefix(address, "unix:") }

// SocketMode reads the mode of a socket, as listen_mode has it. Without one, only the user of the service may connect.
func SocketMode(text string) (fs.FileMode, error) {
	if text == "" {
		return 0o600, nil
	}
	mode, err := strconv.ParseUint(text, 8, 16)
	if err != nil || mode&^0o666 != 0 || mode&0o600 != 0o600 {
		return 0, fmt.Errorf("%q is no mode of a socket; write \"0600\" for the user of the service, \"0660\" for its group, or \"0666\" for every user of this machine", text)
	}
	return fs.FileMode(mode), nil
}

// IsClosed reports whether only the user of the service may connect to a socket of a mode.
func IsClosed(mode fs.FileMode) bool { return mode&0o077 == 0 }

// privateName is how long the name is below the directory of a socket under which the socket begins.
const privateName = len("/.0123456789/s")

// CheckSocket finds why no server can have a socket at a good path: another server ([syscall.EADDRINUSE]), or a file that is no socket.
// It returns the socket of a dead server, and nil if nothing is there.
func CheckSocket(ctx context.Context, path string) (dead fs.FileInfo, err error) {
	there, err := os.Lstat(path)
	switch in, err := os.Stat(filepath.Dir(path)); {
	case err != nil:
		return nil, err
	case in.Mode().Perm()&0o002 != 0 && in.Mode()&fs.ModeSticky == 0:
		return nil, errors.New("every user of this machine may put a socket of their own in its place, and read the credentials of clients; chmod o-w its directory")
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case there.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("there is a %s, not a socket", plainfile.TypeName(there.Mode()))
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		return nil, errors.Join(syscall.EADDRINUSE, conn.Close())
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return there, nil
	}
	return nil, err // a server may be there all the same
}

// CheckPath finds why a path cannot be that of a socket.
func CheckPath(path string) error {
	const most = len(syscall.RawSockaddrUnix{}.Path) - 1
	dir := filepath.Dir(path)
	switch over := max(len(path), len(dir)+privateName) - most; {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || path == dir:
		return errors.New("a socket needs its whole path; try unix:/run/policy-service/pdp.sock")
	case over > 0:
		return fmt.Errorf("the path is %d bytes longer than the system allows for a socket; take a shorter directory", over)
	}
	return nil
}

// Listen opens host:port, or the socket of unix:PATH with a mode. A socket of a dead server makes way. From its first
// moment, no user that the mode shuts out can connect: the socket begins in a directory that only its owner may enter.
func Listen(ctx context.Context, address string, mode fs.FileMode) (net.Listener, error) {
	path, ok := Socket(address)
	if !ok {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	done, err := alone(path)
	if err != nil {
		return nil, err
	}
	defer done()
	dead, err := CheckSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".") // with mode 0700
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	first := filepath.Join(private, "s")
	on, err := new(net.ListenConfig).Listen(ctx, "unix", first)
	if err != nil {
		return nil, err
	}
	s := &socket{UnixListener: on.(*net.UnixListener), path: path}
	s.SetUnlinkOnClose(false) // that would not look whose socket it is
	if s.file, err = place(first, path, mode, dead); err != nil {
		return nil, errors.Join(err, s.UnixListener.Close())
	}
	return s, nil
}

// alone keeps other servers from a path until done is called. Otherwise two of them could find one dead socket, and the
// second would take the socket of the first for that.
func alone(path string) (done func(), err error) {
	name := path + ".lock"
	f, err := plainfile.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600) // a link could have it made elsewhere
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		ours, _ := f.Stat()
		if there, err := os.Stat(name); err == nil && os.SameFile(there, ours) {
			return func() { _, _ = os.Remove(name), f.Close() }, nil
		}
	}
	return nil, errors.Join(syscall.EADDRINUSE, f.Close())
}

// place gives a socket its mode and its path.
func place(first, path string, mode fs.FileMode, dead fs.FileInfo) (file fs.FileInfo, err error) {
	if err = os.Chmod(first, mode); err != nil {
		return nil, err
	}
	if file, err = os.Lstat(first); err != nil {
		return nil, err
	}
	if dead != nil {
		return file, os.Rename(first, path)
	}
	return file, plainfile.Place(first, path)
}

// socket is a listener on a Unix socket, with the path by which clients know it.
type socket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
	gone sync.Once
}

// Addr implements [net.Listener].
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close removes the socket, unless another server has put its own there.
func (s *socket) Close() error {
	s.gone.Do(func() { // later, the number of its file may be that of another
		if there, err := os.Lstat(s.path); err == nil && os.SameFile(there, s.file) {
			_ = os.Remove(s.path)
		}
	})
	return s.UnixListener.Close()
}

// Accept implements [net.Listener].
func (s *socket) Accept() (net.Conn, error) {
	c, err := s.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return local{c}, nil
}

// local is a connection of a program on this machine, which has no address. The program may have given itself a name, and
// that could be the address of a proxy.
type local struct{ *net.UnixConn }

// RemoteAddr implements [net.Conn].
func (local) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "@", Net: "unix"} }
