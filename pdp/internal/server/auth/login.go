package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Login is a person who logged in to the console of this server. It has no secret: of a key it keeps the hash, of a token
// the claims. It identifies the person, and never has permissions: these are found again at each request, from the keys
// and the configuration in force then. The zero Login belongs to no person.
type Login struct {
	// of a key
	keyID   string
	keyHash [sha256.Size]byte
	// of an ID token
	issuer, client, subject string
	claims                  evaluation.Object // those that the entry read
	name                    string
	ends                    time.Time
}

// longestLogin is for how long the claims of an ID token are believed. The issuer is not asked again.
const longestLogin = time.Hour

// Name is the name that the issuer has for the person, "" if it says none. The person may have chosen it: it is for the
// person's own pages alone.
func (l Login) Name() string { return l.name }

// longestName is how long a name may be, in bytes. A longer one is none.
const longestName = 200

// nameIn is the claim name of OpenID Connect.
func nameIn(claims evaluation.Object) string {
	name, _ := claims.Lookup("name")
	if name.Kind() != evaluation.String || len(name.Text()) > longestName {
		return ""
	}
	return name.Text()
}

// Ends is when the login ends in any case. It is the zero time if the login ends with its key alone.
func (l Login) Ends() time.Time { return l.ends }

// storedLogin is a login as it is kept.
type storedLogin struct {
	KeyID   string         `json:"key_id,omitzero"`
	KeyHash []byte         `json:"key_hash,omitzero"`
	Issuer  string         `json:"issuer,omitzero"`
	Client  string         `json:"client,omitzero"`
	Subject string         `json:"subject,omitzero"`
	Claims  jsontext.Value `json:"claims,omitzero"`
	Name    string         `json:"name,omitzero"`
	Ends    time.Time      `json:"ends,omitzero"`
}

// MarshalJSON makes the text that [Login.UnmarshalJSON] reads, for the other replicas of a cluster. It has no secret.
func (l Login) MarshalJSON() ([]byte, error) {
	stored := storedLogin{KeyID: l.keyID, Issuer: l.issuer, Client: l.client, Subject: l.subject, Name: l.name, Ends: l.ends}
	if l.keyID != "" {
		stored.KeyHash = l.keyHash[:]
	}
	if l.claims.Len() > 0 {
		stored.Claims = l.claims.AppendJSON(nil)
	}
	return json.Marshal(stored)
}

// UnmarshalJSON reads a login from where it was kept, and nothing else may have written.
func (l *Login) UnmarshalJSON(text []byte) error {
	var stored storedLogin
	if err := json.Unmarshal(text, &stored, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	*l = Login{keyID: stored.KeyID, issuer: stored.Issuer, client: stored.Client, subject: stored.Subject, name: stored.Name, ends: stored.Ends}
	if stored.KeyID != "" && copy(l.keyHash[:], stored.KeyHash) != len(l.keyHash) {
		return errors.New("the hash of a key has 32 bytes")
	}
	var err error
	if len(stored.Claims) > 0 {
		l.claims, err = evaluation.ParseWithNulls(stored.Claims, evaluation.DefaultLimits()) // as of the token
	}
	return err
}

type loginKey struct{}

// Context makes a request come from the person of the login, if it has the context and never leaves the process: a
// context does not come over a network.
func (l Login) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, loginKey{}, l)
}

// LogInByKey logs in the holder of an API key. Its error is a [*Refusal].
func (a *Authenticator) LogInByKey(secret string) (Login, error) {
	if err := a.unchecked(); err != nil {
		return Login{}, err
	}
	caller, err := a.key(secret)
	if err == nil {
		_, err = noGateway(caller)
	}
	if err != nil {
		return Login{}, err
	}
	return Login{keyID: KeyID(secret), keyHash: KeyHash(secret)}, nil
}

// LogInByToken logs in the holder of an ID token that an issuer made for the console, in answer to a request that had
// the nonce. Its error is a [*Refusal].
func (a *Authenticator) LogInByToken(ctx context.Context, idToken, nonce string) (Login, error) {
	if err := a.unchecked(); err != nil {
		return Login{}, err
	}
	if a.Console == nil {
		_, err := as(ByToken, Caller{}, invalid("nobody logs in by an issuer here; log in with an API key, or have the operator set console.oidc"))
		return Login{}, err
	}
	l, err := a.Console.logIn(ctx, idToken, nonce)
	_, err = as(ByToken, Caller{}, err)
	return l, err
}

// loggedIn is the caller that a login is now.
func (a *Authenticator) loggedIn(r *http.Request, l Login) (Caller, error) {
	_, authorized := r.Header["Authorization"]
	_, relayed := r.Header[ApproverToken]
	if authorized || relayed {
		return Caller{}, invalid("the request has a credential besides the login; leave out Authorization and Approver-Token")
	}
	if err := a.unchecked(); err != nil {
		return Caller{}, err
	}
	var caller Caller
	var err error
	switch {
	case l.keyID != "":
		caller, err = a.byKeyOf(l)
	case l.issuer != "" && a.Console != nil:
		caller, err = a.Console.of(l)
		caller, err = as(ByToken, caller, err)
	default:
		err = loginOver()
	}
	if err != nil {
		return Caller{}, err
	}
	caller.Way = evaluation.Way{Via: evaluation.ViaConsole}
	return caller, nil
}

func (a *Authenticator) byKeyOf(l Login) (Caller, error) {
	switch caller, err := a.findKey(l.keyID, l.keyHash); {
	case err == nil:
		return noGateway(caller)
	case errors.Is(err, ErrUnavailable):
		return Caller{}, err
	}
	return as(ByKey, Caller{}, loginOver())
}

// noGateway refuses a key that brings the votes of other people: no person holds it who could log in.
func noGateway(caller Caller) (Caller, error) {
	if caller.May(Relay) {
		return as(ByKey, Caller{}, invalid("the API key is a gateway's, and logs nobody in; log in with a key of your own"))
	}
	return caller, nil
}

func loginOver() *Refusal { return invalid("the login counts no longer; log in again") }

// unchecked refuses everybody while it is not known which keys were revoked.
func (a *Authenticator) unchecked() error {
	if a.Keys != nil && !a.Keys.Shared() && a.Keys.Err() != nil {
		return invalid("credentials cannot be checked at the moment; the operator finds the cause in the log")
	}
	return nil
}
