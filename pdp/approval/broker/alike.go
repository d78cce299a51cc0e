package broker

import (
	"bytes"
	"iter"
	"regexp"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/visible"
)

const (
	// comparedText and comparedTexts bound the texts of a request that are compared, in bytes and in number, and mostAlike
	// bounds how many are named.
	comparedText  = 256
	comparedTexts = 1000
	mostAlike     = 20
	// mostKnown is how many tenants' ids are kept.
	mostKnown = 16
)

// knownIDs are the ids that tenants' parts of the bundle know.
type knownIDs struct {
	mu       sync.Mutex
	digest   string
	byTenant map[string]*visible.Known
}

func (k *knownIDs) of(b *pdp.Bundle, tenant string) *visible.Known {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.digest != b.Digest() || len(k.byTenant) >= mostKnown && k.byTenant[tenant] == nil {
		k.digest, k.byTenant = b.Digest(), map[string]*visible.Known{}
	}
	if k.byTenant[tenant] == nil {
		k.byTenant[tenant] = visible.NewKnown(b.IDs(tenant))
	}
	return k.byTenant[tenant]
}

// Names and arguments are the parts of a request that are compared, by their JSON Pointers.
var (
	nameParts     = regexp.MustCompile(`^/(subject/id|action/name|resource/id|context/(agent|on_behalf_of|requester)(/\d+)?(/id)?)$`)
	argumentParts = regexp.MustCompile(`^/context/arguments(/|$)`)
)

// alike are the names and the arguments in a request that look like an id that its tenant's part of the bundle knows.
// Names come first: no number of arguments keeps one of them from being compared.
func (b *Broker) alike(a approval.Approval) []evaluation.AlikeText {
	found := []evaluation.AlikeText{}
	bundle := b.options.PDP().Bundle()
	if bundle == nil {
		return found
	}
	known, left := b.known.of(bundle, a.Tenant), comparedTexts
	for _, parts := range []*regexp.Regexp{nameParts, argumentParts} {
		for at, text := range texts(a.Shown) {
			if !parts.MatchString(string(at)) {
				continue
			}
			if left--; left < 0 || len(found) == mostAlike {
				return found
			}
			if len(text) > comparedText {
				continue
			}
			if id, is := known.Like(text); is {
				found = append(found, evaluation.AlikeText{Pointer: string(at), Known: id})
			}
		}
	}
	return found
}

// texts yields each text in a JSON value that is no name of a member, with its pointer.
func texts(v jsontext.Value) iter.Seq2[jsontext.Pointer, string] {
	return func(yield func(jsontext.Pointer, string) bool) {
		in := jsontext.NewDecoder(bytes.NewReader(v))
		for token, err := in.ReadToken(); err == nil; token, err = in.ReadToken() {
			of, n := in.StackIndex(in.StackDepth())
			if name := of == '{' && n%2 == 1; token.Kind() == '"' && !name && !yield(in.StackPointer(), token.String()) {
				return
			}
		}
	}
}
