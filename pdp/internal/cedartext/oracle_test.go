package cedartext_test

import (
	"os"
	"testing"

	"policy-service/pdp/internal/cedartext"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
)

// laid is what Cedar's own formatter says.
type laid struct{ Text, Failure string }

// TestCedarsFormatter holds the layout to Cedar's own formatter, with its defaults: on its corpus, on the policies of this
// repository, and on some by chance. Of 100 files, so many must be the same, byte for byte. What that formatter wrote must
// stay as it is, so that whoever uses both does not see one undo the other.
func TestCedarsFormatter(t *testing.T) {
	night.Npm(t)
	t.Parallel()
	dir := npm.Install(t, "formatter of Cedar", os.DirFS("testdata/cedar"))
	const most = 400
	for _, of := range []struct {
		name  string
		texts []string
		least int // of 100
	}{
		{"corpus", corpus(t), 100},
		{"repository", repository(t), 95},
		{"generated", generated(most, plain), 99},
		{"generated, with comments", generated(most, making.commented), 95},
	} {
		all, same, stays, shown := 0, 0, 0, 0
		for n, theirs := range npm.Answers[string, laid](t, dir, of.texts) {
			if theirs.Failure != "" { // it knows more of Cedar's rules than a layout has to
				continue
			}
			all++
			ours, refused := cedartext.Format(of.texts[n])
			if ours == theirs.Text {
				same++
			} else if shown++; shown <= 3 {
				t.Logf("%s: of\n%s\nCedar makes\n%s\nand we make %v\n%s", of.name, of.texts[n], theirs.Text, refused, ours)
			}
			if again, _ := cedartext.Format(theirs.Text); again == theirs.Text {
				stays++
			}
		}
		t.Logf("%s: of %d, %d are the same, and %d stay", of.name, all, same, stays)
		if all < len(of.texts)*9/10 {
			t.Errorf("%s: of %d, Cedar reads %d", of.name, len(of.texts), all)
		}
		if least := of.least * all; same*100 < least || stays*100 < least {
			t.Errorf("%s: of %d, %d are the same, and %d stay; of 100 must %d", of.name, all, same, stays, of.least)
		}
	}
}
