package evaluation_test

import (
	"testing"

	"policy-service/evaluation"
)

func TestClaimPath(t *testing.T) {
	t.Parallel()
	claims, err := evaluation.ParseObject([]byte(`{"sub":"a","act":{"sub":"b","act":{"sub":7}},"https://x.example/who":"c","~":"d","":{"":"e"},"none":null}`), evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"sub": "a", "/sub": "a", "/act/sub": "b", "/act/act/sub": "7", "https://x.example/who": "c", "/https:~1~1x.example~1who": "c", "/~0": "d", "~": "d", "//": "e",
	} {
		path, err := evaluation.ParseClaimPath(text)
		if v, there := path.In(claims); err != nil || !there || v.Text() != want {
			t.Errorf("%s: got %q, %v, %v", text, v.Text(), there, err)
		}
	}
	for _, text := range []string{"act/sub", "act.sub", "/act/none", "/sub/sub", "none", "/act/act/act/sub"} {
		path, err := evaluation.ParseClaimPath(text)
		if v, there := path.In(claims); err != nil || there {
			t.Errorf("%s: got %q, %v; want nothing", text, v.Text(), err)
		}
	}
	for _, text := range []string{"", "/a~", "/~2"} {
		if path, err := evaluation.ParseClaimPath(text); err == nil {
			t.Errorf("%q: got %q", text, path)
		}
	}
}
