package mcptest

import (
	"bufio"
	"context"
	"flag"
	"io"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
)

// childArgument says that a test binary is to be a recorder's child.
const childArgument = "mcptest-recorder-child"

// Main runs the tests of a package, or is the child of a recorder if it was started as one. A package whose tests use
// [Recorder.Command] has it as its TestMain.
//
// Tests wait for disks, programs and each other more than they compute, so more of them run at once than there are cores. Each
// makes a PDP and a gateway, of which little stays: a quarter of the time would go to the collector.
func Main(m interface{ Run() int }) {
	if len(os.Args) > 2 && os.Args[1] == childArgument {
		if err := beChild(os.Args[2]); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = flag.Set("test.parallel", "8") // the command line may say otherwise
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// beChild joins its standard streams to the recorder, which does all the rest: what answers are functions of the test.
func beChild(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	about, err := json.Marshal(Child{PID: os.Getpid(), Args: os.Args, Env: os.Environ(), Dir: dir})
	if err != nil {
		return err
	}
	if _, err := conn.Write(append(about, '\n')); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// Relay is the command line of a program whose standard streams are a connection that serve has, until the test ends.
// [Main] is the program.
func Relay(t testing.TB, serve func(ctx context.Context, c *Child, in *bufio.Reader, out net.Conn)) (command []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			all.Go(func() {
				defer cancel()
				in, child := bufio.NewReader(conn), new(Child)
				about, err := in.ReadBytes('\n')
				if err != nil {
					return
				}
				if err := json.Unmarshal(about, child); err != nil {
					t.Errorf("a child says of itself %q: %v", about, err)
					return
				}
				serve(ctx, child, in, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return []string{self, childArgument, l.Addr().String()}
}

// Command is the command line of a server over standard streams whose every line comes to this recorder.
func (r *Recorder) Command() []string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.relay == nil {
		r.relay = Relay(r.t, r.child)
	}
	return r.relay
}

// child reads the lines of one child until it ends.
func (r *Recorder) child(ctx context.Context, child *Child, in *bufio.Reader, conn net.Conn) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := toLines{new(sync.Mutex), conn}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		g := Got{Over: "stdio", Child: child, Body: []byte(strings.TrimRight(line, "\r\n"))}
		g.read()
		r.keep(g)
		c := &Call{Got: g, Modern: isModern(g.Params), Context: ctx, out: out}
		switch {
		case g.Method == "" || g.ID == nil:
			r.heard(g)
		case c.Modern && !r.speaks("modern"):
			c.fail(0, `{"code":-32601,"message":"there is no such method"}`)
		case !c.Modern && !r.speaks("legacy"):
			c.fail(0, `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["`+modern+`"],"requested":"2025-11-25"}}`)
		default:
			all.Go(func() { r.answer(c) })
		}
	}
}

// sawBeside reports where a text stands beside the body.
func (g Got) sawBeside(text string) string {
	if strings.Contains(g.Target, text) || strings.Contains(g.Host, text) {
		return "the target of " + g.Method
	}
	for name, values := range g.Header {
		if strings.Contains(name, text) || strings.Contains(strings.Join(values, "\n"), text) {
			return "the header " + name + " of " + g.Method
		}
	}
	if g.Child != nil && (strings.Contains(strings.Join(g.Child.Args, "\n"), text) || strings.Contains(strings.Join(g.Child.Env, "\n"), text)) {
		return "the arguments or variables of a child"
	}
	return ""
}
