package capability

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
)

// Token is what a capability says.
type Token struct {
	Issuer   string // the service, its tenant included
	Audience string // the server of the tools
	ID       string
	Holder   evaluation.Ref
	Key      Key // of the holder
	// In whole seconds. At Expires it counts no more.
	IssuedAt, NotBefore, Expires time.Time
	// Layers are one to three. Each of them has to admit a call.
	Layers []Layer
	// MaxUses is how many calls it covers, 0 for as many as there are until it expires.
	MaxUses int
	// Verify is who can say that it counts: [Online] is the service alone, which knows what was revoked, and [Offline] a
	// gateway, too, that has the status list.
	Verify string
	// Status is the token's place in a status list, which one for offline has.
	Status Listed
	// Parent is the id of the capability that this one was made from, "" for none. Depth is how often that was done,
	// and MaxDepth how often it may be.
	Parent          string
	Depth, MaxDepth int
	// Session is the SHA-256, in base64url, of the id of the only session in which it counts, "" for any.
	Session string
	// Grantor is on whose authority it was granted, nil where that is the policies' alone.
	Grantor *evaluation.Ref
}

// The values of [Token.Verify].
const Online, Offline = "online", "offline"

const ourType, toolCall, maxDepth = "tool_capability", "tools/call", MaxLayers - 1

// wide are the limits of what the package reads by itself: a token, and what is smaller.
var wide = func() evaluation.Limits {
	limits := evaluation.DefaultLimits()
	limits.Body, limits.Depth = MaxToken, 32
	return limits
}()

// Claims is the payload of the token, to be signed with the type [TypeToken]. The same token has the same bytes, with
// members in the order of their names. It fails where [ParseClaims] would not read it again, and where the token would
// be too large.
//
//	{"iss":…, "aud":…, "jti":…, "sub":…, "sub_type":…, "iat":…, "nbf":…, "exp":…, "cnf": {"jwk": {…}, "jkt":…},
//	 "authorization_details": [{"type": "tool_capability", "locations": [aud], "actions": ["tools/call"],
//	   "datatypes": [the tools of the first layer], "layers": [{"tools": […], "arguments": {…}}]}],
//	 "verify": "online", "status": {"status_list": {"idx":…, "uri":…}}, "max_uses":…, "parent":…, "depth":…, "max_depth":…,
//	 "channel": {"session":…}, "grantor": {"type":…, "id":…}}
//
// What the entry says in the members of RFC 9396, any authorization server can narrow. More claims may come, which
// readers pass over. An entry and its layers have these members alone: to pass over another one there could be to pass
// over a restriction.
func (t Token) Claims() ([]byte, error) {
	if len(t.Layers) == 0 || t.Key.IsZero() {
		return nil, errors.New("a token needs a layer and a key; without them it would cover nothing, or be anybody's")
	}
	claims := given(map[string]any{
		"iss": t.Issuer, "aud": t.Audience, "jti": t.ID, "sub": t.Holder.ID, "sub_type": t.Holder.Type,
		"iat": t.IssuedAt.Unix(), "nbf": t.NotBefore.Unix(), "exp": t.Expires.Unix(),
		"cnf":    map[string]any{"jwk": t.Key, "jkt": t.Key.Thumbprint()},
		"verify": t.Verify, "max_uses": t.MaxUses, "parent": t.Parent, "depth": t.Depth, "max_depth": t.MaxDepth,
		"authorization_details": []any{map[string]any{
			"type": ourType, "locations": []string{t.Audience}, "actions": []string{toolCall}, "datatypes": t.Layers[0].Tools, "layers": t.Layers,
		}},
	})
	if t.Session != "" {
		claims["channel"] = sessionClaim(t.Session)
	}
	if t.Grantor != nil {
		claims["grantor"] = t.Grantor
	}
	if t.Status != (Listed{}) {
		claims["status"] = map[string]any{"status_list": map[string]any{"idx": t.Status.Index, "uri": t.Status.URI}}
	}
	payload, err := json.Marshal(claims, json.Deterministic(true))
	if err != nil { // whose text may quote a value
		return nil, errors.New("a text of the token is not valid UTF-8, and would become another one")
	}
	const rest = 256 // header and signature, in base64
	if base64url.EncodedLen(len(payload)) > MaxToken-rest {
		return nil, fmt.Errorf("the token would have more than %d bytes; grant fewer tools, or shorter constraints", MaxToken)
	}
	if _, err := parseClaims(payload); err != nil {
		return nil, fmt.Errorf("the token would be refused: %w", err)
	}
	return payload, nil
}

// ParseClaims reads what Claims wrote. It does not ask whether the token counts.
func ParseClaims(payload []byte) (Token, *Refusal) {
	t, err := parseClaims(payload)
	if err != nil {
		return Token{}, &Refusal{Code: Malformed}
	}
	return t, nil
}

// ParseToken reads the text of a token that its holder has from the service: which capability it is, and for which audience.
// It checks no signature, so that nothing is allowed by it: see [Verifier.Check].
func ParseToken(text string) (Token, *Refusal) {
	s, ok := splitCompact(text, MaxToken)
	if _, known := keyID(s.header, TypeToken); !ok || !known {
		return Token{}, &Refusal{Code: Malformed}
	}
	return ParseClaims(s.payload)
}

func parseClaims(payload []byte) (Token, error) {
	o, err := evaluation.ParseWithNulls(payload, wide)
	if err != nil {
		return Token{}, err
	}
	var r reader
	t := Token{
		Issuer:    r.text(o, maxURL, false, "iss"),
		Audience:  r.text(o, maxName, false, "aud"),
		ID:        r.text(o, mostID, false, "jti"),
		Holder:    evaluation.Ref{ID: r.text(o, maxURL, false, "sub"), Type: r.text(o, maxName, false, "sub_type")},
		IssuedAt:  r.time(o, "iat"),
		NotBefore: r.time(o, "nbf"),
		Expires:   r.time(o, "exp"),
		Key:       r.confirmation(o),
		MaxUses:   int(r.whole(o, 1, MaxUses, true, "max_uses")),
		Verify:    r.text(o, len(Offline), false, "verify"),
		Parent:    r.text(o, mostID, true, "parent"),
		Depth:     int(r.whole(o, 0, maxDepth, true, "depth")),
		MaxDepth:  int(r.whole(o, 0, maxDepth, true, "max_depth")),
		Session:   r.channel(o, maxName),
	}
	r.want(visible(t.ID), "not of visible ASCII characters", "jti")
	r.want(t.NotBefore.Before(t.Expires), "not before exp", "nbf")
	r.want(t.Verify == Online || t.Verify == Offline, "not online or offline", "verify")
	if _, there := o.Lookup("status"); there || t.Verify == Offline {
		at := []string{"status", "status_list"}
		place := r.object(r.object(o, false, at[0]), false, at...)
		t.Status = Listed{r.text(place, maxURL, false, in(at, "uri")...), int(r.whole(place, 0, ListSize-1, false, in(at, "idx")...))}
	}
	r.want(t.Verify == Online || t.MaxUses == 0, "beside offline, where nobody counts", "max_uses")
	r.want((t.Depth > 0) == (t.Parent != ""), "parent and depth belong together", "parent")
	r.want(t.Depth <= t.MaxDepth, "more than max_depth", "depth")
	if _, there := o.Lookup("grantor"); there {
		grantor := r.ref(o, "grantor")
		t.Grantor = &grantor
	}
	t.Layers = r.details(o, t.Audience)
	if r.err != nil {
		return Token{}, r.err
	}
	return t, nil
}

// time is a member that is a time of JWT, in whole seconds.
func (r *reader) time(o evaluation.Object, at ...string) time.Time {
	const endOf9999 = 253402300799
	return time.Unix(r.whole(o, 1, endOf9999, false, at...), 0).UTC()
}

func (r *reader) confirmation(o evaluation.Object) Key {
	o = r.object(o, false, "cnf")
	key, err := keyOf(r.object(o, false, "cnf", "jwk"))
	r.want(err == nil, "not a key of a holder", "cnf", "jwk")
	thumbprint, there := o.Lookup("jkt")
	r.want(!there || thumbprint.Text() == key.Thumbprint(), "not the thumbprint of the key", "cnf", "jkt")
	return key
}

// details has the layers of the entry of our type, of which there is one. Entries of others are passed over.
func (r *reader) details(o evaluation.Object, audience string) (layers []Layer) {
	const name = "authorization_details"
	ours := 0
	for at, v := range r.list(o, maxValues, name) {
		e := v.Object()
		if r.text(e, maxName, false, in(at, "type")...) != ourType {
			continue
		}
		ours++
		r.only(e, at, "type", "locations", "actions", "datatypes", "layers")
		for place, layer := range r.list(e, MaxLayers, in(at, "layers")...) {
			r.only(layer.Object(), place, "tools", "arguments")
			layers = append(layers, Layer{r.tools(layer.Object(), audience, in(place, "tools")...), r.arguments(layer.Object(), place...)})
		}
		r.want(slices.Equal(r.texts(e, in(at, "locations")...), []string{audience}), "not the audience alone", in(at, "locations")...)
		r.want(slices.Equal(r.texts(e, in(at, "actions")...), []string{toolCall}), "not "+toolCall+" alone", in(at, "actions")...)
		r.want(len(layers) > 0 && slices.Equal(r.texts(e, in(at, "datatypes")...), layers[0].Tools), "not the tools of the first layer", in(at, "datatypes")...)
	}
	r.want(ours == 1, "not one entry of the type "+ourType+", but "+strconv.Itoa(ours), name)
	return layers
}

// texts is a member that is an array of strings.
func (r *reader) texts(o evaluation.Object, at ...string) (all []string) {
	for place, v := range r.list(o, MaxTools, at...) {
		ok := v.Kind() == evaluation.String && 1 <= len(v.Text()) && len(v.Text()) <= maxName
		r.want(ok, fmt.Sprintf("not a string of 1 to %d bytes", maxName), place...)
		all = append(all, v.Text())
	}
	return all
}

// tools is a member that is an array of tools of a server, or all of them.
func (r *reader) tools(o evaluation.Object, server string, at ...string) []string {
	all := r.texts(o, at...)
	for n, tool := range all {
		name, of := strings.CutPrefix(tool, server+":")
		r.want(of && name != "", "not a tool of the audience, whose ids begin with its name and a colon", in(at, strconv.Itoa(n))...)
		r.want(name == "*" || !strings.HasSuffix(name, "*"), "an id that ends with a star stands for no tool; write SERVER:* for all of a server", in(at, strconv.Itoa(n))...)
		r.want(!slices.Contains(all[:n], tool), "named twice", in(at, strconv.Itoa(n))...)
	}
	return all
}
