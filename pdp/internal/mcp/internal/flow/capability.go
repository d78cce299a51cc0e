package flow

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/mcp/internal/answer"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/mcp/internal/link"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/internal/seal"
	"policy-service/pdp/mcp/wire"
)

// A client asks for capabilities, has them checked, lists those of its own and gives them back. The PDP decides all of it, and
// keeps them: the gateway says for whom it asks, and by which ids policies know the tools.

// capability answers a request about capabilities. There is none if the PDP has no capabilities: then the method is unknown.
func (x exchange) capability(ctx context.Context) (end *answer.Answer, there bool) {
	issuer, err := x.g.o.Asker.Issuer(ctx, x.Who)
	switch {
	case err != nil:
		return answer.Refuse(x.g.o.Asker.RefuseUnasked(x.operation(), err)), true
	case issuer == "":
		return nil, false
	}
	var result jsontext.Value
	switch x.Request.Method {
	case wire.MethodCapabilityRequest:
		result, end = x.requestCapability(ctx, issuer)
	case wire.MethodCapabilityValidate:
		result, end = x.validateCapability(ctx)
	case wire.MethodCapabilityRevoke:
		result, end = x.revokeCapability(ctx)
	default:
		result, end = x.listCapabilities(ctx)
	}
	if end != nil {
		return end, true
	}
	return answer.Of(x.Client.Result(x.Request.Method, result)), true
}

// session is the name of the client's session for the PDP, "" if it has none.
func (x exchange) session() string {
	if x.Session == nil {
		return ""
	}
	return x.Session.Channel()
}

func unreadable(err error) *answer.Answer {
	return answer.Invalid("this cannot be read, and nothing was done: " + err.Error())
}

func (x exchange) requestCapability(ctx context.Context, issuer string) (jsontext.Value, *answer.Answer) {
	said, err := wire.ReadCapabilityRequest(x.Request.Params)
	if err != nil {
		return nil, unreadable(err)
	}
	if after, ok := onceMore(x.g.o.Capabilities, x.Who); !ok {
		return nil, answer.Limited("capabilities.per_minute", after)
	}
	r := ask.CapabilityAsk{
		Issuer: issuer, Renews: said.Renews, ApprovalID: said.ApprovalID, Terms: said.Terms, Key: said.Key, Proof: said.Proof, Names: x.g.namesOf,
	}
	if said.InSession {
		if r.Session = x.session(); r.Session == "" {
			return nil, answer.Invalid("channel is session, and requests of this revision of MCP have none: leave channel out, or ask and call in a session that begins with initialize")
		}
	}
	var end *answer.Answer
	if r.Audience, r.Tools, end = x.g.toolIDs(said); end != nil {
		return nil, end
	}
	kept := ""
	if said.Key == nil && x.g.o.HolderKeys {
		holders, err := x.g.holders(x.Who)
		if err != nil {
			return nil, answer.Internal(err)
		}
		r.Keeps, kept = holders[0], capability.KeptByGateway
	}
	g, refused := x.g.o.Asker.Capability(ctx, x.operation(), r)
	if refused != nil {
		return nil, answer.Refuse(refused)
	}
	x.g.o.Logger.Info("a capability is granted", "capability", g.ID, "audience", g.Audience, "principal", x.Who.Key)
	x.g.people.Listeners.Granted(x.Who, g.ID)
	w := wire.CapabilityGrant{
		ID: g.ID, Token: g.Token, Tools: x.g.namesOf(g.Tools), IDs: g.Tools, Audience: g.Audience, ValidFrom: g.ValidFrom, Expires: g.Expires,
		MaxUses: g.MaxUses, Verify: g.Verify, Narrowed: g.Narrowed, HolderKey: kept,
	}
	return w.Result(), nil
}

// toolID is the id of a tool that a client names by the name that it knows, or by the id. The server is "" if the name has none.
func (g *Flow) toolID(name string) (server, id string) {
	if server, _, ok := strings.Cut(name, ":"); ok && slices.Contains(g.servers.Names(), server) {
		return server, name
	}
	if server, tool, ok := link.Apart(name); ok && g.servers.Several() && slices.Contains(g.servers.Names(), server) {
		return server, server + ":" + tool
	}
	if names := g.servers.Names(); len(names) == 1 {
		return names[0], names[0] + ":" + name
	}
	return "", name
}

// toolIDs are the server of the tools that are asked for, and their ids.
func (g *Flow) toolIDs(said wire.CapabilityRequest) (audience string, ids []string, refused *answer.Answer) {
	if audience = said.Audience; audience == "" {
		audience, _ = g.toolID(said.Tools[0])
	}
	if !slices.Contains(g.servers.Names(), audience) {
		return "", nil, answer.Invalid("nothing says which server the tools are of: name it as audience")
	}
	for _, name := range said.Tools {
		server, id := g.toolID(name)
		switch {
		case server == "":
			id = audience + ":" + name
		case server != audience:
			return "", nil, answer.Invalid("the tools are of several servers, or not of the audience; ask for those of one server at a time")
		}
		ids = append(ids, id)
	}
	return audience, ids, nil
}

// namesOf are the names for clients of tools by their ids. The id of no server's tool stays as it is.
func (g *Flow) namesOf(ids []string) (names []string) {
	for _, id := range ids {
		switch server, tool, _ := strings.Cut(id, ":"); {
		case !slices.Contains(g.servers.Names(), server):
		case tool == wire.AllTools:
			id = tool
		default:
			id = g.servers.ToolName(server, tool)
		}
		names = append(names, id)
	}
	return names
}

// holders have the keys that the gateway keeps for a principal: the first is the one for capabilities from now on.
func (g *Flow) holders(who *identity.Principal) (all []*capability.Holder, err error) {
	binding := []byte{}
	for _, part := range []string{who.Issuer, who.Tenant, who.Key} {
		binding = append(binary.AppendUvarint(binding, uint64(len(part))), part...)
	}
	seeds, err := g.o.Ring.Derive(seal.HolderKey, binding)
	for _, seed := range seeds {
		holder, failed := capability.NewHolder(ed25519.NewKeyFromSeed(seed))
		all, err = append(all, holder), errors.Join(err, failed)
	}
	return all, err
}

// learnName notes for whom the PDP wants the proofs of calls of a tool, by its id, and reports whether a refusal says so.
func (g *Flow) learnName(code capability.Code, audience, tool string) bool {
	if code != capability.ProofWrongAudience || audience == "" {
		return false
	}
	if server, _, _ := strings.Cut(tool, ":"); audience == server {
		g.named.Store(nil)
	} else {
		g.named.Store(&audience)
	}
	return true
}

// proved is the capability of a call, with its proof. If it shows no proof, and the gateway keeps the key that
// the capability is bound to, it has a proof by that. An id is taken to be of a capability that is bound to the key of now.
func (g *Flow) proved(who *identity.Principal, shown evaluation.CapabilityShown, tool string, arguments jsontext.Value, nonce string) (s evaluation.CapabilityShown, kept bool) {
	if !g.o.HolderKeys || shown.Token == "" || shown.Proof != "" {
		return shown, false
	}
	holders, err := g.holders(who)
	given, err2 := evaluation.ParseWithNulls(arguments, evaluation.DefaultLimits())
	if err != nil || err2 != nil {
		return shown, false
	}
	server, _, _ := strings.Cut(tool, ":")
	audience := cmp.Or(g.named.Load(), &server)
	claim := capability.Claim{Capability: shown.Token, Audience: *audience, Tool: tool, Arguments: given, IssuedAt: g.o.Now(), Nonce: nonce}
	holder := holders[0]
	if token, refusal := capability.ParseToken(shown.Token); refusal == nil {
		claim.Capability = token.ID
		n := slices.IndexFunc(holders, func(h *capability.Holder) bool { return h.Key().Thumbprint() == token.Key.Thumbprint() })
		if n < 0 {
			return shown, false
		}
		holder = holders[n]
	}
	if shown.Proof, err = holder.Prove(claim); err != nil {
		return shown, false
	}
	return shown, true
}

// ask lets the PDP decide about an operation whose client shows a capability, or none. If the gateway keeps the key it makes another
// proof when the PDP wants a nonce in it, or wants it for another name of the gateway.
func (g *Flow) ask(ctx context.Context, op ask.Operation, shown evaluation.CapabilityShown) (permit *ask.Permit, refused *ask.Refusal) {
	named := false
	for nonce := ""; ; nonce = refused.Shown.Nonce {
		if op.Shows = shown; op.Tool != nil {
			op.Shows, op.Kept = g.proved(op.Principal, shown, op.Tool.Server+":"+op.Tool.Name, ask.Arguments(op.Params), nonce)
		}
		permit, refused = g.o.Asker.Ask(ctx, op)
		switch {
		case shown.Token == "":
		case refused == nil && permit.Capability() != "": // else the PDP has not judged it yet
			g.people.Listeners.Granted(op.Principal, permit.Capability())
		case refused == nil, refused.Shown == nil:
		case refused.Shown.Code == capability.Revoked:
			g.usable.forget(op.Principal.Key)
			g.people.Listeners.NotifyRevoked(op.Principal.Key, ask.CapabilityID(shown.Token))
		case refused.Shown.Code == capability.NonceRequired && op.Kept && nonce == "" && refused.Shown.Nonce != "":
			continue
		case op.Kept && !named && g.learnName(refused.Shown.Code, refused.Shown.Audience, op.Tool.Server+":"):
			named = true
			continue
		}
		return permit, refused
	}
}

func (x exchange) validateCapability(ctx context.Context) (jsontext.Value, *answer.Answer) {
	said, err := wire.ReadCapabilityUse(x.Request.Params)
	if err != nil {
		return nil, unreadable(err)
	}
	_, id := x.g.toolID(said.Tool)
	said.Shown.Session = x.session()
	for named := false; ; named = true {
		shown, kept := x.g.proved(x.Who, said.Shown, id, ask.Arguments(x.Params), "")
		worth, refused := x.g.o.Asker.Validate(ctx, x.operation(), shown, id, said.Arguments)
		var w evaluation.CapabilityAnswer
		if refused == nil && kept && !named && json.Unmarshal(worth, &w) == nil && x.g.learnName(capability.Code(w.Reason), w.Audience, id) {
			continue
		}
		return worth, answer.Refuse(refused)
	}
}

// listCapabilities returns the capabilities of the principal that count, with the names of tools that the client knows.
func (x exchange) listCapabilities(ctx context.Context) (jsontext.Value, *answer.Answer) {
	all, refused := x.g.o.Asker.Capabilities(ctx, x.operation())
	if refused != nil {
		return nil, answer.Refuse(refused)
	}
	type item struct {
		Names                     []string `json:"tools"`
		IDs                       []string `json:"tool_ids"`
		approvals.CapabilityState `json:",inline"`
	}
	items := make([]item, len(all))
	for n, one := range all {
		one.Person = "" // the principal's own
		items[n] = item{x.g.namesOf(one.Tools), one.Tools, one}
	}
	text, err := json.Marshal(map[string]any{"capabilities": items})
	if err != nil {
		return nil, answer.Internal(err)
	}
	return text, nil
}

func (x exchange) revokeCapability(ctx context.Context) (jsontext.Value, *answer.Answer) {
	id, reason, err := wire.ReadCapabilityRevoke(x.Request.Params)
	if err != nil {
		return nil, unreadable(err)
	}
	if reason == "" {
		reason = "its holder gave it back"
	}
	state, refused := x.g.o.Asker.Return(ctx, x.operation(), id, reason)
	if refused != nil {
		return nil, answer.Refuse(refused)
	}
	x.g.o.Logger.Info("a capability is given back", "capability", state.ID, "principal", x.Who.Key)
	x.g.usable.forget(x.Who.Key)
	x.g.people.Listeners.Revoked(x.Who, state.ID)
	return rpc.Object{}.With("id", rpc.String(state.ID)).With("state", rpc.String(state.State)).Value(), nil
}

// withNeeds says in the _meta of each tool that the client may call whether calls of it need a capability, or can have one.
func withNeeds(ctx context.Context, x exchange, o *page) {
	if x.Request.Method != "tools/list" || o.err != nil {
		return
	}
	if issuer, err := x.g.o.Asker.Issuer(ctx, x.Who); err != nil || issuer == "" {
		return
	}
	var kept []ask.Item
	var of []int
	for n, keep := range o.keep {
		if keep && x.g.o.Asker.TakesCapability(o.items[n].Tool) {
			kept, of = append(kept, o.items[n]), append(of, n)
		}
	}
	if len(kept) == 0 {
		return
	}
	without, refused := x.g.o.Asker.FilterWithout(ctx, x.operation(), kept)
	if o.err = refused; refused != nil {
		return
	}
	for i, n := range of {
		need := "required"
		if without[i] {
			need = "optional"
		}
		server := o.items[n].Server
		said := wire.ToolCapability(server+":"+o.items[n].Tool.Name, server, need)
		o.values[n] = withMeta(o.values[n], rpc.Object{}.With(era.MetaTool, said.Value()))
	}
}

// withMeta is a tool with one more member of _meta. The rest of its definition has the bytes that its server wrote.
func withMeta(tool jsontext.Value, more rpc.Object) jsontext.Value {
	entry, err := rpc.ParseObject(tool)
	switch {
	case err != nil || entry.Len() == 0:
		return tool
	case entry.Get("_meta") == nil:
		open := bytes.TrimSuffix(bytes.TrimSpace(tool), []byte("}"))
		return slices.Concat(open, []byte(`,"_meta":`), more.Value(), []byte("}"))
	}
	meta := entry.GetObject("_meta")
	for name, v := range more.Members {
		meta = meta.With(name, v)
	}
	return entry.With("_meta", meta.Value()).Value()
}
