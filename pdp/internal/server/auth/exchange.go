package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4/jwt"

	"policy-service/evaluation"
)

// TokenKind is the kind of an issuer's tokens that are to be exchanged.
type TokenKind string

// The kinds there are.
const (
	// AccessToken is one of RFC 9068, or as bearer tokens are taken.
	AccessToken TokenKind = "access_token"
	// IDJAG is an Identity Assertion JWT Authorization Grant, for one client.
	IDJAG TokenKind = "id_jag"
	// SVID is a JWT-SVID of SPIFFE.
	SVID TokenKind = "jwt_svid"
)

// typs are the values of the header typ that a kind of token may have. One kind is never taken for another by its claims.
var typs = map[TokenKind][]string{
	"":          {"", "jwt", accessTyp},
	AccessToken: {"", "jwt", accessTyp},
	IDJAG:       {"oauth-id-jag+jwt"},
	SVID:        {"", "jwt", "jose"},
}

// takes reports whether an entry is for tokens of a typ.
func (i JWTIssuer) takes(typ string) bool {
	kind := TokenKind("")
	if i.Exchange != nil {
		kind = i.Exchange.Kind
	}
	return slices.Contains(typs[kind], typ)
}

// Exchange describes the tokens of an issuer, and whom they name.
type Exchange struct {
	Kind TokenKind `yaml:"kind" required:"yes" enum:"id_jag,access_token,jwt_svid" doc:"What the tokens are. An id_jag counts beside the API key, or the certificate, of the client that it names."`
	// TrustDomain is that of the issuer, whose SVIDs are of no other.
	TrustDomain string `yaml:"trust_domain" doc:"The trust domain of the issuer of jwt_svid, such as example.org: sub must be a SPIFFE ID of it. Only for jwt_svid."`
	// Person is the type of the entity that sub names, if the holder is named by another claim.
	Person string `yaml:"person" doc:"The type of the person that sub names, such as User, if principal takes another claim: on whose behalf the holder acts. Only then."`
}

// exchanged reports whether the tokens of an entry are exchanged.
func (i JWTIssuer) exchanged() bool { return i.Exchange != nil }

var (
	trustDomain = regexp.MustCompile(`^[a-z0-9._-]{1,255}$`)
	spiffePath  = regexp.MustCompile(`^(/(\.{0,2}[A-Za-z0-9_-]|\.{3})[A-Za-z0-9._-]*)+$`)
)

// checkExchange checks an entry whose tokens are exchanged.
func (i JWTIssuer) checkExchange() error {
	x := i.Exchange
	switch {
	case x == nil:
		return nil
	case typs[x.Kind] == nil || x.Kind == "":
		return errors.New("exchange.kind is none of access_token, id_jag and jwt_svid; write what the issuer's tokens are")
	case i.relayed():
		return errors.New("exchange and relayed_by are both given; leave one of the two out")
	case !i.permitsOnly(Capability):
		return errors.New("exchange is given, and such a token is good for a capability alone; write permissions: [capability]")
	case i.Principal == nil:
		return errors.New("exchange is given, and nothing says who holds the capability; add principal: {type: Agent, claim: sub}")
	case (x.Kind == SVID) != trustDomain.MatchString(x.TrustDomain) || x.Kind != SVID && x.TrustDomain != "":
		return errors.New("exchange.trust_domain is the trust domain of jwt_svid, such as example.org, and is given with no other tokens")
	case x.Kind == SVID && i.Principal.Claim != subjectClaim:
		return errors.New("principal.claim of jwt_svid is sub, which is the SPIFFE ID; write sub")
	case (i.Principal.Claim == subjectClaim) != (x.Person == ""):
		return errors.New("exchange.person is the type of the person in sub, such as User, and is given if principal.claim is another, and only then")
	case x.Person != "" && !isTypeName(x.Person):
		return errors.New("exchange.person is no type of principals; write it as policies do, such as User")
	}
	return nil
}

// Presented is a token that is to be exchanged. Kinds are those that it may be of.
type Presented struct {
	Token string
	Kinds []TokenKind
}

// Exchanged is the content of the tokens of an exchange.
type Exchanged struct {
	// Holder acts, and so holds what is granted: the subject, or the actor if there is a token of one. Its Principal is
	// never none.
	Holder Caller
	// Subject is the holder of the subject token.
	Subject Caller
	// Behind are those that the holder acts for, each once: the actors of before, the last one first, and then the subject.
	Behind []Principal
	// Persons are the value of context.person: that of the subject, by which limits count, and of the actor if there is a token of
	// one, each once.
	Persons []string
	// Client is the client that alone may bring the tokens, "" for any.
	Client string
	// Keys are the thumbprints of the keys to which tokens are bound.
	Keys []string
}

// Permits reports whether the holders of both tokens may have capabilities in a tenant.
func (x *Exchanged) Permits(tenant string) bool {
	may := func(c Caller) bool { return c.In(tenant).Serves(tenant) && c.In(tenant).May(Capability) }
	return may(x.Holder) && may(x.Subject)
}

// Exchange verifies a subject token, and the token of the actor that acts for it, if that is given. Its error is a
// [*Refusal].
func (a *Authenticator) Exchange(ctx context.Context, subject, actor Presented) (Exchanged, error) {
	s, err := a.exchanged(ctx, subject)
	if err != nil {
		return Exchanged{}, of("subject_token", err)
	}
	x := Exchanged{Holder: s.caller, Subject: s.caller, Behind: append(s.actors, s.person), Persons: []string{s.identity}, Client: s.client, Keys: s.keys}
	if actor.Token != "" {
		t, err := a.exchanged(ctx, actor)
		if err == nil && (!s.lets(t) || t.client != "" && x.Client != "" && t.client != x.Client) {
			err = invalid("the subject token does not let this one act; get a subject token for this actor")
		}
		if err != nil {
			return Exchanged{}, of("actor_token", err)
		}
		x.Holder, x.Client, x.Keys = t.caller, cmp.Or(x.Client, t.client), append(x.Keys, t.keys...)
		if t.identity != s.identity {
			x.Persons = []string{s.identity, t.identity}
		}
		x.Behind = slices.Concat(t.actors, []Principal{t.person}, s.actors, []Principal{s.caller.Principal, s.person})
	}
	var behind []Principal
	for _, p := range x.Behind {
		if p != (Principal{}) && p != x.Holder.Principal && !slices.Contains(behind, p) {
			behind = append(behind, p)
		}
	}
	if x.Behind = behind; len(behind) > mostBehind {
		return Exchanged{}, invalid("the tokens name more actors than are kept; get tokens with fewer")
	}
	return x, nil
}

// Exchanges reports whether there are issuers whose tokens are exchanged.
func (a *Authenticator) Exchanges() bool {
	return a.JWT != nil && slices.ContainsFunc(a.JWT.issuers, func(i issuer) bool { return i.exchanged() })
}

// mostBehind is how many a holder acts for, at most.
const mostBehind = 9

// of says which token a refusal is about.
func of(token string, err error) error {
	if r, ok := err.(*Refusal); ok {
		r.Detail, r.Credential = token+": "+r.Detail, ByToken // it was made for this request
	}
	return err
}

// party is the content of one token of an exchange.
type party struct {
	caller           Caller
	actors           []Principal
	person           Principal // none if it is the caller's
	identity, client string
	keys             []string
	mayAct           *evaluation.Object // nil if the token does not say
	claims           jwt.Claims
}

// exchanged verifies one token.
func (a *Authenticator) exchanged(ctx context.Context, p Presented) (who party, err error) {
	if a.JWT == nil {
		return who, notOurs()
	}
	v, err := a.JWT.verified(ctx, p.Token, way{exchange: true})
	if err == nil {
		err = a.Console.owns(v.claims)
	}
	if err != nil {
		return who, err
	}
	token, err := v.read()
	if err != nil {
		return who, err
	}
	x := v.issuer.Exchange
	who = party{claims: v.claims, caller: v.issuer.holder(token.Issuer, token.Subject, token.Claims), identity: evaluation.PersonOf(token.Issuer, token.Subject)}
	switch {
	case !slices.Contains(p.Kinds, x.Kind):
		return who, invalid("tokens of its issuer are of another type; name that type")
	case token.Login:
		return who, invalid("it is an ID token, which gives access to nothing; send an access token")
	case who.caller.Principal == (Principal{}):
		return who, invalid("it does not name its holder; have its issuer set the claim " + v.issuer.Principal.Claim + " to a text of at most 256 bytes")
	case x.Kind == SVID && !isSPIFFE(token.Subject, x.TrustDomain):
		return who, invalid("its sub is no SPIFFE ID of the trust domain of its issuer; send an SVID of that")
	}
	if x.Person != "" {
		if who.person, err = named(x.Person, token.Subject); err != nil {
			return who, err
		}
	}
	if x.Kind == IDJAG {
		said, _ := token.Claims.Lookup("client_id")
		if who.client = said.Text(); said.Kind() != evaluation.String || who.client == "" || len(v.claims.Audience) != 1 {
			return who, invalid("it is not for one client and one audience; have its issuer set client_id and aud to a text each")
		}
	}
	return who, who.reads(token, v.issuer.Principal.Type)
}

// reads reads the claims act, may_act and cnf.
func (p *party) reads(token Token, typ string) error {
	actors, ok := Actors(token.Claims, token.Issuer)
	if !ok || len(actors) > mostBehind {
		return invalid(fmt.Sprintf("its claim act is no chain of at most %d actors: each has sub, perhaps the token's own iss, perhaps act, and nothing else", mostBehind))
	}
	for _, name := range actors {
		actor, err := named(typ, name)
		if err != nil {
			return err
		}
		p.actors = append(p.actors, actor)
	}
	if who, given := token.Claims.Get("may_act"); given {
		may := who.Object() // of anything else it is empty, and lets none act
		p.mayAct = &may
	}
	bound, is := token.Claims.Get("cnf")
	if !is {
		return nil
	}
	key, _ := bound.Object().Get("jkt")
	if key.Kind() != evaluation.String || bound.Len() != 1 {
		return invalid("it is bound to a key in another way than by jkt, for which no proof is taken here; get one that is bound by jkt or not at all")
	}
	p.keys = []string{key.Text()}
	return nil
}

// named is an entity that a token names.
func named(typ, id string) (Principal, error) {
	p := Principal{typ, id}
	if len(id) > maxClaim || p.check() != nil {
		return Principal{}, invalid("it names somebody by more than 256 bytes, or by no plain text; have its issuer write a shorter name")
	}
	return p, nil
}

// lets reports whether a subject token lets an actor act: the claim may_act of RFC 8693 says who may, if there is one.
func (p *party) lets(actor party) bool {
	if p.mayAct == nil {
		return true
	}
	sub, iss := "", p.claims.Issuer
	for member, v := range p.mayAct.All {
		switch {
		case member == "sub" && v.Kind() == evaluation.String:
			sub = v.Text()
		case member == "iss" && v.Kind() == evaluation.String:
			iss = v.Text()
		default:
			return false
		}
	}
	return sub == actor.claims.Subject && iss == actor.claims.Issuer // neither is ever empty
}

// isSPIFFE reports whether text is a SPIFFE ID of a workload in a trust domain.
func isSPIFFE(text, domain string) bool {
	path, is := strings.CutPrefix(text, "spiffe://"+domain)
	return is && spiffePath.MatchString(path)
}

// actMember is RFC 8693's claim for the actor, in which it occurs again for the actor before.
const actMember = "act"

// Actors are the names in the claim act, the last actor first. It fails if the claim has another form than RFC 8693 gives
// it, or names an actor of another issuer, which would have the name of another one here.
func Actors(claims evaluation.Object, issuer string) (names []string, ok bool) {
	act, given := claims.Get(actMember)
	for given {
		sub, _ := act.Object().Get("sub") // of no object there is none
		names = append(names, sub.Text())
		if name := sub.Text(); sub.Kind() != evaluation.String || name == "" || len(name) > maxActor || strings.ContainsFunc(name, unprintable) {
			return nil, false
		}
		for member, v := range act.Object().All {
			if member != "sub" && member != actMember && (member != "iss" || v.Text() != issuer) {
				return nil, false
			}
		}
		act, given = act.Object().Get(actMember)
	}
	return names, true
}

const maxActor = 1024
