package broker

import (
	"bytes"
	"iter"
	"regexp"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/visible"
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

// parts are the names and the arguments in a request, which are compared, by their JSON Pointers. The way to them are the
// members of the request, and those of these members, that are read at all.
var parts = []struct{ way, of *regexp.Regexp }{
	{
		regexp.MustCompile(`^/(subject|action|resource|context)(/(id|name|agent|on_behalf_of|requester))?$`),
		regexp.MustCompile(`^/(subject/id|action/name|resource/id|context/(agent|on_behalf_of|requester)(/\d+)?(/id)?)$`),
	},
	{regexp.MustCompile(`^/context(/arguments)?$`), regexp.MustCompile(`^/context/arguments(/|$)`)},
}

// alike are the names and the arguments in a request that look like an id that its tenant's part of the bundle knows.
func (b *Broker) alike(a approval.Approval) []evaluation.AlikeText {
	found := []evaluation.AlikeText{}
	bundle := b.options.PDP().Bundle()
	if bundle == nil {
		return found
	}
	known := b.known.of(bundle, a.Tenant)
	for at, text := range compared(a.Shown) {
		if id, is := known.Like(text); is && len(found) < mostAlike {
			found = append(found, evaluation.AlikeText{Pointer: string(at), Known: id})
		}
	}
	return found
}

// compared yields the texts of a request that are compared. Names come first: no number of arguments keeps one of them
// from being compared. A long pointer counts as several texts, because it is copied for each text below it.
func compared(request jsontext.Value) iter.Seq2[jsontext.Pointer, string] {
	return func(yield func(jsontext.Pointer, string) bool) {
		left := comparedTexts
		for _, part := range parts {
			for at, text := range texts(request, part.way) {
				if !part.of.MatchString(string(at)) {
					continue
				}
				if left -= 1 + len(at)/comparedText; left < 0 {
					return
				}
				if len(text) <= comparedText && !yield(at, text) {
					return
				}
			}
		}
	}
}

// texts yields each text in a JSON value that is no name of a member, with its pointer. Of the value and its members it
// passes over the members that are not on the way, however large they are.
func texts(v jsontext.Value, way *regexp.Regexp) iter.Seq2[jsontext.Pointer, string] {
	return func(yield func(jsontext.Pointer, string) bool) {
		in := jsontext.NewDecoder(bytes.NewReader(v))
		for token, err := in.ReadToken(); err == nil; token, err = in.ReadToken() {
			of, n := in.StackIndex(in.StackDepth())
			switch name := of == '{' && n%2 == 1; {
			case token.Kind() != '"':
			case name && in.StackDepth() <= 2 && !way.MatchString(string(in.StackPointer())):
				if in.SkipValue() != nil {
					return
				}
			case !name && !yield(in.StackPointer(), token.String()):
				return
			}
		}
	}
}
