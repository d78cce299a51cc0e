package gate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/reply"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/traces"
)

// The front lets requests in, in the order of what is cheapest to find out: where they come from, what they are, whose
// they are, whether they can be read. What it does not recognise it refuses.

// Headers of MCP over HTTP.
const (
	sessionHeader = reply.SessionHeader
	versionHeader = "Mcp-Protocol-Version"
)

// serve is the MCP endpoint.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !g.o.Front.Hosts.allow(r) {
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
			v.serve(ctx)
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
func (g *Gateway) refuse(w http.ResponseWriter, status int, id rpc.ID, code int, detail string) {
	reply.JSON(w, status, rpc.Failure(id, rpc.Error{Code: code, Message: detail}))
}

// turnAway refuses a request before its body is read. The body is not waited for: the connection ends with the answer.
func (g *Gateway) turnAway(w http.ResponseWriter, r *http.Request, status int, detail string) {
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
func (g *Gateway) tooMany(w http.ResponseWriter, after time.Duration) {
	w.Header().Set("Retry-After", strconv.FormatInt(seconds(after), 10))
	g.refuse(w, http.StatusTooManyRequests, rpc.ID{}, rpc.InvalidRequest, "too many requests")
}

// authenticate says for whom a request is, or refuses it.
func (g *Gateway) authenticate(w http.ResponseWriter, r *http.Request) (*identity.Principal, bool) {
	who, challenge := g.o.Identity.Authenticate(r)
	if challenge == nil {
		g.o.Front.Known(r.Context(), personOf(who))
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
func (g *Gateway) pace(ctx context.Context, who principal) {
	if g.o.Arrivals == nil {
		return
	}
	release, _, ok := g.o.Arrivals.Admit(personOf(who), "")
	if ok {
		release()
		return
	}
	wait := time.NewTimer(paced + rand.N(paced))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	case <-g.ctx.Done():
	}
}

// post takes what is posted. It gives what is to be served, and nil if there is nothing more to do.
func (g *Gateway) post(w http.ResponseWriter, r *http.Request) (context.Context, *visit) {
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
func (g *Gateway) takes(w http.ResponseWriter, r *http.Request) *incoming {
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
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, who *identity.Principal) (m rpc.Message, ok bool) {
	var b bytes.Buffer
	body := http.MaxBytesReader(w, r.Body, int64(g.o.Most.Body))
	b.Grow(int(max(0, min(r.ContentLength, usualBody))) + bytes.MinRead) // one that lies costs no more than usual messages have
	_, err := b.ReadFrom(io.LimitReader(body, usualBody))
	if err == nil && b.Len() == usualBody {
		end, few := g.o.Rates.Hold(personOf(who), LargeMessages)
		if !few {
			unread(w)
			g.tooMany(w, time.Second)
			return m, false
		}
		defer end() // when it is read as a message, which takes more than its bytes do
		_, err = b.ReadFrom(body)
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		g.refuse(w, http.StatusRequestEntityTooLarge, rpc.ID{}, rpc.InvalidRequest, "the message is larger than "+strconv.Itoa(g.o.Most.Body)+" bytes")
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

// What is bounded of one principal, the streams to which it listens, and of one person: messages larger than usual that are read,
// and large answers that are not.
const (
	Streams       = "stream"
	LargeMessages = "large message"
	LargeAnswers  = "large answer"
)

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

// Front is what the front is told, and whom it tells.
type Front struct {
	Hosts Hosts
	// Self is what the gateway is, as clients of several servers are told: an implementation of MCP.
	Self jsontext.Value
	// Known is told of which person a request is, or of which client without one, before its body is read.
	Known func(ctx context.Context, person string)
}

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
