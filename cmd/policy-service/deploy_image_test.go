package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"policy-service/pdp/pdptest/inside/version"
	"policy-service/pdp/pdptest/night"
)

// platform is that of this machine, as the Makefile names it.
const platform = runtime.GOOS + "-" + runtime.GOARCH

// dist is the directory of what make release and make image make, for the one platform of the program that the tests have
// built. The first test that needs it makes it.
func dist(t *testing.T) (dir string) {
	t.Helper()
	night.Other(t, "releases")
	dir = filepath.Join(built(t), "dist")
	must(t, distOnce())
	return dir
}

var distOnce = sync.OnceValue(func() error { return release(filepath.Join(builtIn, "dist")) })

// release makes a release, and an image with other roots of the web than those of this machine.
func release(dir string) error {
	binary := filepath.Join(dir, platform, "policy-service")
	program, roots := filepath.Join(dir, "release"), filepath.Join(dir, "roots")
	err := errors.Join(
		os.MkdirAll(filepath.Dir(binary), 0o755),
		os.Symlink(filepath.Join(builtIn, "policy-service"), binary),
		os.WriteFile(roots, []byte("the roots\n"), 0o600),
	)
	for _, args := range [][]string{{"go", "build", "-o", program, "./.ci/release"}, {program, dir}, {program, "-image", "-roots", roots, dir}} {
		if err == nil {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir = root
			if out, failed := cmd.CombinedOutput(); failed != nil {
				err = fmt.Errorf("%v: %w\n%s", cmd, failed, out)
			}
		}
	}
	return err
}

// image is the image for this machine's platform, as make image makes it.
func image(t *testing.T) v1.Image {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("make image makes images for Linux alone, and these tests read that of the machine; run them on Linux, as the gate does")
	}
	images := imagesOf(t, dist(t))
	if len(images) != 1 {
		t.Fatalf("%d images", len(images))
	}
	return images[0]
}

// imagesOf are the images of the layout that make image has written there.
func imagesOf(t *testing.T, dir string) (all []v1.Image) {
	t.Helper()
	whole, err := layout.ImageIndexFromPath(filepath.Join(dir, "image"))
	must(t, err)
	entry, err := whole.IndexManifest()
	must(t, err)
	if len(entry.Manifests) != 1 || entry.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != version.Next+"-dev" {
		t.Fatalf("the layout does not have one entry with the version: %+v", entry.Manifests)
	}
	index, err := whole.ImageIndex(entry.Manifests[0].Digest)
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		must(t, err)
		config, err := image.ConfigFile()
		must(t, err)
		if m.Platform == nil || m.Platform.OS != config.OS || m.Platform.Architecture != config.Architecture {
			t.Errorf("the index says %+v of an image for %s/%s", m.Platform, config.OS, config.Architecture)
		}
		all = append(all, image)
	}
	return all
}

func imageConfig(t *testing.T, image v1.Image) v1.Config {
	t.Helper()
	file, err := image.ConfigFile()
	must(t, err)
	return file.Config
}

// TestRelease: the archive holds the program that was built, with what a machine without Go needs beside it, and the sums
// are those of all files that are published.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir, name := dist(t), "policy-service-"+version.Next+"-dev-"+platform
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	must(t, err)
	bill := "policy-service-" + version.Next + "-dev.cdx.json"
	if want := fmt.Sprintf("%x  %s.tar.gz\n%x  %s\n", fileSum(t, filepath.Join(dir, name+".tar.gz")), name, fileSum(t, filepath.Join(dir, bill)), bill); string(sums) != want {
		t.Errorf("got\n%swant\n%s", sums, want)
	}
	packed, err := os.Open(filepath.Join(dir, name+".tar.gz"))
	must(t, err)
	defer func() { _ = packed.Close() }()
	plain, err := gzip.NewReader(packed)
	must(t, err)
	files := map[string]bool{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		path, inside := strings.CutPrefix(h.Name, name+"/")
		mode, from := int64(0o644), filepath.Join(root, path)
		switch {
		case path == "policy-service":
			mode, from = 0o755, filepath.Join(built(t), path)
		case strings.HasPrefix(path, "completion/"):
			from = filepath.Join(root, "pdp/internal/command/completion/scripts", filepath.Base(path))
		case path == "INSTALL.md", path == "README.md", path == "CHANGES.md":
			from = path
		case path == "TUTORIAL.md":
			from = filepath.Join(root, "policies", path)
		case !strings.HasPrefix(path, "policies/") && path != "LICENSE":
			from = filepath.Join("deploy", path)
		}
		if !inside || h.Mode != mode || h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(time.Unix(0, 0)) || files[path] {
			t.Errorf("%+v", h)
		}
		content, err := io.ReadAll(r)
		must(t, err)
		if sha256.Sum256(content) != fileSum(t, from) {
			t.Errorf("%s is not %s", path, from)
		}
		files[path] = true
	}
	for _, want := range []string{
		"policy-service", "LICENSE", "INSTALL.md", "README.md", "CHANGES.md", "TUTORIAL.md", "alerts.yaml", "grafana-dashboard.json", "policies/starter/bundle.yaml",
		"systemd/policy-service.service", "systemd/policy-service.conf", "systemd/mcp-gateway.service", "completion/policy-service.bash",
	} {
		if !files[want] && (runtime.GOOS == "linux" || !strings.HasPrefix(want, "systemd/")) {
			t.Errorf("there is no %s in %v", want, slices.Sorted(maps.Keys(files)))
		}
	}
}

// TestBill: the bill of materials names what the go command wrote into the program, and no time or number that only one
// run would have.
func TestBill(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(dist(t), "policy-service-"+version.Next+"-dev.cdx.json"))
	must(t, err)
	type component struct {
		Type       string
		Ref        string `json:"bom-ref"`
		Name       string
		Version    string
		URL        string `json:"purl"`
		Licenses   []struct{ License struct{ ID string } }
		Properties []struct{ Name, Value string }
	}
	var bill struct {
		Format     string `json:"bomFormat"`
		Spec       string `json:"specVersion"`
		Version    int
		Metadata   struct{ Component component }
		Components []component
	}
	must(t, json.Unmarshal(text, &bill, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true)))
	if c := bill.Metadata.Component; bill.Format != "CycloneDX" || bill.Spec != "1.6" || bill.Version != 1 || c.Type != "application" || c.Name != "policy-service" || c.Version != version.Next+"-dev" || c.Licenses[0].License.ID != "Apache-2.0" {
		t.Errorf("%+v", bill)
	}
	info, err := buildinfo.ReadFile(filepath.Join(built(t), "policy-service"))
	must(t, err)
	want := map[string]string{"stdlib@" + strings.TrimPrefix(info.GoVersion, "go"): ""}
	for _, m := range info.Deps {
		want[m.Path+"@"+m.Version] = m.Sum
	}
	got := map[string]string{}
	for _, c := range bill.Components {
		sum := ""
		for _, p := range c.Properties {
			sum = p.Value
		}
		got[c.Name+"@"+c.Version] = sum
		if url := "pkg:golang/" + c.Name + "@" + strings.ReplaceAll(c.Version, "+", "%2B"); c.URL != url || c.Ref != url || c.Type != "library" {
			t.Errorf("%+v", c)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 20 || strings.Contains(string(text), "go-containerregistry") {
		t.Errorf("%d: %s", len(want), diff)
	}
}

// TestReleaseBuilds: make release and make image build what make build builds, for each platform, and name the commit.
func TestReleaseBuilds(t *testing.T) {
	t.Parallel()
	needProgram(t, "make")
	build, err := makeBuild()
	must(t, err)
	for target, platforms := range map[string]string{"release": "linux-amd64 linux-arm64 darwin-amd64 darwin-arm64", "image": "linux-amd64 linux-arm64"} {
		commands := runMake(t, "-n", "DIST=elsewhere", target)
		for p := range strings.FieldsSeq(platforms) {
			system, machine, _ := strings.Cut(p, "-")
			want := "\nGOOS=" + system + " GOARCH=" + machine + " " + strings.Replace(build, "-o bin/", "-buildvcs=true -o elsewhere/"+p+"/", 1) + "\n"
			if !strings.Contains(commands, want) {
				t.Errorf("make %s does not run%s", target, want)
			}
		}
	}
}

// TestImage: what the image runs is what this program has, as an ordinary user, without a shell.
func TestImage(t *testing.T) {
	t.Parallel()
	image := image(t)
	config := imageConfig(t, image)
	if config.User != fmt.Sprintf("%d:%d", nobody, nobody) || len(config.ExposedPorts) != 1 || len(config.Volumes) != 0 || len(config.Env) != 0 || config.Shell != nil {
		t.Errorf("%+v", config)
	}
	if _, ok := config.ExposedPorts["8180/tcp"]; !ok || !slices.Equal(config.Entrypoint, []string{"/policy-service"}) {
		t.Errorf("%v %v", config.ExposedPorts, config.Entrypoint)
	}
	c, command := parsed(t, config.Cmd)
	if command != "serve" || c.Serve.Listen != ":8180" || !strings.HasPrefix(string(c.Serve.Data), "/data/") || c.Serve.TLSCert == "" {
		t.Errorf("%s %+v", command, c.Serve)
	}
	health := config.Healthcheck
	probe, command := parsed(t, health.Test[2:])
	if !slices.Equal(health.Test[:2], []string{"CMD", "/policy-service"}) || command != "health" || probe.Health.URL != "https://127.0.0.1:8180" || probe.Health.TLSCert != c.Serve.TLSCert {
		t.Errorf("%q", health.Test)
	}
	if health.Interval != 10*time.Second || health.Timeout != 5*time.Second || health.StartPeriod != 30*time.Second {
		t.Errorf("%+v", health)
	}
	want := map[string]string{"title": "policy-service", "source": "policy-service", "licenses": "Apache-2.0", "version": version.Next + "-dev", "revision": ""}
	got := map[string]string{}
	for name, value := range config.Labels {
		got[strings.TrimPrefix(name, "org.opencontainers.image.")] = value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestImageFiles: the image holds these files, and its user may write to none of them and into no directory but that of data.
func TestImageFiles(t *testing.T) {
	t.Parallel()
	files := mutate.Extract(image(t))
	defer func() { _ = files.Close() }()
	var got []string
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		got = append(got, fmt.Sprintf("%s %v %d:%d", h.Name, h.FileInfo().Mode(), h.Uid, h.Gid))
	}
	slices.Sort(got)
	want := []string{
		"data drwx------ 65534:65534",
		"etc drwxr-xr-x 0:0",
		"etc/ssl drwxr-xr-x 0:0",
		"etc/ssl/certs drwxr-xr-x 0:0",
		"etc/ssl/certs/ca-certificates.crt -rw-r--r-- 0:0",
		"policy-service -rwxr-xr-x 0:0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestImageArchive: what docker load takes is the image of the layout, and the sums in both are right.
func TestImageArchive(t *testing.T) {
	t.Parallel()
	want, err := image(t).ConfigName()
	must(t, err)
	whole, err := layout.ImageIndexFromPath(filepath.Join(dist(t), "image"))
	must(t, err)
	must(t, validate.Index(whole))
	file := filepath.Join(dist(t), "policy-service-"+version.Next+"-dev-image-"+runtime.GOARCH+".tar")
	archived, err := tarball.ImageFromPath(file, nil)
	must(t, err)
	must(t, validate.Image(archived))
	if got, err := archived.ConfigName(); err != nil || got != want {
		t.Errorf("%v is not %v (%v)", got, want, err)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil || len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{"policy-service:latest"}) {
		t.Errorf("%+v %v", manifest, err)
	}
}

// TestReleasesAreTheSame: archives, sums, bill and image of one commit are the same bytes.
func TestReleasesAreTheSame(t *testing.T) {
	night.Whole(t, "it packs the program once more")
	dirs := []string{dist(t), t.TempDir()}
	must(t, release(dirs[1]))
	var sums [2]map[string][32]byte
	for n, dir := range dirs {
		sums[n] = map[string][32]byte{}
		must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				sums[n][strings.TrimPrefix(path, dir)] = fileSum(t, path)
			}
			return err
		}))
	}
	if diff := cmp.Diff(sums[0], sums[1]); diff != "" || len(sums[0]) < 8 {
		t.Error(diff, sums[0])
	}
}
