package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/mcp/internal/leak"
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

// command starts a process for each session.
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
		var e *Error
		if errors.As(err, &e) {
			e.NotSent = true // the request that needed the session
		}
		return nil, err
	}
	return s, nil
}

// start starts a process for a client.
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
	s := newChildSession(&k.o, p, func() { k.backoff.failed(c.Principal) })
	k.sessions[s] = c.Person
	k.waiting.Add(1)
	go func() {
		defer k.waiting.Done()
		s.run()
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.sessions, s)
	}()
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
