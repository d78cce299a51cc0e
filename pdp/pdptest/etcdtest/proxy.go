package etcdtest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// everyone is in the place of a member: connections of all are cut.
const everyone = -2

// proxy passes connections on to an address.
type proxy struct {
	listener net.Listener
	to       string
	slow     atomic.Int64 // nanoseconds
	refused  atomic.Int64 // connections

	mu   sync.Mutex                  // guards what follows
	of   func(from, to net.Addr) int // the member that has a connection; nil if it does not matter
	off  map[int]bool
	held chan struct{} // closed when what is held goes on; nil if nothing is held
	open map[net.Conn]int
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, off: map[int]bool{}, open: map[net.Conn]int{}}
	t.Cleanup(func() {
		_ = l.Close()
		p.cut(everyone)
		p.heal()
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve(from net.Conn) {
	defer func() { _ = from.Close() }()
	p.mu.Lock()
	of := p.of
	p.mu.Unlock()
	who := everyone
	if of != nil {
		if who = of(from.RemoteAddr(), from.LocalAddr()); who < 0 {
			return
		}
	}
	p.mu.Lock()
	off := p.off[who] || p.off[everyone]
	if !off {
		p.open[from] = who
	}
	p.mu.Unlock()
	if off {
		p.refused.Add(1)
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, from)
	}()
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() {
		p.pass(to, from, false)
		_ = to.Close()
	}()
	p.pass(from, to, true)
}

// pass passes on what comes. Each piece is late by as much as the proxy is slow, and keeps its place.
func (p *proxy) pass(to, from net.Conn, holds bool) {
	type piece struct {
		bytes []byte
		at    time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if n > 0 {
				pieces <- piece{b[:n], time.Now().Add(time.Duration(p.slow.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	for one := range pieces {
		if late := time.Until(one.at); late > 0 {
			time.Sleep(late)
		}
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if holds && held != nil {
			<-held
		}
		if _, err := to.Write(one.bytes); err != nil {
			break
		}
	}
	_ = from.Close()
	for range pieces { // the reader ends
	}
}

// cut ends the connections of a member, and refuses others.
func (p *proxy) cut(member int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off[member] = true
	for conn, who := range p.open {
		if member == everyone || who == member {
			_ = conn.Close()
			p.refused.Add(1)
		}
	}
}

func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

func (p *proxy) heal() {
	p.slow.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = map[int]bool{}
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// inodeOf returns the socket that has a connection, "" if there is none. Connections to several places may come from one port.
func inodeOf(from, to net.Addr) string {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	port := func(of net.Addr) string { return fmt.Sprintf(":%04X", of.(*net.TCPAddr).Port) }
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && strings.HasSuffix(fields[1], port(from)) && strings.HasSuffix(fields[2], port(to)) && fields[9] != "0" {
			return fields[9]
		}
	}
	return ""
}

func hasSocket(pid int, inode string) bool {
	if pid == 0 || inode == "" {
		return false
	}
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
