package ask

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/leak"
	"policy-service/pdp/mcp/internal/rpc"
)

// secrets are the values that were taken out of a result. Once all are known, they are masked wherever else they occur in it,
// also as a part of a text. Longer ones are found in Base64, too, and in pieces that follow each other.
type secrets struct {
	texts   map[string]bool
	tooMany bool
	masks   *strings.Replacer // nil until all are known
	encoded *strings.Replacer
	pieced  *strings.Replacer
	joined  strings.Builder // the texts of the result, in their order, without the masked ones
}

const (
	leastSecret = 4 // bytes; a shorter value could come from anywhere
	leastLong   = 8 // of one that is looked for in other forms: a shorter one is in there by chance
	mostSecrets = 10_000
	mask        = "[redacted]"
)

// add remembers all strings and numbers of a value that was read, until all are known.
func (s *secrets) add(v jsontext.Value) {
	if s.masks != nil {
		return
	}
	for in := jsontext.NewDecoder(bytes.NewReader(v)); !s.tooMany; {
		container, members := in.StackIndex(in.StackDepth())
		token, err := in.ReadToken()
		switch isName := container == '{' && members%2 == 0; {
		case err != nil: // the end
			return
		case token.Kind() == '"' && !isName:
			s.text(token.String())
		case token.Kind() == '0':
			s.text(token.String())
			s.text(canonicalNumber(token.String()))
		}
	}
}

func (s *secrets) text(text string) {
	if len(text) < leastSecret {
		return
	}
	if s.texts == nil {
		s.texts = map[string]bool{}
	}
	s.texts[text] = true
	quoted := rpc.String(text) // as it stands in a text that is JSON itself
	s.texts[string(quoted[1:len(quoted)-1])] = true
	s.tooMany = len(s.texts) > mostSecrets
}

// known says that there are no more.
func (s *secrets) known() {
	all := slices.Collect(maps.Keys(s.texts))
	// The longest first, so that nothing is left of one that begins with another.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	var pairs, encoded, pieced []string
	for _, secret := range all {
		pairs = append(pairs, secret, mask)
		if len(secret) < leastLong {
			continue
		}
		pieced = append(pieced, secret, mask)
		for _, form := range leak.Base64(secret) {
			encoded = append(encoded, form, mask)
		}
	}
	s.masks, s.encoded, s.pieced = strings.NewReplacer(pairs...), strings.NewReplacer(encoded...), strings.NewReplacer(pieced...)
}

// in masks the secrets in a text: all of it, if it has a secret in Base64.
func (s *secrets) in(text string) string {
	switch {
	case len(s.texts) == 0 || s.masks == nil:
		return text
	case s.encoded.Replace(text) != text:
		return mask
	}
	return s.masks.Replace(text)
}

// inPieces reports whether the texts that stay make a secret, one behind the other.
func (s *secrets) inPieces() bool {
	all := s.joined.String()
	return s.pieced.Replace(all) != all
}

// masked is a string, number, boolean or null of which a secret is masked: a number becomes null.
func (s *secrets) masked(v jsontext.Value) jsontext.Value {
	if len(s.texts) == 0 || s.masks == nil {
		return v
	}
	switch v.Kind() {
	case '"':
		unquoted, _ := jsontext.AppendUnquote(nil, v) // it was read
		text := string(unquoted)
		kept := s.in(text)
		if kept != text {
			v, text = rpc.String(kept), "\x00"
		}
		s.joined.WriteString(text)
	case '0':
		literal, canonical := string(v), canonicalNumber(string(v))
		if s.in(literal) != literal || s.in(canonical) != canonical {
			return jsontext.Value("null")
		}
	}
	return v
}

// canonicalNumber is the one text that all ways of writing a number have; "" if that takes too long.
func canonicalNumber(text string) string {
	o, err := evaluation.ParseObject([]byte(`{"n":`+text+`}`), evaluation.DefaultLimits())
	if err != nil {
		return ""
	}
	v, _ := o.Get("n")
	canonical, ok := v.AppendCanonical(nil)
	if !ok {
		return ""
	}
	return string(canonical)
}
