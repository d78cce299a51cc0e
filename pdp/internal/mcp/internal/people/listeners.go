package people

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/recent"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/events"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/mcp/internal/reply"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/mcp/wire"
)

// Clients that listen to servers also receive messages of the gateway: whether they may call tools, the approvals that they
// may decide about, and their own blocked calls. A client of the modern era asks for them with a member of its filter.

// listeners send new messages to clients that listen.
type listeners struct {
	g *People

	mu        sync.Mutex
	audiences map[string]*audience // by tenant
	// refusedTokens has when a PDP refused a token last, for every question.
	refusedTokens recent.Texts[time.Time]
	// granted has the principals of the capabilities that were granted last, by ids.
	granted recent.Texts[string]
}

// audience holds the topics of a tenant's listeners.
type audience struct {
	requests *events.Topic
	topics   []*events.Topic
	// stop ends the watch of the PDP.
	stop func()
}

// Listen sends a client the new messages on its open stream, until stop is called, Drain or Close. The first message welcomes
// the principal, if the client has asked for that: in the modern era by the filter of the stream, in the legacy era by an
// extension that it has declared. By is the request of a client of the modern era. Messages of servers do not wait for it.
func (l *listeners) Listen(ctx context.Context, who *identity.Principal, c link.Client, by rpc.ID, back reply.Reply) (stop func()) {
	ctx, cancel := l.g.doors.Until(ctx)
	listener := l.join(who)
	send := func(m rpc.Message) error {
		if c.Era == era.Modern {
			m = era.Notification(m, era.Modern, era.Modern, by)
		}
		return back.Interim(m)
	}
	over := make(chan struct{})
	go func() { // the client's own request waits for it, and so does Close
		defer close(over)
		l.g.doors.Alone(func() {
			if c.Era == era.Modern || c.SpeaksMCPx() {
				if err := send(l.welcome(ctx, who)); err != nil {
					return
				}
			}
			_ = listener.Hear(ctx, send)
		})
	}()
	return func() {
		cancel()
		<-over
		listener.Leave()
	}
}

func (l *listeners) join(who *identity.Principal) *events.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.audiences[who.Tenant]
	if a == nil {
		a = l.open(who)
		l.audiences[who.Tenant] = a
	}
	return l.g.events.Listen(who, a.topics...)
}

// open makes the topics of a tenant: its requests for tools and, if people decide here, its approvals.
func (l *listeners) open(who *identity.Principal) *audience {
	a := &audience{requests: l.g.events.Topic(l.g.readRequests(who.Tenant)), stop: func() {}}
	a.topics = []*events.Topic{a.requests}
	if pdp := l.g.o.Asker.PDP(who); pdp != nil && l.g.decides() {
		inbox := l.g.events.Topic(l.readInbox(pdp))
		a.topics = append(a.topics, inbox)
		a.stop = l.g.desk.Hear(pdp, inbox.Changed)
	}
	return a
}

func (l *listeners) requestsChanged(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.audiences[tenant]; a != nil {
		a.requests.Changed()
	}
}

func (l *listeners) tenants() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.audiences))
}

// sweep ends the watches of tenants without listeners.
func (l *listeners) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tenant, a := range l.audiences {
		if !a.requests.Listened() {
			a.stop()
			delete(l.audiences, tenant)
		}
	}
}

// welcome returns the message with the participant's name, and with whether it may call any tool or only request tools. If
// the PDP does not answer, the listener may only request tools.
func (l *listeners) welcome(ctx context.Context, who *identity.Principal) rpc.Message {
	w := wire.Welcome{TokenType: wire.TokenRestricted, Participant: who.Participant()}
	may, refused := l.g.o.Asker.MayCall(ctx, who, l.g.o.Servers)
	switch {
	case refused != nil:
		l.g.o.Logger.Warn("nobody knows what a listener may call", slog.Group("", "tenant", who.Tenant), "why", refused.Why, "principal", who.Key)
	case may:
		w.TokenType = wire.TokenFull
	}
	return rpc.Message{Method: wire.MethodWelcome, Params: w.Payload()}
}

// retryableStatuses are the statuses of refusals that may soon change: the PDP does not accept the gateway's own key just
// now, or it is too busy.
var retryableStatuses = []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests}

// refusedFor is the time for which a listener's inbox is not read after the PDP refused that: it does not accept the token,
// or the person may not decide there at all.
const refusedFor = time.Minute

// readInbox reads from a PDP, with the token of a listener, the approvals that wait for this person.
func (l *listeners) readInbox(pdp *authzenclient.Client) events.Read {
	return func(ctx context.Context, who *identity.Principal, cursor string) (page events.Page, err error) {
		person, err := approver(who)
		if err != nil { // there is no token
			return page, nil
		}
		if at, is := l.refusedTokens.Get(tokenOf(who)); is && l.g.o.Now().Sub(at) < refusedFor {
			return page, &events.Later{Err: authzenclient.ErrPerson, After: refusedFor}
		}
		read, err := approvals.ReadNotifications(ctx, pdp, person, cursor)
		var e *authzenclient.Error
		refused := errors.As(err, &e) && e.Kind == authzenclient.Refused
		switch {
		case errors.Is(err, authzenclient.ErrPerson):
			l.refusedTokens.Put(tokenOf(who), l.g.o.Now(), mostRefusedTokens)
			return page, &events.Later{Err: err, After: refusedFor}
		case refused && cursor != "" && (e.Status == http.StatusGone || e.Status == http.StatusBadRequest):
			// The PDP does not know this cursor any longer. The listener starts from the beginning, but not at once: the PDP
			// may refuse each cursor.
			return events.Page{Failed: &events.Later{Err: err, After: e.RetryAfter}}, nil
		case refused && !slices.Contains(retryableStatuses, e.Status):
			return page, &events.Later{Err: err, After: refusedFor}
		case e != nil:
			return page, &events.Later{Err: err, After: e.RetryAfter}
		case err != nil:
			return page, err
		}
		page = events.Page{Cursor: read.Cursor, More: read.More}
		for _, text := range read.Messages {
			if event, err := l.clientNotification(text); err == nil {
				page.Events = append(page.Events, event)
			} else {
				l.g.o.Logger.Warn("the PDP's notification of an approval cannot be read", "error", err)
			}
		}
		return page, nil
	}
}

// clientNotification returns the PDP's notification of an approval in the form for clients.
func (l *listeners) clientNotification(text []byte) (e events.Event, err error) {
	m, fault := rpc.Parse(text)
	if fault != nil || m.Method != wire.MethodAuthorizationRequest || !m.ID.IsZero() {
		return e, errors.New("it is no notification of an approval")
	}
	params, err := m.ParamsObject()
	if err != nil {
		return e, err
	}
	shown, err := wire.Announced(m.Params, l.shown(params.GetString("tool")), bareRequester(params))
	return events.Event{ID: params.GetString("id"), Message: rpc.Message{Method: m.Method, Params: shown}}, err
}

// bareRequester returns the id of the requester, without its type. The PDP names a requester by type and id, or by the id
// alone, which may contain a slash. So it takes the id of the agent or subject in the question that has this name. Any other
// name stays as it is.
func bareRequester(params rpc.Object) string {
	name, question := params.GetString("requester"), params.GetObject("request")
	for _, one := range []rpc.Object{question.GetObject("context").GetObject("agent"), question.GetObject("subject")} {
		if id := one.GetString("id"); id != "" && name == one.GetString("type")+"/"+id {
			return id
		}
	}
	return name
}

// mostRefusedTokens is the number of refused tokens that are kept at least.
const mostRefusedTokens = 1 << 12

// tokenOf is a digest of a token, its principal, and the tenant, which has one PDP.
func tokenOf(who *identity.Principal) recent.Digest {
	return sha256.Sum256([]byte(who.Tenant + "\x00" + who.Key + "\x00" + who.Token))
}

// shown returns the name for clients of a tool that questions name by its id. Any other id stays as it is: by the binding a
// question names a tool as clients do, and the tool may be called as a server is.
func (l *listeners) shown(id string) string {
	server, tool, ofServer := strings.Cut(id, ":")
	if ofServer && slices.Contains(l.g.o.Servers, server) {
		return l.g.o.ToolName(server, tool)
	}
	return id
}

// NotifyBlocked sends a principal, on all its streams, the message that its call is blocked, if the refusal blocks it.
func (l *listeners) NotifyBlocked(who *identity.Principal, method string, tool *ask.Tool, r *ask.Refusal) {
	var data struct {
		Type       string `json:"type"`
		Reason     string `json:"reason"`
		Suggestion string `json:"suggestion"`
	}
	if method != "tools/call" || json.Unmarshal(r.Data, &data) != nil || data.Type != "tool_call_blocked" {
		return
	}
	b := wire.Blocked{Reason: data.Reason, Suggestion: data.Suggestion}
	b.Reason = cmp.Or(r.Blocked, b.Reason, r.Message)
	if tool != nil && r.Kind != ask.Unknown {
		b.ToolID = tool.Server + ":" + tool.Name
	}
	l.g.events.Tell(who.Key, rpc.Message{Method: wire.MethodCallBlocked, Params: b.Payload()})
}

// mostGranted is the number of granted capabilities that are kept at least, to notify their principals.
const mostGranted = 1 << 14

// Granted notes that a capability was granted to a principal, who will be notified when it is revoked.
func (l *listeners) Granted(who *identity.Principal, id string) {
	l.granted.Put(sha256.Sum256([]byte(id)), who.Key, mostGranted)
}

// Revoked sends the principal that gave a capability back the message that it counts no more, on all its streams; and the
// principal to whom it was granted through this gateway.
func (l *listeners) Revoked(who *identity.Principal, id string) {
	l.NotifyRevoked(who.Key, id)
	if to, ok := l.granted.Get(sha256.Sum256([]byte(id))); ok && to != who.Key {
		l.NotifyRevoked(to, id)
	}
}

// NotifyRevoked sends a principal the message that its capability counts no more.
func (l *listeners) NotifyRevoked(principal, id string) {
	l.g.events.Tell(principal, rpc.Message{Method: wire.MethodCapabilityRevoked, Params: wire.CapabilityRevoked(id)})
}
