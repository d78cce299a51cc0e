package link

import (
	"slices"
	"strings"
	"unicode"

	"policy-service/pdp/visible"
)

// secretParts name values that no server may ask for, also as parts of words and across words. Some are of other languages.
var secretParts = folded(
	"password", "passwd", "passphrase", "passcode", "passkey", "secret", "token", "apikey", "accesskey", "privatekey", "credential",
	"cvv", "cardnumber", "securitycode", "verificationcode", "authenticationcode", "onetimecode", "accesscode", "backupcode",
	"socialsecurity", "mnemonic", "passwort", "kennwort", "motdepasse", "contraseña", "wachtwoord", "пароль", "密码", "密碼", "パスワード", "비밀번호",
)

// secretWords name such values as whole words. They are parts of harmless ones, too: pin of shipping.
var secretWords = folded("pin", "pincode", "pwd", "pswd", "otp", "totp", "mfa", "2fa", "puk", "cvc", "csc", "ssn", "seed", "seedphrase", "recovery", "senha")

func folded(words ...string) []string {
	for n, word := range words {
		words[n] = fold(visible.Skeleton(word))
	}
	return words
}

// fold returns the letters of a text, in small ones. Letters, digits and signs that stand for each other become one.
func fold(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && r != '2' { // of 2fa
			return -1
		}
		return r
	}, instead.Replace(strings.ToLower(text)))
}

var instead = strings.NewReplacer("i", "l", "1", "l", "|", "l", "!", "l", "0", "o", "3", "e", "4", "a", "@", "a", "5", "s", "$", "s", "7", "t", "vv", "w", "rn", "m")

// asksForSecret reports whether a text names a secret, whatever stands between its letters, or in their place.
func asksForSecret(text string) bool {
	looks := visible.Skeleton(text)
	withoutDigits := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, looks)
	for _, letters := range []string{fold(looks), fold(withoutDigits)} {
		if slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(letters, part) }) {
			return true
		}
	}
	is := func(word string) bool {
		word = fold(word)
		return slices.Contains(secretWords, word) || slices.Contains(secretWords, strings.TrimSuffix(word, "s"))
	}
	return slices.ContainsFunc(slices.Concat(wordsIn(looks), wordsIn(withoutDigits), wordsIn(instead.Replace(looks))), is)
}

// wordsIn returns the words of a text, such as userPIN, user and PIN of "userPIN", and PIN of "P.I.N. code".
func wordsIn(text string) (words []string) {
	spelt := ""
	for _, run := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		letters := []rune(run)
		if len(letters) == 1 {
			spelt += run
			continue
		}
		words, spelt = append(words, run, spelt), ""
		begin := 0
		for n := 1; n < len(letters); n++ {
			small := n+1 < len(letters) && unicode.IsLower(letters[n+1])
			if unicode.IsUpper(letters[n]) && (!unicode.IsUpper(letters[n-1]) || small) {
				words = append(words, string(letters[begin:n]))
				begin = n
			}
		}
		words = append(words, string(letters[begin:]))
	}
	return append(words, spelt)
}
