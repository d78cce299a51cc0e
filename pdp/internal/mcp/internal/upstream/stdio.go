package upstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/mcp/internal/leak"
	"policy-service/pdp/internal/rpc"
)

// CommandOptions are an MCP server that is a program, spoken to over its standard streams.
type CommandOptions struct {
	Options
	// Command is the program and its arguments. No shell reads them. A program without a slash is looked for in the PATH of
	// Env, or in the gateway's if Env has none.
	Command []string
	// Env is the whole environment of the program: it inherits nothing.
	Env map[string]string
	// Secrets are values of Env that are masked in all that the program says.
	Secrets []string
	// Dir is where it runs; "" is where the gateway does.
	Dir string
	// Probe, 0 is five seconds, bounds the wait for the answer to the question by which a server of the modern era is known, and the wait of
	// messages of a server of the legacy era for the first listener.
	Probe time.Duration
	// Stop, 0 is three seconds, is how long a program may take to end by itself, once its input has ended, and once more after
	// SIGTERM.
	Stop time.Duration
	// Processes bounds how many run at once, and PerPerson how many for one person.
	Processes, PerPerson int

	// masks are for messages. A line of the standard error may have a line of a secret alone.
	masks, errMasks *leak.Masks
}

type command struct {
	o       CommandOptions
	backoff backoff

	mu       sync.Mutex
	sessions map[*childSession]string // for whom
	closed   bool
	waiting  sync.WaitGroup

	// foreign has for each era whether the server was found not to speak it, until that turns out to be wrong.
	foreign [2]atomic.Bool
}

// NewCommand is a server that is a program. Each session has a process of its own, in a process group of its own: where the
// session ends, the whole group does. A process that leaves its group is out of reach. On Linux the kernel ends the program
// if the gateway dies; elsewhere the program sees the end of its input.
//
// The output of the program goes to:
//   - the request that it answers, by id; an answer to no request, or a second one, is dropped;
//   - the request that has the progress token, or the subscription, which the message names; else it is dropped;
//   - [Session.Listen], if it says that a list or a resource changed;
//   - the one request that waits, if it is anything else and one alone waits (subscriptions/listen does not count, and for
//     what the server asks nothing but calls of tools, prompts and resources does, if one of them waits), and else to Listen. Without a listener, a notification is dropped, and a request gets the answer that there is no such
//     method; but messages soon after the greeting wait for a while. A ping is answered here. In the modern era requests of the server are dropped.
//
// [Request.Headers] and the tokens of clients have no place on a pipe, and are not sent.
func NewCommand(o CommandOptions) (Upstream, error) {
	if len(o.Command) == 0 || o.Command[0] == "" {
		return nil, errors.New("a command has no program; write it like [program, argument]")
	}
	if strings.ContainsRune(o.Command[0], '/') && !filepath.IsAbs(o.Command[0]) {
		return nil, fmt.Errorf("the program %q is in no certain place; give its whole path, or its name alone", o.Command[0])
	}
	o.Probe, o.Stop = cmp.Or(o.Probe, 5*time.Second), cmp.Or(o.Stop, 3*time.Second)
	lines := slices.Clone(o.Secrets)
	for _, secret := range o.Secrets {
		lines = append(lines, strings.Fields(secret)...)
	}
	o.masks, o.errMasks = leak.New(o.Secrets...), leak.New(lines...)
	inheritNothing()
	return &command{
		o:        o,
		backoff:  backoff{now: time.Now},
		sessions: map[*childSession]string{},
	}, nil
}

// Open starts a process and greets it. After a process of the same principal failed, it waits for a moment first, or is an
// error until some time has passed.
func (k *command) Open(ctx context.Context, c Client) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, k.o.Timeout)
	defer cancel()
	if err := k.backoff.wait(ctx, c.Principal); err != nil {
		return nil, &Error{NotSent: true, Detail: "the server failed lately, and is not started again yet", Err: err}
	}
	s, err := k.greet(ctx, c)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, ErrManyOfPerson) {
			k.backoff.failed(c.Principal)
		}
		return nil, unopened(err)
	}
	return s, nil
}

func (k *command) start(c Client) (*childSession, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return nil, &Error{NotSent: true, Gone: true, Detail: "the gateway is stopping"}
	case len(k.sessions) >= k.o.Processes:
		return nil, &Error{NotSent: true, Detail: fmt.Sprintf("%d processes of the server run already", len(k.sessions))}
	}
	own := 0
	for _, person := range k.sessions {
		if person == c.Person {
			own++
		}
	}
	if own >= k.o.PerPerson {
		return nil, &Error{NotSent: true, Detail: fmt.Sprintf("%d processes of the server run already for one person", own), Err: ErrManyOfPerson}
	}
	p, err := startProcess(&k.o)
	if err != nil {
		return nil, &Error{NotSent: true, Gone: true, Detail: "the server cannot be started", Err: err}
	}
	s := &childSession{
		o: &k.o, p: p, client: c, failed: func() { k.backoff.failed(c.Principal) },
		out: newOutbox(), calls: map[rpc.ID]*childStream{}, asked: map[rpc.ID]*childStream{},
	}
	s.ctx, s.quit = context.WithCancel(p.ended)
	k.sessions[s] = c.Person
	k.waiting.Go(func() {
		s.run()
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.sessions, s)
	})
	return s, nil
}

// Close ends all processes, and waits for them.
func (k *command) Close() error {
	k.mu.Lock()
	k.closed = true
	for s := range k.sessions {
		s.Close()
	}
	k.mu.Unlock()
	k.waiting.Wait()
	return nil
}

// backoff keeps a server that fails from being started again and again. It is by principal: no principal can keep others waiting.
type backoff struct {
	now func() time.Time

	mu       sync.Mutex // guards a failure that is added
	failures recent.Texts[failure]
}

type failure struct {
	times int
	last  time.Time
}

const (
	firstBackoff = 100 * time.Millisecond
	mostBackoff  = 30 * time.Second
	// forgetFailures is how long after its last failure a server is as good as one that never failed.
	forgetFailures = 5 * time.Minute
	// mostFailures is how many principals are remembered at least, if so many failed, and twice as many at most.
	mostFailures = 2048
	// mostWait is the longest wait for a server. A client that would wait for longer is refused at once.
	mostWait = 500 * time.Millisecond
)

func (b *backoff) of(principal string) (f failure) {
	if f, _ = b.failures.Get(sha256.Sum256([]byte(principal))); b.now().Sub(f.last) > forgetFailures {
		return failure{}
	}
	return f
}

// failed notes that a server did not start, or ended by itself.
func (b *backoff) failed(principal string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures.Put(sha256.Sum256([]byte(principal)), failure{b.of(principal).times + 1, b.now()}, mostFailures)
}

func (b *backoff) left(principal string) time.Duration {
	f := b.of(principal)
	if f.times == 0 {
		return 0
	}
	return f.last.Add(min(firstBackoff<<min(f.times-1, 16), mostBackoff)).Sub(b.now())
}

// wait waits until a server may be started for a principal, if that is soon.
func (b *backoff) wait(ctx context.Context, principal string) error {
	for left := b.left(principal); left > 0; left = b.left(principal) {
		if left > mostWait {
			return fmt.Errorf("it is tried again in %v", left.Round(time.Second/10))
		}
		if err := pause(ctx, left); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// process is a child, with all that it starts in its group, and our ends of its standard streams.
type process struct {
	in, out, err *os.File
	// ended ends when the child is no more and has been waited for. Its cause is how.
	ended context.Context

	mu   sync.Mutex
	pid  int
	gone bool // the id may be another's by now
}

// startProcess starts a child with exactly this environment.
func startProcess(o *CommandOptions) (*process, error) {
	path, err := FindProgram(o.Command[0], o.Env)
	if err != nil {
		return nil, err
	}
	child := &exec.Cmd{Path: path, Args: o.Command, Dir: o.Dir, Env: []string{}, SysProcAttr: ownGroup()} // a nil Env would be ours
	for name, value := range o.Env {
		child.Env = append(child.Env, name+"="+value)
	}
	stdin, in, inErr := os.Pipe()
	out, stdout, outErr := os.Pipe()
	errs, stderr, errErr := os.Pipe()
	if err := errors.Join(inErr, outErr, errErr); err != nil {
		closeAll(stdin, stdout, stderr, in, out, errs)
		return nil, err
	}
	child.Stdin, child.Stdout, child.Stderr = stdin, stdout, stderr
	ended, end := context.WithCancelCause(context.Background())
	p := &process{in: in, out: out, err: errs, ended: ended}
	started := make(chan error)
	go p.keep(child, end, started)
	err = <-started
	closeAll(stdin, stdout, stderr)
	if err != nil {
		closeAll(in, out, errs)
		return nil, err
	}
	return p, nil
}

// closeAll closes files. It passes over nil.
func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// keep starts the child and is there until it has been waited for.
func (p *process) keep(child *exec.Cmd, end context.CancelCauseFunc, started chan<- error) {
	runtime.LockOSThread() // see ownGroup
	defer runtime.UnlockOSThread()
	if err := child.Start(); err != nil {
		end(err)
		started <- err
		return
	}
	p.pid = child.Process.Pid
	started <- nil
	how := "it ended"
	if state, err := p.reap(child.Process); err == nil {
		how = state.String()
	}
	end(errors.New(how))
}

// signal sends a signal to the whole group.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = syscall.Kill(-p.pid, sig) // a process that has ended already needs none
	}
}

// stop ends the child: by the end of its input, then by SIGTERM, then by SIGKILL, each after a grace.
func (p *process) stop(grace time.Duration) {
	_ = p.in.Close()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if pause(p.ended, grace) != nil {
			return
		}
		p.signal(sig)
	}
	<-p.ended.Done()
}

// FindProgram is where a program is. A name without a slash is looked for in the PATH of the environment that the child
// will have, or in the gateway's if that has none.
func FindProgram(name string, env map[string]string) (string, error) {
	if strings.ContainsRune(name, '/') {
		return exec.LookPath(name)
	}
	path, ok := env["PATH"]
	if !ok {
		path = os.Getenv("PATH")
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // a program in the current directory is not meant
		}
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("no program %q is in any directory of PATH; give its whole path, or a PATH in env", name)
}
