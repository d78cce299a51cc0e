// Package front takes requests from clients, over HTTP and the standard streams, in either era, and gives back the answers. It knows
// sessions, and hands each request to package flow as a call.
package front

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"policy-service/pdp/mcp/internal/answer"
	"policy-service/pdp/mcp/internal/doors"
	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/flow"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/link"
	"policy-service/pdp/mcp/internal/meters"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/internal/rates"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/traces"
	"policy-service/pdp/seal"
	"policy-service/pdp/server/auth"
)

// The front lets requests in, in the order of what is cheapest to find out: where they come from, what they are, whose
// they are, whether they can be read. What it does not recognise it refuses.

// Headers of MCP over HTTP.
const (
	sessionHeader = reply.SessionHeader
	versionHeader = "Mcp-Protocol-Version"
)

// serve is the MCP endpoint.
func (g *Front) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !g.o.Hosts.allow(r) {
		g.turnAway(w, r, http.StatusForbidden, "this host or origin is not allowed here")
		return
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		answerPage(w.Header(), origin)
	}
	switch r.Method {
	case http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		if ctx, v := g.post(w, r); v != nil {
			v.Serve(ctx)
		}
	case http.MethodGet:
		g.get(w, r)
	case http.MethodDelete:
		g.delete(w, r)
	default:
		w.Header().Set("Allow", "POST, GET, DELETE, OPTIONS")
		g.turnAway(w, r, http.StatusMethodNotAllowed, "the endpoint takes POST, GET and DELETE")
	}
}

// answerPage tells a browser that a page of an allowed origin may ask, and read what comes back.
func answerPage(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	h.Set("Access-Control-Allow-Headers", "*, Authorization")
	h.Set("Access-Control-Expose-Headers", sessionHeader+", WWW-Authenticate")
	h.Set("Access-Control-Max-Age", "600")
}

// refuse answers a request that was not read as a message, or was none that may go on.
func (g *Front) refuse(w http.ResponseWriter, status int, id rpc.ID, code int, detail string) {
	reply.JSON(w, status, rpc.Failure(id, rpc.Error{Code: code, Message: detail}))
}

// turnAway refuses a request before its body is read. The body is not waited for: the connection ends with the answer.
func (g *Front) turnAway(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if r.ContentLength != 0 {
		unread(w)
	}
	g.refuse(w, status, rpc.ID{}, rpc.InvalidRequest, detail)
}

// unread has the connection end with the answer, and not when the body has come: net/http would wait for that.
func unread(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // where there is none, the server's own ends it
}

// tooMany answers what has no answer in MCP if somebody sends too much of it.
func (g *Front) tooMany(w http.ResponseWriter, after time.Duration) {
	w.Header().Set("Retry-After", strconv.FormatInt(answer.Seconds(after), 10))
	g.refuse(w, http.StatusTooManyRequests, rpc.ID{}, rpc.InvalidRequest, "too many requests")
}

// authenticate says for whom a request is, or refuses it.
func (g *Front) authenticate(w http.ResponseWriter, r *http.Request) (*identity.Principal, bool) {
	who, challenge := g.o.Identity.Authenticate(r)
	if challenge == nil {
		g.o.Known(r.Context(), who.Account())
		g.pace(r.Context(), who)
		return who, true
	}
	if challenge.Header != "" {
		w.Header().Set("WWW-Authenticate", challenge.Header)
	}
	g.turnAway(w, r, challenge.Status, challenge.Detail)
	return nil, false
}

// paced is how long a message waits of a person who sends far more than may be asked, and up to as long again: those that came
// together do not go on together.
const paced = time.Second

// pace has a message wait, before its body is read, if its person sends more than all that may be asked and as much again. A
// refusal costs its sender nothing, and others wait behind it.
func (g *Front) pace(ctx context.Context, who *identity.Principal) {
	if g.o.Arrivals == nil {
		return
	}
	release, _, ok := g.o.Arrivals.Admit(who.Account(), "")
	if ok {
		release()
		return
	}
	wait := time.NewTimer(paced + rand.N(paced))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	case <-g.doors.Context.Done():
	}
}

// post takes what is posted. It gives what is to be served, and nil if there is nothing more to do.
func (g *Front) post(w http.ResponseWriter, r *http.Request) (context.Context, *flow.Visit) {
	in := g.takes(w, r)
	if in == nil {
		return nil, nil
	}
	r = r.WithContext(traces.Follow(r.Context(), r.Header))
	if modern(r.Header, in.params) {
		return g.postModern(w, r, in)
	}
	return g.postLegacy(w, r, in)
}

// takes takes a message of a principal, or refuses it and gives nil.
func (g *Front) takes(w http.ResponseWriter, r *http.Request) *incoming {
	takes := acceptOf(r.Header)
	switch {
	case !plainJSON(r.Header):
		g.turnAway(w, r, http.StatusUnsupportedMediaType, "the message is not plain application/json in UTF-8, or a header comes twice")
		return nil
	case !takes.json || !takes.stream:
		g.turnAway(w, r, http.StatusNotAcceptable, "Accept must name application/json and text/event-stream")
		return nil
	}
	who, ok := g.authenticate(w, r)
	if !ok {
		return nil
	}
	m, ok := g.read(w, r, who)
	if !ok {
		return nil
	}
	params, _ := m.ParamsObject() // it is an object, or not there
	return &incoming{who: who, message: m, params: params, header: r.Header, streamFirst: takes.streamFirst}
}

// read reads the message of a principal, or refuses it.
func (g *Front) read(w http.ResponseWriter, r *http.Request, who *identity.Principal) (m rpc.Message, ok bool) {
	var b bytes.Buffer
	body := http.MaxBytesReader(w, r.Body, int64(g.o.Body))
	b.Grow(int(max(0, min(r.ContentLength, usualBody))) + bytes.MinRead) // one that lies costs no more than usual messages have
	_, err := b.ReadFrom(io.LimitReader(body, usualBody))
	if err == nil && b.Len() == usualBody {
		end, few := g.o.Rates.Hold(who.Account(), LargeMessages)
		if !few {
			unread(w)
			g.tooMany(w, time.Second)
			return m, false
		}
		defer end() // when it is read as a message, which takes more than its bytes do
		_, err = b.ReadFrom(body)
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		g.refuse(w, http.StatusRequestEntityTooLarge, rpc.ID{}, rpc.InvalidRequest, "the message is larger than "+strconv.Itoa(g.o.Body)+" bytes")
		return m, false
	} else if err != nil {
		g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.ParseError, "the message cannot be read")
		return m, false
	}
	m, fault := rpc.Parse(b.Bytes(), rpc.DefaultLimits())
	if fault != nil {
		reply.JSON(w, http.StatusBadRequest, fault.Failure())
	}
	return m, fault == nil
}

const usualBody = 16 << 10

// LargeMessages are larger than usual, and read: there is a bounded number of one person.
const LargeMessages = "large message"

// incoming is a message of a client as it came in.
type incoming struct {
	who         *identity.Principal
	message     rpc.Message
	params      rpc.Object
	header      http.Header
	streamFirst bool
}

// modern reports whether a message is to be read as one of the modern era: because it says so itself, or because its
// header names a revision that no client of the legacy era has.
func modern(h http.Header, params rpc.Object) bool {
	if params.GetObject("_meta").Get(era.MetaVersion) != nil {
		return true
	}
	version := h.Get(versionHeader)
	return version >= era.ModernVersions[len(era.ModernVersions)-1]
}

// plainJSON reports whether the headers leave no doubt about what the body is, and about what they mirror of it.
func plainJSON(h http.Header) bool {
	for name, values := range h {
		if len(values) > 1 && (name == "Content-Type" || name == "Content-Encoding" || strings.HasPrefix(name, "Mcp-")) {
			return false
		}
	}
	if h.Get("Content-Encoding") != "" {
		return false
	}
	if h.Get("Content-Type") == jsonType { // as most have it
		return true
	}
	media, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, named := parameters["charset"]
	return err == nil && media == jsonType && (!named || strings.EqualFold(charset, "utf-8"))
}

const jsonType, eventStream = "application/json", "text/event-stream"

// accepts is what a client takes for an answer.
type accepts struct {
	json, stream bool
	// streamFirst is set if it names the stream before JSON, and so would rather have it.
	streamFirst bool
}

func acceptOf(h http.Header) (a accepts) {
	for part := range strings.SplitSeq(strings.Join(h["Accept"], ","), ",") {
		media := strings.TrimSpace(part)
		if media != jsonType && media != eventStream { // as most have them
			var err error
			if media, _, err = mime.ParseMediaType(part); err != nil {
				continue
			}
		}
		if media == eventStream || media == "text/*" || media == "*/*" {
			a.streamFirst = a.streamFirst || !a.json && media == eventStream
			a.stream = true
		}
		if media == jsonType || media == "application/*" || media == "*/*" {
			a.json = true
		}
	}
	return a
}

// Front takes requests of clients, over HTTP and the standard streams.
type Front struct {
	doors    *doors.Doors
	o        Options
	flow     *flow.Flow
	people   *people.People
	sessions sessions
	reaches  reaches
}

// Options are how requests come in.
type Options struct {
	Identity *identity.Identity
	Rates    *rates.Limiter
	// Arrivals bounds how often one person is answered at once, whatever the answer. Nil is any number.
	Arrivals *rates.Limiter
	Ring     *seal.Ring
	Hosts    Hosts
	// Known is told of which person a request is, or of which client without one, before its body is read.
	Known func(ctx context.Context, person string)
	// Body is how large that of a message may be, in bytes.
	Body int
	// SessionIdle is how long a session of the legacy era is kept that nobody uses.
	SessionIdle time.Duration
	// SessionsEach is how many sessions one person may have, and how many clients of the modern era.
	SessionsEach int
	Meters       *meters.Meters
	Logger       *slog.Logger
	Now          func() time.Time
}

// New takes requests for a flow.
func New(d *doors.Doors, f *flow.Flow, p *people.People, s *link.Servers, o Options) *Front {
	g := &Front{doors: d, o: o, flow: f, people: p}
	g.sessions.o, g.sessions.servers, g.reaches.o, g.reaches.servers = &g.o, s, &g.o, s
	return g
}

// Endpoint is the path of the MCP endpoint.
const Endpoint = "/mcp"

// Handler serves the MCP endpoint, and says by which authorization servers it is entered.
func (g *Front) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(Endpoint, g.serve)
	for _, path := range g.o.Identity.MetadataPaths() {
		mux.HandleFunc("GET "+path, g.metadata)
	}
	return mux
}

func (g *Front) metadata(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=3600")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	_, _ = w.Write(g.o.Identity.Metadata())
}

// closing ends a session of a client's, or a reach, or one of its sessions. A server may take its time to hear that it is over.
type closing func()

// mostClosing is how many are closed at a time.
const mostClosing = 64

// Sweep closes sessions and reaches that nobody uses any longer.
func (g *Front) Sweep(ctx context.Context, now time.Time) {
	var all sync.WaitGroup
	defer all.Wait()
	atOnce := make(chan struct{}, mostClosing)
	for _, end := range append(g.sessions.idle(now, g.o.SessionIdle), g.reaches.idle(now)...) {
		select {
		case atOnce <- struct{}{}:
		case <-ctx.Done(): // the server ends the rest with all others
			return
		}
		all.Go(func() {
			end()
			<-atOnce
		})
	}
}

// Hostname is a host without its port, in lower case.
func Hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func isLoopback(host string) bool { return auth.IsLoopbackName(host) }

// Hosts are the names under which the gateway is spoken to, and the origins of pages that may.
type Hosts struct {
	Names, Origins []string
	// OwnPages is set if of the pages that this machine serves only those of the gateway's own origin may ask.
	OwnPages bool
}

// allow refuses what a page in a browser would send by a name that it made point here.
func (a Hosts) allow(r *http.Request) bool {
	host := Hostname(r.Host)
	if !slices.Contains(a.Names, host) && !isLoopback(host) {
		return false
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	if len(origins) > 1 {
		return false
	}
	if slices.Contains(a.Origins, origins[0]) {
		return true
	}
	scheme, rest, ok := strings.Cut(origins[0], "://")
	// A page that this very host has served is no stranger.
	return ok && (scheme == "http" || scheme == "https") && rest != "" && (strings.EqualFold(rest, r.Host) || !a.OwnPages && isLoopback(Hostname(rest)) && isLoopback(host))
}
