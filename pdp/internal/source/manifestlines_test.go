package source

import (
	"strings"
	"testing"
)

func TestParseManifest(t *testing.T) {
	const a, b = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, good := range []string{
		"# end\n",
		a + "  a.cedar\n# end\n",
		a + " *a.cedar\n" + b + "  tenants/acme/b c.cedar\n# end\n",
		a + "   a\n# end\n", // a name may begin with a space
	} {
		if _, ps := parseManifest([]byte(good)); ps.Refuse() {
			t.Errorf("%q: %v", good, ps)
		}
	}
	for bad, want := range map[string]string{
		"":                                  "manifest_incomplete",
		"# end":                             "manifest_incomplete",
		"# end\r\n":                         "manifest_incomplete",
		"# END\n":                           "manifest_incomplete",
		"# end\n\n":                         "manifest_incomplete",
		"# end\n" + a + "  a\n":             "manifest_incomplete",
		a + "  a # end\n":                   "manifest_incomplete",
		a + "  a\r\n# end\n":                "manifest_line",
		"# end\n# end\n":                    "manifest_line",
		"\n# end\n":                         "manifest_line",
		"# sums\n# end\n":                   "manifest_line",
		a + "  \n# end\n":                   "manifest_line",
		a + " a\n# end\n":                   "manifest_line",
		a + "\ta\n# end\n":                  "manifest_line",
		a + "  ./a\n# end\n":                "manifest_line",
		a + "  ../a\n# end\n":               "manifest_line",
		a + "  x/../a\n# end\n":             "manifest_line",
		a + "  /a\n# end\n":                 "manifest_line",
		a + "  .\n# end\n":                  "manifest_line",
		a + "  x//a\n# end\n":               "manifest_line",
		a + "  x/\n# end\n":                 "manifest_line",
		a + "  x\\a\n# end\n":               "manifest_line",
		"\\" + a + "  a\n# end\n":           "manifest_line",
		a + "  a\xff\n# end\n":              "manifest_line",
		a + "  MANIFEST\n# end\n":           "manifest_line",
		a[1:] + "  a\n# end\n":              "manifest_line",
		"z" + a[1:] + "  a\n# end\n":        "manifest_line",
		strings.ToUpper(a) + "  a\n# end\n": "manifest_line",
		a + "  a\n" + b + "  a\n# end\n":    "manifest_twice",
		a + "  a\n" + a + " *a\n# end\n":    "manifest_twice",
	} {
		if _, ps := parseManifest([]byte(bad)); len(ps) == 0 || ps[0].Code != want {
			t.Errorf("%q: %v, want %s", bad, ps, want)
		}
	}
}
