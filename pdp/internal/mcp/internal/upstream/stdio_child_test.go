package upstream_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"policy-service/pdp/internal/mcp/internal/upstream"
)

// The children of these tests are this very program, started with asChild and a kind.
const asChild = "as-child-of-the-stdio-tests"

func init() {
	if len(os.Args) < 3 || os.Args[1] != asChild {
		return
	}
	log.SetFlags(0)
	switch kind := os.Args[2]; kind {
	case "gateway":
		gatewayChild(os.Args[3], os.Args[4])
	case "sleeper":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		linger()
	default:
		rawChild(kind)
	}
	os.Exit(0)
}

// linger is for ever, as far as a test can tell, but not after one that was cut off.
func linger() {
	time.Sleep(2 * time.Minute)
	os.Exit(0)
}

// self is the command of a child.
func self(kind ...string) []string {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{program, asChild}, kind...)
}

// quick keeps a program that was built with the race detector from sleeping before it ends.
var quick = map[string]string{"GORACE": "atexit_sleep_ms=0"}

// rawChild is a server of the legacy era that breaks rules as no SDK would.
func rawChild(kind string) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	if kind == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if kind == "stubborn" {
				linger()
			}
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name string
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			log.Fatal(err)
		}
		switch {
		case strings.Contains(line, `"refuse `+m.Method+`"`):
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"what a client"}}`, m.ID)
		case m.Method == "server/discover":
			greetOddly(kind, m.ID)
		case m.Method == "initialize":
			initializeOddly(kind, m.ID, line)
		case m.Method == "notifications/initialized" && kind == "asks-at-once":
			say(`{"jsonrpc":"2.0","id":"roots","method":"roots/list"}`)
			log.Print("I have asked")
		case m.Method == "tools/call":
			callOddly(in, m.Params.Name, m.ID, m.Params.Meta.ProgressToken, line)
		case m.Method == "notifications/cancelled", m.Method == "" && len(m.ID) > 0:
			say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%q}}`, line)
		case m.ID != nil:
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		}
	}
}

func say(format string, values ...any) { fmt.Printf(format+"\n", values...) }

func tell(id json.RawMessage, text string) {
	quoted, _ := json.Marshal(text)
	say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, id, quoted)
}

const discovered = `{"supportedVersions":["2026-07-28"],"capabilities":{}}`

// greetOddly answers the question that only servers of the modern era know.
func greetOddly(kind string, id json.RawMessage) {
	switch kind {
	case "silent", "silent-refuses":
	case "silent-chatty":
		go func() {
			for range time.Tick(100 * time.Millisecond) {
				say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"I am busy"}}`)
			}
		}()
	case "exits":
		os.Exit(0)
	case "no-id":
		say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what?"}}`)
	case "html":
		say(`<html>{"jsonrpc"</html>`)
	case "any-result":
		say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	case "other-modern":
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01"],"requested":"2026-07-28"}}}`, id)
	case "other-modern-and-legacy":
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01","2025-11-25"]}}}`, id)
	case "discovers-legacy":
		say(`{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2025-06-18"],"capabilities":{}}}`, id)
	case "modern":
		say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, discovered)
	default:
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"not before initialize"}}`, id)
	}
}

func initializeOddly(kind string, id json.RawMessage, line string) {
	version := "2025-11-25"
	switch kind {
	case "mute":
		return
	case "silent-refuses": // it was only slow, and is modern
		say(`{"jsonrpc":"2.0","id":1,"result":%s}`, discovered)
		fallthrough
	case "refuses", "other-modern":
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, id)
		return
	case "old":
		version = "2024-10-07"
	case "line-of-initialize":
		say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s","got":%q}}`, id, version, line)
		return
	case "dies":
		os.Exit(3)
	case "talks":
		say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}`)
		say(`{"jsonrpc":"2.0","id":"early","method":"roots/list"}`)
	}
	say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s","capabilities":{},"serverInfo":{"name":"raw","version":"1"}}}`, id, version)
}

// callOddly answers a call of a tool that is named for its answer.
func callOddly(in *bufio.Reader, tool string, id, token json.RawMessage, line string) {
	switch tool {
	case "line":
		tell(id, base64.StdEncoding.EncodeToString([]byte(line)))
	case "environ":
		environ, _ := os.ReadFile("/proc/self/environ")
		tell(id, string(environ))
	case "leak":
		secret := os.Getenv("API_TOKEN")
		fmt.Fprintf(os.Stderr, "the token is %s\n%sthe key is %s\n", secret, strings.Repeat("z", 1000), os.Getenv("PRIVATE_KEY"))
		say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":%q}}`, token, secret)
		say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":%q}}`, base64.StdEncoding.EncodeToString([]byte("it is "+secret)))
		_, _ = in.ReadString('\n')
		tell(id, fmt.Sprintf("{\"API_TOKEN\":%q,\"PRIVATE_KEY\":%q}", secret, os.Getenv("PRIVATE_KEY")))
	case "fail":
		say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no %s","data":[ 1.0, "\u00e9" ]}}`, id, os.Getenv("API_TOKEN"))
	case "descriptors":
		entries, _ := os.ReadDir("/proc/self/fd")
		var open []string
		for _, e := range entries {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
				open = append(open, to)
			}
		}
		tell(id, strings.Join(open, " "))
	case "pid":
		tell(id, fmt.Sprint(os.Getpid()))
	case "exit":
		os.Exit(3)
	case "abort":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "answer-and-exit":
		tell(id, "the last words")
		os.Exit(0)
	case "half":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"res`, id)
		os.Exit(0)
	case "close":
		_ = os.Stdout.Close()
	case "garbage":
		say("Server ready!\n\n{}\n[]\n{\"level\":\"info\"}\n\x00\xff")
		tell(id, "after all")
	case "float-id":
		say(`{"jsonrpc":"2.0","id":%s.0,"result":{}}`, id)
	case "batch":
		say(`[{"jsonrpc":"2.0","id":%s,"result":{}}]`, id)
	case "ambiguous":
		say(`{"jsonrpc":"2.0","id":%s,"result":{"a":1},"result":{"a":2}}`, id)
	case "both":
		say(`{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":""}}`, id)
	case "error-without-id":
		say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`)
	case "foreign":
		say(`{"jsonrpc":"2.0","id":4711,"result":{}}`)
		say(`{"jsonrpc":"2.0","id":"%s","result":{}}`, id)
		say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"somebody-else","progress":1}}`)
		tell(id, "once")
		tell(id, "twice")
	case "long":
		tell(id, strings.Repeat("x", 100<<10))
	case "endless":
		chunk := strings.Repeat("x", 64<<10)
		for {
			if _, err := io.WriteString(os.Stdout, chunk); err != nil {
				os.Exit(0)
			}
		}
	case "silence":
	case "deaf":
		linger()
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "complain":
		for n := range 20_000 {
			fmt.Fprintf(os.Stderr, "%d \x1b[31mred %s\n", n, strings.Repeat("y", 5000))
		}
		tell(id, "done")
	case "progress":
		for range 3 {
			say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
		}
		tell(id, string(token))
	case "chatter":
		for range 5000 {
			say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"chatter"}}`)
		}
		tell(id, "done")
	case "flood":
		for {
			say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"chatter"}}`)
		}
	case "ask":
		say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		reply, _ := in.ReadString('\n')
		tell(id, reply)
	case "ask-often":
		for n := range 200 {
			say(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{}}`, n)
		}
		tell(id, "asked")
	case "ping":
		say(`{"jsonrpc":"2.0","id":77,"method":"ping"}`)
		reply, _ := in.ReadString('\n')
		tell(id, reply)
	case "changed":
		say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		tell(id, "told")
	case "fork", "fork-and-exit":
		program := self("sleeper")
		sleeper := exec.Command(program[0], program[1:]...)
		sleeper.Stdout, sleeper.Stderr = os.Stdout, os.Stderr // it holds the pipes open
		if err := sleeper.Start(); err != nil {
			log.Fatal(err)
		}
		tell(id, fmt.Sprint(sleeper.Process.Pid))
		if tool == "fork-and-exit" {
			os.Exit(0)
		}
	default:
		tell(id, tool)
	}
}

// gatewayChild has a server of its own, calls a tool of it, prints the answer, and waits.
func gatewayChild(kind, do string) {
	u, err := upstream.NewCommand(commandOptions(kind))
	if err != nil {
		log.Fatal(err)
	}
	s, err := u.Open(context.Background(), upstream.Client{})
	if err != nil {
		log.Fatal(err)
	}
	said, err := textOf(s, do)
	if err != nil {
		log.Fatal(err)
	}
	if do == "fork" {
		_ = u.Close()
	}
	fmt.Println(said)
	linger()
}
