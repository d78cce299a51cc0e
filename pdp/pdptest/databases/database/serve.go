package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// serve makes a cluster of PostgreSQL and runs its server, which listens at a socket in the directory alone, until the standard
// input ends. The server refuses to run as root: it is then the user postgres, who must be able to reach the directory.
func serve(bin, dir string) (err error) {
	var credential *syscall.Credential
	if os.Getuid() == 0 {
		who, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, err1 := strconv.Atoi(who.Uid)
		gid, err2 := strconv.Atoi(who.Gid)
		if err := errors.Join(err1, err2, os.Chown(dir, uid, gid)); err != nil {
			return err
		}
		credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // the tests get these, too, and end
	runtime.LockOSThread()                                                                // the parent in endWithParent is this thread
	data := filepath.Join(dir, "data")
	command := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(bin, name), args...)
		c.Dir, c.Stderr = dir, os.Stderr
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
		endWithParent(c.SysProcAttr)
		return c
	}
	initdb := command("initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", data)
	if err := initdb.Run(); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	server := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "synchronous_commit=off",
		"-c", "full_page_writes=off", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB", "-c", "autovacuum=off", "-c", "log_min_messages=fatal", "-c", "log_min_error_statement=panic",
		"-c", "timezone=Asia/Kathmandu", "-c", "max_connections=200") // no statement may depend on the zone of a session
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	for late := time.After(time.Minute); ; {
		probe, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL.5432"))
		if err == nil {
			_ = probe.Close()
			if _, err = connect("host=" + dir + " user=postgres dbname=postgres"); err == nil {
				break
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("postgres ended: %w", err)
		case <-late:
			_ = server.Process.Signal(syscall.SIGQUIT)
			<-ended
			return fmt.Errorf("postgres does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	fmt.Println("ready")
	select {
	case err := <-ended:
		return fmt.Errorf("postgres ended: %w", err)
	case <-stop:
		_ = server.Process.Signal(syscall.SIGQUIT) // it ends its processes, and writes nothing
		<-ended
		return nil
	}
}
