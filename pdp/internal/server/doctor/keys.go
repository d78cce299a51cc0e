package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
)

// keyList are the API keys of the data directory, or those of the cluster if the replica has the keys that open them.
type keyList struct {
	list []keys.Info
	err  error
}

func openAPIKeys(ctx context.Context, c *server.Config, shared *shared) (k keyList) {
	switch {
	case c.Cluster == nil && c.Data == "":
	case c.Cluster == nil:
		apiKeys, err := keys.Open(c.Data)
		if k.err = err; err == nil {
			k.list = apiKeys.List()
		}
	case shared.begun && len(server.MissingShared(c.Data, &cluster.Config{})) == 0: // to open them would make the missing keys
		apiKeys, done, err := server.OpenSharedKeys(ctx, *c)
		if k.err = err; err == nil {
			k.list = apiKeys.List()
			done()
		}
	}
	return k
}

// credentials reports whether the server would tell callers apart.
func (k keyList) credentials(c *server.Config) bool {
	return len(c.Auth.JWT)+len(c.Auth.MTLS) > 0 || c.Console != nil && c.Console.OIDC != nil ||
		k.err == nil && len(k.list) > 0 || c.Cluster != nil // a replica lets no caller in without credentials
}

// apiKeys are the API keys beside the configuration, the log and the other keys of the directory.
type apiKeys struct {
	keyList
	*server.Config
	data   directory
	shared *shared
	log    *decisionLog
}

// Findings looks whether the service could use its own keys, and callers theirs.
func (a apiKeys) Findings(ctx context.Context) (found finding.List) {
	const check = "keys"
	if a.data.toBeMade() {
		a.relayed(&found)
	}
	if !a.data.exists() {
		return found
	}
	errs := server.CheckKeys(a.Data)
	for _, err := range errs {
		found.Wrong(check, err)
	}
	if len(errs) == 0 {
		found.OK(check, "the keys of the log, of masked values, of approvals and of signatures can be used, or are made at the first start")
	}
	if a.Program.InProcess { // only its program asks, and without a key
		return found
	}
	if a.err != nil {
		found.Wrong(check, a.err)
	} else {
		a.listed(&found)
	}
	if a.log.reader != nil {
		a.onRecord(ctx, &found)
	}
	return found
}

func (a apiKeys) listed(found *finding.List) {
	a.relayed(found)
	a.unbarred(found)
	a.expiring(found)
	switch {
	case len(a.Auth.JWT)+len(a.Auth.MTLS) > 0:
	case !slices.ContainsFunc(a.list, inForce) && len(a.list) > 0:
		found.Bites("keys", "policy-service keys add --data "+a.Data+" --name NAME", "every API key is revoked or has expired, and nobody can ask")
	case a.Cluster != nil && len(a.list) == 0 && a.shared.begun:
		found.Bites("keys", "policy-service keys add --config FILE --name NAME", "the cluster has no API key, and nobody can ask")
	case len(a.list) == 0 && a.Cluster == nil:
		found.OK("keys", "there are no credentials: everybody on this machine may ask, nobody else can")
	}
}

// onRecord compares the API keys of the directory with the log.
func (a apiKeys) onRecord(ctx context.Context, found *finding.List) {
	apiKeys, err := keys.Open(a.Data)
	if err != nil {
		return
	}
	known, damage, err := keys.ReadLog(ctx, a.log.reader, apiKeys)
	if err = errors.Join(err, apiKeys.Damage(), damage); err != nil {
		found.Bites("keys", "find out who changed the directory, and see policy-service log verify "+a.Data, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	wrong := known.Against(apiKeys)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		found.Bites("keys", "find out who changed "+keys.File+", and make a new key under another name if its holder needs one",
			"%q is not in force, whatever its file says: %s", name, wrong[name])
	}
}

// inForce goes by the clock of the machine, as the server does for its keys.
func inForce(k keys.Info) bool { return !k.Ended(time.Now()) }

// renewWithin is how long before its end a key is named.
const renewWithin = 14 * 24 * time.Hour

// expiring looks for keys that expire soon, or have expired, and were neither revoked nor renewed.
func (a apiKeys) expiring(found *finding.List) {
	for n, k := range a.list {
		renewed := slices.ContainsFunc(a.list[n+1:], func(later keys.Info) bool { return later.Name == k.Name })
		if renewed || k.Expires.IsZero() || !k.Revoked.IsZero() || time.Until(k.Expires) >= renewWithin {
			continue
		}
		ends := "expires at %s, and its holder is refused then"
		if !inForce(k) {
			ends = "expired at %s, and its holder is refused"
		}
		found.Bites("keys", fmt.Sprintf("policy-service keys renew --data %s %q makes a new secret, or keys revoke if nobody needs it", a.Data, k.Name),
			"the API key %q "+ends, k.Name, k.Expires.Format(time.RFC3339))
	}
}

// unbarred looks for people who approve by an API key and could decide about their own questions, which a gateway asks
// by a token that names them in another way: see [auth.JWTIssuer.Unbarred].
func (a apiKeys) unbarred(found *finding.List) {
	for n, issuer := range a.Auth.JWT {
		err := issuer.Unbarred()
		ofType := func(k keys.Info) bool {
			return inForce(k) && slices.Contains(k.Permissions, auth.Approve) && k.Principal.Type == issuer.Principal.Type
		}
		if err != nil && slices.ContainsFunc(a.list, ofType) {
			found.Wrong("keys", fmt.Errorf("auth.jwt[%d]: %w", n, err))
		}
	}
}

// relayed looks for the keys beside which alone some tokens count. A server starts without them: keys come and go while it
// runs.
func (a apiKeys) relayed(found *finding.List) {
	for n, issuer := range a.Auth.JWT {
		for _, name := range issuer.RelayedBy {
			at := -1 // the newest of that name
			for n, k := range a.list {
				if k.Name == name {
					at = n
				}
			}
			what, try := "", "make a key of another name, and name that one"
			switch {
			case at < 0:
				what, try = "there is none of that name", fmt.Sprintf("policy-service keys add --data %s --permission relay --name %q, or correct the name", a.Data, name)
			case !inForce(a.list[at]):
				what = "it is revoked, or has expired"
			case !slices.Contains(a.list[at].Permissions, auth.Relay):
				what = "it lacks the permission relay"
			default:
				continue
			}
			found.Bites("keys", try, "auth.jwt[%d].relayed_by names the API key %q, and %s: what people say there does not count", n, name, what)
		}
	}
}
