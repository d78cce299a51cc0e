package spelling

import "testing"

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"kitten", "sitting", 3}, {"aproval", "approval", 1}} {
		if Distance(test.a, test.b) != test.want || Distance(test.b, test.a) != test.want {
			t.Errorf("%q and %q: got %d, want %d", test.a, test.b, Distance(test.a, test.b), test.want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		of   []string
		want string
	}{
		{"jrai", []string{"mail", "jira", "jiras"}, "jira"},
		{"x", nil, ""},
		{"create_tiket", []string{"delete", "create_ticket"}, "create_ticket"},
		{"delete_everything", []string{"look"}, ""},
		{"look", []string{"look"}, ""}, // that is what was written
	} {
		if got, ok := Nearest(test.name, test.of); got != test.want || ok != (test.want != "") {
			t.Errorf("%s: %q, %v", test.name, got, ok)
		}
	}
}
