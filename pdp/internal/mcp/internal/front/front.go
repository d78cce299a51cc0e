// Package front takes requests from clients, over HTTP and the standard streams, in either era, and returns the answers. It
// keeps the sessions, and hands each request to package flow as a call.
package front

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	"time"

	"golang.org/x/sync/errgroup"

	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/doors"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/flow"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/meters"
	"policy-service/pdp/internal/mcp/internal/people"
	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/mcp/internal/traces"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/internal/server/auth"
)

// The front makes the cheapest checks of a request first: origin, kind, principal, syntax. It refuses everything that it does
// not recognise.

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

// answerPage lets a browser send requests of pages of an allowed origin, and lets those pages read the answers.
func answerPage(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	h.Set("Access-Control-Allow-Headers", "*, Authorization")
	h.Set("Access-Control-Expose-Headers", reply.SessionHeader+", WWW-Authenticate")
	h.Set("Access-Control-Max-Age", "600")
}

// refuse answers a request that could not be read as a message, or that may not go on.
func (g *Front) refuse(w http.ResponseWriter, status int, id rpc.ID, code int, detail string) {
	g.end(w, status, rpc.Failure(id, rpc.Error{Code: code, Message: detail}))
}

// end answers a request that comes to no decision, and writes the line about it that the flow writes about all others.
func (g *Front) end(w http.ResponseWriter, status int, m rpc.Message) {
	if ctx := context.Background(); g.o.Logger.Enabled(ctx, logging.Access) {
		g.o.Logger.Log(ctx, logging.Access, "request", "method", "", "tool", "", "outcome", string(answer.Unusable), "status", status)
	}
	reply.JSON(w, status, m)
}

// turnAway refuses a request before its body is read. It does not wait for the body: the connection ends with the answer.
func (g *Front) turnAway(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if r.ContentLength != 0 {
		unread(w)
	}
	g.refuse(w, status, rpc.ID{}, rpc.InvalidRequest, detail)
}

// unread ends the connection with the answer. Without it net/http would wait for the whole body.
func unread(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // where no deadline can be set, that of the server ends it
}

// tooMany refuses a message that has no answer in MCP, such as a notification, if its sender sends too many.
func (g *Front) tooMany(w http.ResponseWriter, after time.Duration) {
	w.Header().Set("Retry-After", strconv.FormatInt(answer.Seconds(after), 10))
	g.refuse(w, http.StatusTooManyRequests, rpc.ID{}, rpc.InvalidRequest, "too many requests")
}

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

// paceDelay is the shortest delay of a message whose person sends far too many. The longest is twice that. The delays differ,
// so that messages that came together do not go on together.
const paceDelay = time.Second

// pace delays a message, before its body is read, if its person sends more than twice the allowed rate. A refusal costs its
// sender nothing, and delays the requests of others.
func (g *Front) pace(ctx context.Context, who *identity.Principal) {
	if g.o.Arrivals == nil {
		return
	}
	release, _, ok := g.o.Arrivals.Admit(who.Account(), who.Account(), "")
	if ok {
		release()
		return
	}
	wait := time.NewTimer(paceDelay + rand.N(paceDelay))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	case <-g.doors.Context.Done():
	}
}

// post takes a POST. It returns the visit to serve, or nil if the request is answered already.
func (g *Front) post(w http.ResponseWriter, r *http.Request) (context.Context, *flow.Visit) {
	in := g.readIncoming(w, r)
	if in == nil {
		return nil, nil
	}
	r = r.WithContext(traces.Follow(r.Context(), r.Header))
	if modern(r.Header, in.params) {
		return g.postModern(w, r, in)
	}
	return g.postLegacy(w, r, in)
}

// readIncoming reads a message of a principal. If it refuses the message it returns nil.
func (g *Front) readIncoming(w http.ResponseWriter, r *http.Request) *incoming {
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
	params, _ := m.ParamsObject() // the params are an object, or absent
	return &incoming{who: who, message: m, params: params, header: r.Header, streamFirst: takes.streamFirst}
}

func (g *Front) read(w http.ResponseWriter, r *http.Request, who *identity.Principal) (m rpc.Message, ok bool) {
	var b bytes.Buffer
	body := http.MaxBytesReader(w, r.Body, int64(g.o.Body))
	b.Grow(int(max(0, min(r.ContentLength, usualBody))) + bytes.MinRead) // a false ContentLength costs no more than a usual message
	_, err := b.ReadFrom(io.LimitReader(body, usualBody))
	if err == nil && b.Len() == usualBody {
		end, few := g.o.Rates.Hold(who.Account(), LargeMessages)
		if !few {
			unread(w)
			g.tooMany(w, time.Second)
			return m, false
		}
		defer end() // after parsing, which takes more memory than the bytes do
		_, err = b.ReadFrom(body)
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		g.refuse(w, http.StatusRequestEntityTooLarge, rpc.ID{}, rpc.InvalidRequest, "the message is larger than "+strconv.Itoa(g.o.Body)+" bytes")
		return m, false
	} else if err != nil {
		g.refuse(w, http.StatusBadRequest, rpc.ID{}, rpc.ParseError, "the message cannot be read")
		return m, false
	}
	m, fault := rpc.Parse(b.Bytes())
	if fault != nil {
		g.end(w, http.StatusBadRequest, fault.Failure())
	}
	return m, fault == nil
}

const usualBody = 16 << 10

// LargeMessages names the limit on the messages larger than usual that are read for one person at a time.
const LargeMessages = "large message"

// incoming is a message of a client, with its principal and headers.
type incoming struct {
	who         *identity.Principal
	message     rpc.Message
	params      rpc.Object
	header      http.Header
	streamFirst bool
}

// modern reports whether a message is read as one of the modern era: because it says so itself, or because its header names a
// revision that no client of the legacy era has.
func modern(h http.Header, params rpc.Object) bool {
	if params.GetObject("_meta").Get(era.MetaVersion) != nil {
		return true
	}
	version := h.Get(era.VersionHeader)
	return version >= era.ModernVersions[len(era.ModernVersions)-1]
}

// plainJSON reports whether the headers are unambiguous about the type of the body, and about the parts of the body that they
// mirror.
func plainJSON(h http.Header) bool {
	for name, values := range h {
		if len(values) > 1 && (name == "Content-Type" || name == "Content-Encoding" || strings.HasPrefix(name, "Mcp-")) {
			return false
		}
	}
	if h.Get("Content-Encoding") != "" {
		return false
	}
	media, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, named := parameters["charset"]
	return err == nil && media == jsonType && (!named || strings.EqualFold(charset, "utf-8"))
}

const jsonType, eventStream = "application/json", "text/event-stream"

type accepts struct {
	json, stream bool
	// streamFirst is set if the client names the stream before JSON, and so prefers it.
	streamFirst bool
}

func acceptOf(h http.Header) (a accepts) {
	for part := range strings.SplitSeq(strings.Join(h["Accept"], ","), ",") {
		media, _, err := mime.ParseMediaType(part)
		if err != nil {
			continue
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

// Options configure a Front.
type Options struct {
	// Name is the name of the gateway among several, with which ids of its sessions begin. It is empty if there is one gateway.
	Name     string
	Identity *identity.Identity
	Rates    *rates.Limiter
	// Arrivals bounds how often one person is answered at once, whatever the answer. Nil is no bound.
	Arrivals *rates.Limiter
	Ring     *seal.Ring
	Hosts    Hosts
	// Known is called with the person of a request, or with its client if it has no person, before the body is read.
	Known func(ctx context.Context, person string)
	// Body is the largest size of a message, in bytes.
	Body int
	// SessionIdle is how long a session of the legacy era is kept without use.
	SessionIdle time.Duration
	// SessionsEach is how many sessions one person may have, and how many clients of the modern era.
	SessionsEach int
	Meters       *meters.Meters
	Logger       *slog.Logger
	Now          func() time.Time
}

// New returns a Front that hands requests to a flow.
func New(d *doors.Doors, f *flow.Flow, p *people.People, s *link.Servers, o Options) *Front {
	g := &Front{doors: d, o: o, flow: f, people: p}
	g.sessions = sessions{o: &g.o, servers: s, all: map[string]*session{}, ended: map[[sha256.Size]byte]time.Time{}}
	g.reaches = reaches{o: &g.o, servers: s, all: map[reachKey]*usedReach{}}
	return g
}

// Endpoint is the path of the MCP endpoint.
const Endpoint = "/mcp"

// Handler serves the MCP endpoint, and the metadata that names its authorization servers.
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

// mostClosing is how many sessions and reaches are closed at a time: a server may be slow to take the end of its session.
const mostClosing = 64

// Sweep closes idle sessions and reaches.
func (g *Front) Sweep(ctx context.Context, now time.Time) {
	var all errgroup.Group
	all.SetLimit(mostClosing)
	for _, end := range append(g.sessions.idle(now, g.o.SessionIdle), g.reaches.idle(now)...) {
		if ctx.Err() != nil { // the gateway closes the rest when it closes
			break
		}
		all.Go(func() error {
			end()
			return nil
		})
	}
	_ = all.Wait() // no end has an error
}

// Hostname is a host without its port, in lower case.
func Hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// Hosts are the host names under which clients may address the gateway, and the origins of pages that may send requests.
type Hosts struct {
	Names, Origins []string
	// OwnPages is set if, of the pages that this machine serves, only those of the gateway's own origin may send requests.
	OwnPages bool
}

// allow refuses requests that a page in a browser sends under a host name that the page made point here (DNS rebinding).
func (a Hosts) allow(r *http.Request) bool {
	host := Hostname(r.Host)
	if !slices.Contains(a.Names, host) && !auth.IsLoopbackName(host) {
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
	// A page that this very host serves is trusted.
	return ok && (scheme == "http" || scheme == "https") && rest != "" && (strings.EqualFold(rest, r.Host) || !a.OwnPages && auth.IsLoopbackName(Hostname(rest)) && auth.IsLoopbackName(host))
}
