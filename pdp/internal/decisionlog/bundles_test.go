package decisionlog

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"policy-service/pdp/internal/decisionlog/segment"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBundlesKeepEveryFileOnce(t *testing.T) {
	t.Parallel()
	data := memory(t)
	dir := segment.BundlesPath(data)
	b, err := segment.OpenBundles(data)
	must(t, err)
	first := map[string][]byte{"a.cedar": []byte("permit(principal,action,resource);"), "b.cedar": []byte("forbid(principal,action,resource);")}
	second := maps.Clone(first)
	second["b.cedar"] = []byte("// empty")
	for _, files := range []map[string][]byte{first, second, first} {
		digest, err := b.Put(files)
		must(t, err)
		got, err := b.Files(digest)
		must(t, err)
		if diff := cmp.Diff(files, got); diff != "" {
			t.Error(diff)
		}
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 5 { // three files and two lists
		t.Errorf("%d files are kept, want 5: %v", len(entries), entries)
	}
}

func TestBundlesRefuseAlteredFiles(t *testing.T) {
	t.Parallel()
	data := memory(t)
	dir := segment.BundlesPath(data)
	b, err := segment.OpenBundles(data)
	must(t, err)
	files := map[string][]byte{"a.cedar": []byte("permit(principal,action,resource);")}
	digest, err := b.Put(files)
	must(t, err)
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, name := range names {
		whole, _ := os.ReadFile(name)
		altered := slices.Clone(whole)
		altered[3] ^= 1
		must(t, os.WriteFile(name, altered, 0o600))
		if got, err := b.Files(digest); err == nil {
			t.Errorf("with %s altered: %q", filepath.Base(name), got)
		}
		// What was altered is kept anew the next time the bundle is loaded.
		if _, err := b.Put(files); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Files(digest); err != nil {
			t.Error(err)
		}
	}
}

// A file that reads like a list is none to whoever may have written it: it could name files of tenants that its reader does not see.
func TestBundlesListNoFile(t *testing.T) {
	t.Parallel()
	b, err := segment.OpenBundles(memory(t))
	must(t, err)
	hash := func(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }
	const secret = "permit(principal,action,resource);"
	forged := hash(secret) + "  : {type: log}\n" // YAML, of an obligation
	digest, err := b.Put(map[string][]byte{"tenants/a/a.cedar": []byte(secret), "tenants/b/obligations.yaml": []byte(forged)})
	must(t, err)
	if got, err := b.Listed(digest); err != nil || len(got) != 2 {
		t.Errorf("got %q, %v", got, err)
	}
	sum := sha256.Sum256([]byte(forged))
	if got, err := b.Listed("h1:" + base64.StdEncoding.EncodeToString(sum[:])); !errors.Is(err, segment.ErrNoSuchBundle) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestBundlesKnowOnlyDigests(t *testing.T) {
	t.Parallel()
	b, err := segment.OpenBundles(memory(t))
	must(t, err)
	for _, digest := range []string{"", "h1:", "../../etc/passwd", "h1:AAAA", "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="} {
		if _, err := b.Files(digest); !errors.Is(err, segment.ErrNoSuchBundle) {
			t.Errorf("%q: %v", digest, err)
		}
	}
}

func TestCutFiles(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{}
	for _, path := range []string{"a.cedar", "bundle.yaml", "entities/a.json", "MANIFEST", "tenants/acme/a.cedar",
		"tenants/acme/entities/a.json", "tenants/acme2/a.cedar", "tenants/other/a.cedar", "tenants/acme"} {
		files[path] = []byte(path)
	}
	above := []string{"a.cedar", "bundle.yaml", "entities/a.json"}
	for name, c := range map[string]struct{ tenants, want []string }{
		"all":     {nil, slices.Sorted(maps.Keys(files))},
		"nobody":  {[]string{}, above},
		"default": {[]string{"default"}, above},
		"acme":    {[]string{"acme"}, append(slices.Clone(above), "tenants/acme", "tenants/acme/a.cedar", "tenants/acme/entities/a.json")},
		"two":     {[]string{"other", "acme2"}, append(slices.Clone(above), "tenants/acme2/a.cedar", "tenants/other/a.cedar")},
	} {
		got := slices.Sorted(maps.Keys(segment.VisibleFiles(files, c.tenants)))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
