package link

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"policy-service/pdp/internal/visible"
)

// secretParts name values that no server may ask for, also as parts of words. Some are of other languages.
var secretParts = []string{
	"password", "passwd", "passphrase", "passcode", "passkey", "secret", "token", "apikey", "accesskey", "privatekey", "credential",
	"cardnumber", "securitycode", "verificationcode", "authenticationcode", "onetimecode", "accesscode", "backupcode", "socialsecurity",
	"mnemonic", "passwort", "kennwort", "motdepasse", "motsdepasse", "contraseña", "wachtwoord", "пароль", "密码", "密碼", "パスワード", "비밀번호",
}

// secretWords name such values as whole words. They are parts of harmless ones, too: pin of shipping.
var secretWords = []string{"pin", "pwd", "pswd", "otp", "totp", "mfa", "2fa", "puk", "cvv", "cvc", "csc", "ssn", "seed", "seedphrase", "recovery", "senha"}

// spelling says what a run of folded letters is.
type spelling int

const (
	begun spelling = iota // the beginning of a secret's name
	solid                 // the name of a secret, unless words make it up: token of "to Ken"
	loose                 // the name of a secret, also of several words: api key
)

// shortestLoose is the length in bytes of a name that is found across words. Ordinary words make up shorter ones.
const shortestLoose = 6

// The folded names, as they are sought in words and across them.
var parts, spellings = foldNames()

func foldNames() (parts []string, spellings map[string]spelling) {
	spellings = map[string]spelling{}
	add := func(word, before, after string) {
		name := fold(before + word + after)
		for n := range name {
			spellings[name[:n]] = max(spellings[name[:n]], begun)
		}
		spellings[name] = solid
		if len(word) >= shortestLoose {
			spellings[name] = loose
		}
	}
	eachDrawn := func(words []string, do func(word string)) {
		for _, word := range words {
			word = visible.Skeleton(word)
			do(word)
			do(strings.ReplaceAll(word, "l", "L"))
		}
	}
	eachDrawn(secretParts, func(word string) {
		parts = append(parts, fold(word))
		add(word, "", "")
		add(word, "", "s")
	})
	eachDrawn(secretWords, func(word string) {
		for _, before := range []string{"", "user", "your", "my", "new", "old", "enter", "the", "card"} {
			for _, after := range []string{"", "s", "code", "codes", "number", "numbers"} {
				add(word, before, after)
			}
		}
	})
	return slices.Compact(parts), spellings
}

// fold returns the letters of a word, in small ones. Letters and digits that look like each other become one: a small l is an
// i, as a capital I is, but a capital L stays.
func fold(word string) string { return strings.Map(foldLetter, word) }

func foldLetter(r rune) rune {
	switch r {
	case 'l', 'I', '1', 'ł':
		return 'i'
	case 'L', 'Ł':
		return 'L'
	case '0', 'ø', 'Ø', 'ө', 'Ө':
		return 'o'
	case '3':
		return 'e'
	case '4':
		return 'a'
	case '5':
		return 's'
	case '7', 'ŧ':
		return 't'
	case 'đ':
		return 'd'
	case '2': // of 2fa
		return r
	}
	if !unicode.IsLetter(r) {
		return -1
	}
	return unicode.ToLower(r)
}

// Replacers of what looks like letters.
var (
	signs = strings.NewReplacer("|", "i", "!", "i", "@", "a", "$", "s", "°", "o", "ß", "ss")
	pairs = strings.NewReplacer("rn", "m", "vv", "w", "VV", "w", "Vv", "w", "vV", "w")
)

// asksForSecret reports whether a text names a secret, whatever stands between its letters, or in their place.
func asksForSecret(text string) bool {
	apart := strings.Map(func(r rune) rune { // ™ and º end a word, and would be letters of it
		if unicode.In(r, unicode.Lm, unicode.So, unicode.No, unicode.Nl) || r == 'ª' || r == 'º' {
			return ' '
		}
		return r
	}, text)
	views := []string{visible.Skeleton(text), visible.Skeleton(apart)}
	for _, view := range []func(string) string{signs.Replace, pairs.Replace, withoutDigits} {
		for _, looks := range slices.Clone(views) {
			views = append(views, view(looks))
		}
		slices.Sort(views)
		views = slices.Compact(views)
	}
	return slices.ContainsFunc(views, namesSecret)
}

func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// piece is a word, or one of the words that are joined in one: user and PIN of userPIN.
type piece struct {
	letters, short string // folded, and without the digits at its end
	spaced, single bool   // white space stands before it; it is one letter
}

// namesSecret takes time in proportion to the text: no name of a secret has more than some pieces.
func namesSecret(text string) bool {
	var pieces []piece
	for _, chunk := range strings.Fields(text) {
		spaced := true
		for _, run := range strings.FieldsFunc(chunk, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			folded := fold(run)
			capitals := strings.FieldsFunc(run, unicode.IsLower) // PIN of PINfield
			if slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(folded, part) }) || slices.ContainsFunc(capitals, isSecret) {
				return true
			}
			for _, word := range wordsIn(run) {
				if p := (piece{fold(word), foldShort(word), spaced, utf8.RuneCountInString(word) == 1}); p.letters != "" {
					pieces, spaced = append(pieces, p), false
				}
			}
		}
	}
	for n := range pieces {
		joined, spaced, single := "", false, true
		for m, p := range pieces[n:] {
			spaced, single = spaced || m > 0 && p.spaced, single && p.single
			least := solid
			if spaced && !single {
				least = loose
			}
			if isNamed(joined+p.letters, joined+p.short, least) {
				return true
			}
			joined += p.letters
			if _, goesOn := spellings[joined]; !goesOn {
				break
			}
		}
	}
	return false
}

func isSecret(word string) bool {
	return isNamed(fold(word), foldShort(word), solid)
}

// isNamed reports whether letters are the name of a secret, with or without the digits at their end.
func isNamed(letters, short string, least spelling) bool {
	return spellings[letters] >= least || spellings[short] >= least
}

// foldShort folds a word without the digits at its end.
func foldShort(word string) string { return fold(strings.TrimRightFunc(word, unicode.IsDigit)) }

// wordsIn returns the words that are joined in a run of letters and digits.
func wordsIn(run string) (words []string) {
	letters, begin := []rune(run), 0
	for n := 1; n < len(letters); n++ {
		small := n+1 < len(letters) && unicode.IsLower(letters[n+1])
		if unicode.IsUpper(letters[n]) && (!unicode.IsUpper(letters[n-1]) || small) {
			words = append(words, string(letters[begin:n]))
			begin = n
		}
	}
	return append(words, string(letters[begin:]))
}
