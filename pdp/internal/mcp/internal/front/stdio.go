package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/flights"
	"policy-service/pdp/internal/mcp/internal/flow"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// The front of the standard streams: one message a line, one client, one principal. It is for programs that start their servers
// themselves, and cannot distinguish the gateway from a server.

// ServeStdio serves the client at the other end of in and out until in ends. The identity is the fixed one.
func (g *Front) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	who := g.o.Identity.Fixed()
	if who == nil {
		return errors.New("over the standard streams nobody shows a token: set identity.static")
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &stdioFront{g: g, who: who, out: out}
	defer func() {
		cancel()
		f.running.Wait()
		if f.session != nil {
			f.session.close()
		}
	}()
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := readLine(lines, g.o.Body)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, rpc.ErrTooLarge):
			f.write(rpc.Failure(rpc.ID{}, rpc.Error{Code: rpc.InvalidRequest, Message: "the message is too large"}))
			continue
		case err != nil:
			return err
		case len(line) == 0:
			continue
		}
		m, fault := rpc.Parse(line)
		if fault != nil {
			f.write(fault.Failure())
			continue
		}
		f.take(ctx, m)
	}
}

// readLine reads a line without its end. A line that is too large is read to its end, and not kept.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	tooLarge := false
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			tooLarge, line = true, nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		case tooLarge:
			return nil, rpc.ErrTooLarge
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

type stdioFront struct {
	g       *Front
	who     *identity.Principal
	running sync.WaitGroup

	writing sync.Mutex
	out     io.Writer

	flights flights.Flights

	// session is that of a client of the legacy era, once it has begun. beginning is the session whose handshake is under way.
	// Both belong to the reader of messages, which does the handshake before it reads on.
	session, beginning *session
}

func (f *stdioFront) write(m rpc.Message) error {
	line := rpc.AppendLine(nil, m)
	f.writing.Lock()
	defer f.writing.Unlock()
	_, err := f.out.Write(line)
	return err
}

// take takes a message. Requests are answered concurrently.
func (f *stdioFront) take(ctx context.Context, m rpc.Message) {
	params, _ := m.ParamsObject()
	in := &incoming{who: f.who, message: m, params: params}
	s := f.session
	switch {
	case m.IsResponse():
		f.answer(ctx, s, in)
	case m.Method == "notifications/cancelled":
		f.flights.Cancel(params.Get("requestId"))
	case m.Method == "notifications/initialized" && s != nil:
		f.running.Go(func() { f.relay(ctx, s) })
	case m.Method == rpc.Respond && m.IsNotification():
		f.serveSilently(ctx, s, in)
	case m.Method == wire.MethodAccess:
		f.g.noteAccess(f.who)
	case m.IsNotification():
		if s != nil {
			f.g.takeNotification(ctx, s, in)
		}
	default:
		f.request(ctx, s, in)
	}
}

// answer takes an answer of the client: to the gateway, if the gateway has asked the client's person, and otherwise to a
// server.
func (f *stdioFront) answer(ctx context.Context, s *session, in *incoming) {
	if s == nil {
		f.g.o.Meters.Drop(dropUnawaited)
		return
	}
	q, ours := f.g.people.Question(s.Conversation, in.message.ID)
	if !ours {
		if !s.Deliver(in.message) {
			f.g.o.Meters.Drop(dropUnawaited)
		}
		return
	}
	f.running.Go(func() {
		if status, _ := f.g.people.SubmitAnswer(ctx, s.Conversation, q, in.who, in.message); status != http.StatusAccepted {
			f.g.o.Meters.Drop("answer of a person that the PDP did not take")
		}
	})
}

const dropUnawaited = "answer that nobody waits for"

// request answers a request, concurrently with others.
func (f *stdioFront) request(ctx context.Context, s *session, in *incoming) {
	id := in.message.ID
	ctx, cancel := context.WithCancel(ctx)
	if !f.flights.Begin(id, cancel) {
		cancel()
		_ = f.write(rpc.Failure(id, rpc.Error{Code: rpc.InvalidRequest, Message: "a request with this id is under way"}))
		return
	}
	c, fault := f.call(s, in)
	if fault != nil {
		f.end(id, cancel)
		_ = f.write(rpc.Failure(id, *fault))
		return
	}
	if in.message.Method == "initialize" { // later messages belong to the session that it begins
		f.serve(ctx, c, cancel)
		if c.Client.Era == era.Legacy {
			f.g.closeUnbegun(f.beginning)
		}
		return
	}
	f.running.Go(func() { f.serve(ctx, c, cancel) })
}

func (f *stdioFront) serve(ctx context.Context, c flow.Call, cancel context.CancelFunc) {
	defer f.end(c.Request.ID, cancel)
	if c.Client.Era == era.Modern {
		way, done, ok := f.g.reaches.take(f.who, c.Client)
		if !ok {
			_ = c.Reply.Final(http.StatusOK, answer.Limited("", time.Second).Refusal.Failure(c.Request.ID))
			return
		}
		defer done()
		c.Reach = way
	}
	f.g.flow.Visit(c).Serve(ctx)
}

// serveSilently serves a message that has no id, concurrently with others, and answers nothing.
func (f *stdioFront) serveSilently(ctx context.Context, s *session, in *incoming) {
	c, fault := f.call(s, in)
	if fault != nil {
		f.g.o.Meters.Drop("message without an id that cannot be read")
		return
	}
	c.Reply = silentReply{}
	ctx, cancel := context.WithCancel(ctx)
	f.running.Go(func() { f.serve(ctx, c, cancel) })
}

func (f *stdioFront) end(id rpc.ID, cancel context.CancelFunc) {
	cancel()
	f.flights.End(id)
}

// call is the call of a request of either era. In the modern era it has no reach yet.
func (f *stdioFront) call(s *session, in *incoming) (c flow.Call, fault *rpc.Error) {
	c = flow.Call{Who: f.who, Request: in.message, Params: in.params, Reply: &stdioReply{f: f}}
	switch {
	case in.params.GetObject("_meta").Get(era.MetaVersion) != nil:
		meta, fault := era.ReadMeta(in.params)
		if fault != nil {
			return c, fault
		}
		c.Client = link.Client{Era: era.Modern, Version: meta.Version, Info: meta.Client, Capabilities: meta.Capabilities, LogLevel: meta.LogLevel}
	case in.message.Method == "initialize" && s == nil:
		begun, err := f.g.sessions.make(f.who, legacyClient(in.params))
		if err != nil {
			return c, &rpc.Error{Code: rpc.InvalidParams, Message: err.Error()}
		}
		f.beginning = begun
		c.Client, c.Reach, c.Session = begun.client, begun.reach, begun.Conversation
	case s == nil:
		return c, &rpc.Error{Code: rpc.InvalidRequest, Message: "begin with initialize, or say which revision the request is of"}
	case in.message.Method == "initialize":
		return c, &rpc.Error{Code: rpc.InvalidRequest, Message: "the session has begun already"}
	default:
		c.Client, c.Reach, c.Session = s.client, s.reach, s.Conversation
	}
	return c, nil
}

// relay sends the client what servers and the gateway send outside of requests.
func (f *stdioFront) relay(ctx context.Context, s *session) {
	if !s.listen() {
		return
	}
	defer func() { s.leave(f.g.o.Now()) }()
	f.g.flow.Relay(ctx, flow.Call{Who: f.who, Client: s.client, Reach: s.reach, Session: s.Conversation, Reply: &stdioReply{f: f}})
}

type stdioReply struct{ f *stdioFront }

func (r *stdioReply) Interim(m rpc.Message) error      { return r.f.write(m) }
func (r *stdioReply) Alive() error                     { return nil }
func (r *stdioReply) Stream()                          {}
func (r *stdioReply) Final(_ int, m rpc.Message) error { return r.f.write(m) }

// Begin implements [reply.Reply].
func (r *stdioReply) Begin(string) {
	r.f.session = r.f.beginning
	r.f.session.begun.Store(true)
}
