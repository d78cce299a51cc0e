package capability

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
)

// Ask is the body of a request for a capability. Make one, let [Holder.Request] add key and proof, and send its JSON.
type Ask struct {
	Tenant     string // "" for that of the address it is sent to
	Holder     evaluation.Ref
	Properties evaluation.Object // of the holder
	// Context is for the policies and the record: person and on_behalf_of as in a question, and holder_key. A credential
	// that is of one principal may not send it.
	Context  evaluation.Object
	Audience string   // the server of the tools
	Tools    []string // ids; the audience is put before one without a colon, and "*" is all of its tools
	// Duration is from when it is granted, and 0 leaves it to the service. ValidUntil, with or without ValidFrom,
	// stands in its place.
	Duration              time.Duration
	ValidFrom, ValidUntil time.Time
	MaxUses               int       // 0 for no bound
	Offline               bool      // gateways may verify it that do not ask the service; not with MaxUses
	Arguments             Arguments // nil for any
	Reason                string    // for people and the record
	Key                   Key       // of the holder
	Proof                 string    // by the key; "" for a holder that is away
	ApprovalID            string    // where people were asked before
	Channel               Channel   // in whose session alone it is to count, the zero value for any
	// MaxDepth is how often in a row it may be handed on. It is counted from the first capability, which was granted.
	MaxDepth int
	// EncryptTo is a key of P-256 to which the token is encrypted, the zero Key for none.
	EncryptTo Key
	// Parent is the capability that is to be handed on to Holder, "" if none is, and Giver is the key of its holder, by which
	// the proof is. No body has them: the address has the Parent.
	Parent string
	Giver  Key
}

const (
	maxReason   = 1000                 // bytes
	maxDuration = 10 * 366 * 24 * 3600 // seconds
	// maxTerms bounds what a token has to hold of a request: what is more than that would be too large a token.
	maxTerms = 4500 // bytes
)

// DecodeAsk reads the body of a request for a capability. It does not ask whether the proof is good: [Ask.CheckProof]
// does. An error is an [*evaluation.Error].
func DecodeAsk(body []byte, limits evaluation.Limits) (Ask, error) {
	o, err := evaluation.ParseObject(body, limits)
	if err != nil {
		return Ask{}, err
	}
	var r reader
	r.only(o, nil, "tenant_id", "holder", "audience", "tools", "duration", "valid_from", "valid_until", "max_uses", "offline", "arguments",
		"reason", "key", "proof", "approval_id", "channel", "max_depth", "encrypt_to", "context")
	who := r.object(o, false, "holder")
	r.only(who, []string{"holder"}, "type", "id", "properties")
	a := Ask{
		Tenant:     strings.Clone(r.text(o, maxName, true, "tenant_id")), // who counts by tenants keeps it, and not the body
		Holder:     r.ref(o, "holder"),
		Audience:   r.text(o, maxName, false, "audience"),
		Duration:   time.Duration(r.whole(o, 1, maxDuration, true, "duration")) * time.Second,
		ValidFrom:  r.date(o, "valid_from"),
		ValidUntil: r.date(o, "valid_until"),
		MaxUses:    int(r.whole(o, 1, MaxUses, true, "max_uses")),
		Arguments:  r.arguments(o),
		Reason:     r.text(o, maxReason, true, "reason"),
		Proof:      r.text(o, MaxProof, true, "proof"),
		ApprovalID: r.text(o, maxName, true, "approval_id"),
		Properties: r.object(who, true, "holder", "properties"),
		Context:    r.context(o),
		Channel:    Channel{r.channel(o, maxName)},
		EncryptTo:  r.sealKey(o),
		MaxDepth:   int(r.whole(o, 0, maxDepth, true, "max_depth")),
	}
	if offline, there := o.Get("offline"); there {
		a.Offline = offline.True()
		r.want(offline.Kind() == evaluation.Bool, "neither true nor false", "offline")
		r.want(!a.Offline || a.MaxUses == 0, "given beside max_uses, and nobody counts offline; leave one of the two out", "offline")
	}
	a.Key, err = keyOf(r.object(o, false, "key"))
	r.want(err == nil, fmt.Sprint(err), "key")
	r.asked(&a, o)
	if r.err != nil {
		return Ask{}, r.err
	}
	return a, nil
}

// HolderKeyMember is the member of a context that says who keeps the holder's key, if not the holder.
const HolderKeyMember = "holder_key"

// KeptByGateway is the value of [HolderKeyMember] for a key that a gateway keeps in the place of the holder.
const KeptByGateway = "gateway"

// context is the member "context".
func (r *reader) context(o evaluation.Object) evaluation.Object {
	c := r.object(o, true, "context")
	r.only(c, []string{"context"}, "person", "on_behalf_of", HolderKeyMember)
	if kept, there := c.Get(HolderKeyMember); there {
		r.want(kept.Text() == KeptByGateway, "not "+KeptByGateway, "context", HolderKeyMember)
	}
	if err := evaluation.CheckContext(c); err != nil && r.err == nil {
		r.err = err
	}
	return c
}

// asked reads the tools, and holds what is asked for together.
func (r *reader) asked(a *Ask, o evaluation.Object) {
	a.Tools = r.texts(o, "tools")
	named, _ := evaluation.Texts(a.full()) // of strings of a body, which are valid
	r.tools(o.With("tools", named), a.Audience, "tools")
	a.Tools = a.full()
	r.want(a.Duration == 0 || a.ValidUntil.IsZero(), "given beside valid_until; leave one of the two out", "duration")
	r.want(a.ValidFrom.IsZero() || a.ValidFrom.Before(a.ValidUntil), "not before valid_until; give both, or a duration from now", "valid_from")
	for _, name := range slices.Sorted(maps.Keys(a.Arguments)) {
		_, ok := jcs(a.Arguments[name].Value())
		r.want(ok, "a number that other readers round, so that a token could not pin it; write it as a string, or with fewer digits", "arguments", name)
	}
	told := text([]any{a.terms(), a.Tools, a.Holder, a.Audience, a.Audience}) // a token says some of it twice
	r.want(len(told) <= maxTerms, fmt.Sprintf("tools, arguments and holder have more than %d bytes together, and would not fit a token; ask for them in parts", maxTerms))
}

// date is a member that is a time of RFC 3339, in whole seconds.
func (r *reader) date(o evaluation.Object, at ...string) time.Time {
	v, there := o.Get(at[0])
	if !there {
		return time.Time{}
	}
	date, err := time.Parse(time.RFC3339, v.Text())
	year := date.UTC().Year()
	r.want(err == nil && v.Kind() == evaluation.String && date.Nanosecond() == 0 && 1970 <= year && year <= 9999,
		"not a time of RFC 3339 in whole seconds, such as 2026-01-02T15:04:05Z", at...)
	return date.UTC()
}

// full is the tools by their ids.
func (a Ask) full() []string {
	all := make([]string, len(a.Tools))
	for n, tool := range a.Tools {
		if all[n] = tool; !strings.Contains(tool, ":") {
			all[n] = a.Audience + ":" + tool
		}
	}
	return all
}

// terms are the members that the proof is about.
func (a Ask) terms() map[string]any {
	date := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format("2006-01-02T15:04:05Z")
	}
	m := given(map[string]any{
		"tools": a.full(), "audience": a.Audience, "max_uses": a.MaxUses, "max_depth": a.MaxDepth,
		"duration": seconds(a.Duration), "valid_from": date(a.ValidFrom), "valid_until": date(a.ValidUntil),
	})
	if a.Arguments != nil {
		m["arguments"] = a.Arguments
	}
	if a.Offline {
		m["offline"] = true
	}
	return m
}

// MarshalJSON writes the body that [DecodeAsk] reads.
func (a Ask) MarshalJSON() ([]byte, error) {
	m := a.terms()
	maps.Copy(m, given(map[string]any{"tenant_id": a.Tenant, "reason": a.Reason, "proof": a.Proof, "approval_id": a.ApprovalID}))
	m["holder"] = map[string]any{"type": a.Holder.Type, "id": a.Holder.ID, "properties": a.Properties}
	if !a.Key.IsZero() {
		m["key"] = a.Key
	}
	if a.Context.Len() > 0 {
		m["context"] = a.Context
	}
	if !a.EncryptTo.IsZero() {
		m["encrypt_to"] = a.EncryptTo
	}
	if a.Channel != (Channel{}) {
		m["channel"] = map[string]any{"session": a.Channel.Session}
	}
	return text(m), nil
}

// Digest is what the proof of a request is about: the SHA-256, in base64url, of the form of RFC 8785 of {tools,
// audience, duration or valid_from and valid_until, max_uses, max_depth, offline, arguments, channel, encrypt_to, jkt}, and of parent
// and holder {type, id} where one is handed on. Members that were not given are left out, and offline if it is false. Tools are the
// whole ids, times are in UTC, each constraint has its constraint_type, channel is as a token has it, and jkt and
// encrypt_to are the thumbprints of keys.
func (a Ask) Digest() string {
	m := a.terms()
	m["jkt"] = a.Key.Thumbprint()
	if a.Parent != "" {
		m["parent"], m["holder"] = a.Parent, a.Holder
	}
	if !a.EncryptTo.IsZero() {
		m["encrypt_to"] = a.EncryptTo.Thumbprint()
	}
	if a.Channel != (Channel{}) {
		m["channel"] = sessionClaim(a.Channel.Hash())
	}
	return digest(canonical(m))
}

// SameAs reports what of a request is not as in a token that is to be renewed by it. The error is at that member, and nil
// if the holder, its key, the audience, the session, the tools, the arguments and who may verify it are the same.
func (a Ask) SameAs(t Token) error {
	var r reader
	same := func(is bool, name string) {
		r.want(is, "not that of the capability; send the request that it was granted by, or ask for another capability", name)
	}
	layer, arguments := t.Layers[0], func(a Arguments) string { return string(canonical(Layer{Arguments: a})) }
	same(a.Holder == t.Holder, "holder")
	same(a.Key.Thumbprint() == t.Key.Thumbprint(), "key")
	same(a.Audience == t.Audience, "audience")
	same(a.Channel.Hash() == t.Session, "channel")
	same(slices.Equal(a.Tools, layer.Tools), "tools")
	same(a.Offline == (t.Verify == Offline), "offline")
	same(len(t.Layers) == 1 && arguments(a.Arguments) == arguments(layer.Arguments), "arguments")
	if r.err != nil {
		return r.err
	}
	return nil
}

// requestPayload is that of the proof of a request. Its form is that of RFC 8785.
func requestPayload(issuer string, at int64, id, digest string) []byte {
	return canonical(map[string]any{"aud": issuer, "iat": at, "jti": id, "req": digest})
}

// Signer is the key that the proof is by: that of the holder, or of the holder of the capability that is handed on.
func (a Ask) Signer() Key {
	if a.Parent != "" {
		return a.Giver
	}
	return a.Key
}

// CheckProof reports whether the asker has the key of [Ask.Signer]: the proof is signed with it, for the issuer of that
// name, within the window of [Options], and over the request. The caller sees to it that a jti counts once.
func (a Ask) CheckProof(issuer string, now time.Time, age, skew time.Duration) (jti string, iat time.Time, refusal *Refusal) {
	refused := func(code Code) (string, time.Time, *Refusal) {
		return "", time.Time{}, &Refusal{Code: code, Audience: issuer}
	}
	if a.Proof == "" {
		return refused(ProofMissing)
	}
	c, o, ok := readProof(a.Proof, TypeRequest, a.Signer())
	if !ok {
		return refused(ProofInvalid)
	}
	var r reader
	audience, req := r.text(o, maxURL, false, "aud"), r.text(o, maxName, false, "req")
	jti, iat = r.text(o, mostID, false, "jti"), r.time(o, "iat")
	switch {
	case r.err != nil, !isID(jti), string(requestPayload(audience, iat.Unix(), jti, req)) != string(c.payload):
		return refused(ProofInvalid)
	case audience != issuer:
		return refused(ProofWrongAudience)
	case req != a.Digest():
		return refused(ProofWrongCall)
	case !window(iat, now, age, skew):
		return refused(ProofStale)
	}
	return jti, iat, nil
}
