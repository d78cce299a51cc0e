package evaluation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Each of the words is a secret name itself, however short: a name is not read at all if it is shorter than all words.
func TestEachSecretWordIsASecretName(t *testing.T) {
	t.Parallel()
	for _, word := range secretWords {
		if !SecretName(word) {
			t.Errorf("%q is none", word)
		}
	}
}

// A name is a secret's if a word is anywhere in it, whatever stands around the word or begins like it.
func TestSecretWordsAreFoundAnywhere(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	secrets := 0
	for range 20_000 {
		var name strings.Builder
		for range 1 + r.IntN(4) {
			word := secretWords[r.IntN(len(secretWords))]
			name.WriteString(word[r.IntN(2)*r.IntN(3) : len(word)-r.IntN(2)*r.IntN(3)])
		}
		is := slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name.String(), word) })
		if SecretName(name.String()) != is {
			t.Fatalf("%q: %v, want %v", name.String(), !is, is)
		}
		if is {
			secrets++
		}
	}
	if secrets < 100 || secrets > 19_900 {
		t.Errorf("%d names are secrets': the test does not test what it should", secrets)
	}
}
