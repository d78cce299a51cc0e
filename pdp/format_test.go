package pdp_test

import (
	"strings"
	"testing"

	"policy-service/pdp"
)

// Format lays out each policy that a file may hold, and says of anything else where it is not as it should be.
func TestFormat(t *testing.T) {
	t.Parallel()
	laid, problems := pdp.Format("a.cedar", []byte("permit(principal,action,resource)when{007 == 7}; // as it is"))
	if want := "permit (principal, action, resource)\nwhen { 007 == 7 }; // as it is\n"; string(laid) != want || problems != nil {
		t.Errorf("%q, %v", laid, problems)
	}
	if laid, problems := pdp.Format("a.cedar", []byte(`@id("") permit(principal,action,resource);`)); laid == nil || problems != nil {
		t.Errorf("an empty id keeps it from being laid out: %v", problems)
	}
	const policy = "permit(principal, action, resource)\nwhen { "
	for text, want := range map[string]string{
		"permit(principal, action, ressource);":              "a.cedar:1:27: this is not Cedar",
		policy + "/* all */ true };":                         "a.cedar:2:8: a comment between /* and */",
		policy + "[1, // one\n2, // two\n].contains(1) };":   "a.cedar:3:2: the layout leaves this comma out",
		policy + strings.Repeat("(", 300) + " };":            "a.cedar:2:208: brackets, ifs and signs nest more than 200 deep",
		policy + `context like "` + strings.Repeat("a", 600): "a.cedar:2:",
		policy + "true };" + strings.Repeat(" ", 256<<10):    "a.cedar: the file has more than 256 KiB",
		policy + "context has " + strings.Repeat("a.", 20):   "a.cedar:2:",
	} {
		laid, problems := pdp.Format("a.cedar", []byte(text))
		if laid != nil || !problems.Refuse() || !strings.HasPrefix(problems.Error(), want) {
			t.Errorf("%.90q: %q, %v; want %s", text, laid, problems, want)
		}
	}
}
