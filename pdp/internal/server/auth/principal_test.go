package auth

import (
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go/types"
)

func TestPrincipalsThatAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Principal{
		`User::"mia"`:                              {"User", "mia"},
		`Acme::Staff::User::"mia"`:                 {"Acme::Staff::User", "mia"},
		`_u1::"mia@example.com"`:                   {"_u1", "mia@example.com"},
		`Action::User::"x"`:                        {"Action::User", "x"},
		`User::"User::\"mia\""`:                    {"User", `User::"mia"`},
		`User::"a::"`:                              {"User", "a::"},
		`User::" "`:                                {"User", " "},
		`User::"\"\\\n\t\r\0\'"`:                   {"User", "\"\\\n\t\r\x00'"},
		`User::"m\u{69}a\u{1F600}\u{00000a}"`:      {"User", "mia😀\n"},
		`User::"Ærøskøbing, 東京"`:                   {"User", "Ærøskøbing, 東京"},
		`User::"'it's'"`:                           {"User", "'it's'"},
		`User::"` + strings.Repeat("x", 504) + `"`: {"User", strings.Repeat("x", 504)},
	} {
		got, err := ParsePrincipal(text)
		if err != nil || got != want {
			t.Errorf("%s: got %#v, %v, want %#v", text, got, err, want)
		}
	}
}

func TestPrincipalsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", `""`, `mia`, `"mia"`, `::"mia"`, `User`, `User::`, `User::mia`, `User::'mia'`, `User:"mia"`, `User::"`, `User::""`,
		` User::"mia"`, `User::"mia" `, `User::"mia"x`, `User::"mia"` + "\n", `User ::"mia"`, `User:: "mia"`, `User::"mia"::"eve"`, `User::"mia", User::"eve"`,
		`User::"mi"a"`, `User::"mia\"`, `User::"mia`, `Usér::"mia"`, `1User::"mia"`, `User-x::"mia"`, `User::::X::"mia"`, `::User::"mia"`, `User.x::"mia"`,
		`Action::"mia"`, `Acme::Action::"mia"`, `__cedar::"mia"`, `__cedar::User::"mia"`, `Acme::__cedar::User::"mia"`, `in::"mia"`, `if::User::"mia"`,
		`User::"\a"`, `User::"\*"`, `User::"\x41"`, `User::"\u0041"`, `User::"\u{}"`, `User::"\u{41"`, `User::"\u{d800}"`, `User::"\u{110000}"`, `User::"\u{0000041}"`,
		`User::"\u{4_1}"`, `User::"\u{+41}"`, `User::"\u{ 41}"`, `User::"\u{g}"`, `User::"\`, `User::"\"`,
		"User::\"m\nia\"", "User::\"m\x00ia\"", "User::\"m\u0085ia\"", "User::\"mia\xff\"", "User\xff::\"mia\"", "\ufeffUser::\"mia\"",
		`User::"` + strings.Repeat("x", 505) + `"`, `User::"` + strings.Repeat("'", 253) + `"`, strings.Repeat("x", 1<<20),
	} {
		if got, err := ParsePrincipal(text); err == nil || got != (Principal{}) || !strings.Contains(err.Error(), "; try ") {
			t.Errorf("%q: got %#v, %v; want an error that says what to try", text, got, err)
		}
	}
}

func TestPrincipalIsPrintedOnOneLine(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"mia":            `User::"mia"`,
		"O'Brien":        `User::"O\'Brien"`,
		"\"\\\n\t\r\x00": `User::"\"\\\n\t\r\0"`,
		"\x7f\u202e":     `User::"\u{7f}\u{202e}"`,
		"東京":             `User::"東京"`,
	} {
		if got := (Principal{"User", id}).String(); got != want {
			t.Errorf("%q: got %s, want %s", id, got, want)
		}
	}
}

// What a program or an issuer puts together has no other form than what is written.
func TestPrincipalsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, p := range []Principal{
		{"User", ""}, {"", "mia"}, {"User", "mia\xff"}, {"User", "\xed\xa0\x80"}, {"User ", "mia"}, {`User::"x`, "mia"}, {`User::"x"`, "mia"}, {"Action", "mia"},
		{"User", strings.Repeat("x", 505)}, {"User", strings.Repeat("\x01", 200)},
	} {
		if err := p.check(); err == nil {
			t.Errorf("%#v is taken", p)
		}
	}
}

// What is read is printed back to the same, and Cedar reads the same from both.
func FuzzParsePrincipal(f *testing.F) {
	for _, text := range []string{
		`User::"mia"`, `Acme::User::"O\'Brien"`, `User::"\"\\\n\t\r\0\'\u{1f600}"`, `Action::"x"`, `__cedar::User::"x"`, `in::"x"`, `User::"\x41"`, `User::"\u{4_1}"`, `User::"a" `, "User::\"\xff\"",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePrincipal(text)
		if err != nil {
			return
		}
		if _, err := types.NewEntityType(p.Type); err != nil {
			t.Errorf("%q: Cedar knows no such type: %v", text, err)
		}
		want := types.NewEntityUID(types.EntityType(p.Type), types.String(p.ID))
		for _, text := range []string{text, p.String()} {
			var cedar types.EntityUID
			if err := cedar.UnmarshalCedar([]byte(text)); err != nil || cedar != want {
				t.Errorf("%q: Cedar reads %s, %v, and here it is %#v", text, cedar, err, p)
			}
		}
		if again, err := ParsePrincipal(p.String()); again != p {
			t.Errorf("%q is printed as %s, which is %#v, %v", text, p, again, err)
		}
	})
}
