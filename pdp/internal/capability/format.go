package capability

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

// The file is DATA/capabilities.db, in bbolt's format; see package bolt. These are its keys, besides those of package ledger.
// T is a tenant, and a HASH is the SHA-256 of what it is said to be of.
//
//	x/ID        → the Capability, without its words
//	xw/ID       → its Words, written again when it is renewed
//	xr/ID       → the renewal that is reserved
//	xa/HASH     → of a tenant, an approval and an ask: the id of the capability that was granted by them
//	xc/t/T      → how many are live in a tenant; xc/h/HASH those of a tenant and a holder, and xc/o/HASH those of a tenant and
//	              an owner: a person, or a holder without one
//	xi/t/T/ID   → true, of each one; also xi/h/HASH/ID by tenant and holder, xi/p/HASH/ID by tenant and person if it has one,
//	              xi/k/HASH/ID by tenant and key, xi/c/HASH/ID by caller, and by caller and person, and xi/a/ID/ID by each of
//	              its ancestors
//
// A value is JSON after its MAC, as [ledger] has it, with a key that is derived from the service's key of approvals. The
// format may grow by another format number, and by that alone.

// FileName is the name of the file in the data directory, FormatVersion the number of its format.
const (
	FileName      = "capabilities.db"
	FormatVersion = 1
)

const (
	kind          = "x"
	prefixItems   = kind + "/"
	prefixWords   = "xw/"
	prefixRenewal = "xr/"
	prefixAsks    = "xa/"
	ofTenants     = "xc/t/"
	ofHolders     = "xc/h/"
	ofOwners      = "xc/o/"
)

// The uses of derived keys: the values of the file, and the steps in the log.
const (
	keyUse  = "file"
	sealUse = "steps"
)

// keyOf derives a key for one use from the key of approvals. None is one of those of approvals.
func keyOf(key []byte, use string) []byte {
	return ledger.DeriveKey(key, "policy-service capabilities "+use)
}

// file is where capabilities are, unless there is another engine.
func file(data string) bolt.Options {
	return bolt.Options{Path: filepath.Join(data, FileName), Errors: known}
}

// form is how values are written.
func form(key []byte) ledger.Form {
	return ledger.Form{
		Items:     "capabilities",
		Kind:      kind,
		Key:       keyOf(key, keyUse),
		Version:   FormatVersion,
		Marshal:   json.Deterministic(true),
		Unmarshal: json.RejectUnknownMembers(true),
		Errors:    known,
	}
}

// hash is of some texts. Others have another.
func hash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

func askKey(tenant, approval, ask string) string { return prefixAsks + hash(tenant, approval, ask) }

// counters returns the keys of the counts that a capability has a part in, and the most that each may be. A holder may be an
// application with many users, so it has half of its tenant in all; each of its users has what a person may have.
func (c *Capability) counters(l Limits) map[string]int {
	holder, owner := c.grantor(), c.Owner()
	return map[string]int{
		ofTenants + url.PathEscape(c.Tenant):               l.MaxLivePerTenant,
		ofHolders + hash(c.Tenant, holder.Type, holder.ID): (l.MaxLivePerTenant + 1) / 2,
		ofOwners + hash(c.Tenant, owner.Type, owner.ID):    l.MaxLivePerHolder,
	}
}

// The indexes, each the beginning of keys that end with ids.
func indexTenant(tenant string) string { return "xi/t/" + url.PathEscape(tenant) + "/" }
func indexHolder(tenant string, h evaluation.Ref) string {
	return "xi/h/" + hash(tenant, h.Type, h.ID) + "/"
}
func indexPerson(tenant, person string) string { return "xi/p/" + hash(tenant, person) + "/" }
func indexCaller(caller, person string) string { return "xi/c/" + hash(caller, person) + "/" }
func indexAncestor(id string) string           { return "xi/a/" + id + "/" }
func indexKey(tenant, jkt string) string       { return "xi/k/" + hash(tenant, jkt) + "/" }

func (c *Capability) indexes() []string {
	keys := []string{
		indexTenant(c.Tenant) + c.ID, indexHolder(c.Tenant, c.Holder) + c.ID, indexKey(c.Tenant, c.JKT) + c.ID, indexCaller(c.Caller, "") + c.ID,
	}
	if c.Person != "" {
		keys = append(keys, indexPerson(c.Tenant, c.Person)+c.ID, indexCaller(c.Caller, c.Person)+c.ID)
	}
	for _, id := range c.Ancestors {
		keys = append(keys, indexAncestor(id)+c.ID)
	}
	return keys
}

// setWords gives a capability its words, and what is in them.
func (c *Capability) setWords(w Words) error {
	token, refused := capability.ParseClaims(w.Claims)
	if refused != nil {
		return refused
	}
	c.Words, c.Token, c.Digest = w, token, digestOf(w.Claims)
	c.ID, c.Holder, c.JKT, c.Audience = token.ID, token.Holder, token.Key.Thumbprint(), token.Audience
	c.Begins, c.Expires, c.MaxUses, c.MaxDepth = token.NotBefore.UTC(), token.Expires.UTC(), token.MaxUses, token.MaxDepth
	c.Offline = token.Verify == capability.Offline
	if c.Offline && c.Expires.After(c.Listed) {
		c.Listed = c.Expires
	}
	if token.Grantor != nil {
		c.Grantor = *token.Grantor
	}
	return nil
}

// read reads a capability with its words.
func read(from ledger.Reader, id string) (c Capability, found bool) {
	if c, found = readState(from, id); !found {
		return c, false
	}
	was := c
	from.Get(prefixWords+id, &c.Words)
	if err := c.setWords(c.Words); from.Err() == nil && (err != nil || c.ID != was.ID || c.Digest != was.Digest) {
		from.Fail(notItsToken(id))
	}
	if next := (renewal{}); c.Granting != "" && from.Get(prefixRenewal+id, &next) > 0 {
		c.next = &next
	}
	return c, from.Err() == nil
}

// readGrant reads a capability that has not ended with its words, and not the token in them, which takes as long as all the rest.
func readGrant(from ledger.Reader, id string) (c Capability, found bool) {
	if c, found = readState(from, id); !found || !c.open() {
		return c, false
	}
	from.Get(prefixWords+id, &c.Words)
	if from.Err() == nil && digestOf(c.Claims) != c.Digest {
		from.Fail(notItsToken(id))
	}
	return c, from.Err() == nil
}

func notItsToken(id string) error {
	return fmt.Errorf("%w: %q has not the token that it is to have", ErrDamaged, id)
}

// digestOf is the digest of claims.
func digestOf(claims []byte) string {
	sum := sha256.Sum256(claims)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// readState reads a capability without its words.
func readState(from ledger.Reader, id string) (c Capability, found bool) {
	revision := from.Get(prefixItems+id, &c)
	c.Revision = revision
	return c, revision > 0
}
