package evaluation

import "testing"

// Each of the words is a secret name itself, however short: a name is not read at all if it is shorter than all words.
func TestEachSecretWordIsASecretName(t *testing.T) {
	for _, word := range secretWords {
		if !SecretName(word) {
			t.Errorf("%q is none", word)
		}
	}
}
