// Command release makes the files of a release from the binaries in a directory, DIR/OS-ARCH/policy-service: an archive for each
// of them, one bill of materials, and the sums of these files. With -image it makes the image for containers. It is run at
// the top of the repository:
//
//	go run ./.ci/release dist
//	go run ./.ci/release -image dist
//
// It reads no clock: the time of everything is that of the commit. So a commit gives the same bytes on every machine.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"policy-service/pdp/pdptest/inside/version"
)

func main() {
	image := flag.Bool("image", false, "make the image, and nothing else")
	roots := flag.String("roots", "/etc/ssl/certs/ca-certificates.crt", "the `file` with the roots of the web, for the image")
	flag.Parse()
	dir, platforms := flag.Arg(0), "*-*"
	if *image {
		platforms = "linux-*"
	}
	binaries, err := read(dir, platforms)
	switch {
	case err != nil:
	case *image:
		err = writeImage(dir, *roots, binaries)
	default:
		err = writeArchives(dir, binaries)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// binary is the program for one platform.
type binary struct {
	platform string // OS-ARCH
	content  []byte
	info     *debug.BuildInfo
	version.Build
	at time.Time // of the commit; 1970 if the build did not see the repository
}

// read finds the directory's binaries for these platforms. All binaries are of one commit.
func read(dir, platforms string) (all []binary, err error) {
	files, err := filepath.Glob(filepath.Join(dir, platforms, "policy-service"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%q has no %s/policy-service; make release and make image build them", dir, platforms)
	}
	for _, file := range files {
		b := binary{platform: filepath.Base(filepath.Dir(file))}
		var errs [3]error
		b.content, errs[0] = os.ReadFile(file)
		b.info, errs[1] = buildinfo.Read(bytes.NewReader(b.content))
		if errs[1] == nil {
			b.Build = version.Of(b.info)
			b.at, errs[2] = time.Parse(time.RFC3339, cmp.Or(b.Time, "1970-01-01T00:00:00Z"))
		}
		if err := cmp.Or(errs[0], errs[1], errs[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if b.Platform != strings.Replace(b.platform, "-", "/", 1) || len(all) > 0 && b.Version != all[0].Version {
			return nil, fmt.Errorf("%s is %s; run make release, which builds all of them anew", file, b.Build)
		}
		all = append(all, b)
	}
	return all, err
}

// entry is a file of an archive, or a directory if its name ends with /.
type entry struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

func pack(entries []entry, at time.Time) (*bytes.Buffer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.content)), ModTime: at}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	return &packed, w.Close()
}

// beside are the other files of an archive, by path in the repository: a file, or a directory.
var beside = []struct{ on, from, to string }{
	{"", "LICENSE", "LICENSE"},
	{"", "cmd/policy-service/INSTALL.md", "INSTALL.md"},
	{"", "cmd/policy-service/README.md", "README.md"},
	{"", "cmd/policy-service/CHANGES.md", "CHANGES.md"},
	{"", "policies/TUTORIAL.md", "TUTORIAL.md"},
	{"", "pdp/internal/command/completion/scripts", "completion"},
	{"", "cmd/policy-service/deploy/alerts.yaml", "alerts.yaml"},
	{"", "cmd/policy-service/deploy/grafana-dashboard.json", "grafana-dashboard.json"},
	{"", "policies/starter", "policies/starter"},
	{"linux-", "cmd/policy-service/deploy/systemd", "systemd"},
}

func writeArchives(dir string, binaries []binary) error {
	var sums strings.Builder
	publish := func(name string, content []byte) error {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
		return os.WriteFile(filepath.Join(dir, name), content, 0o644)
	}
	for _, b := range binaries {
		name := "policy-service-" + b.Version + "-" + b.platform
		entries := []entry{{name: name + "/policy-service", mode: 0o755, content: b.content}}
		for _, s := range beside {
			if !strings.HasPrefix(b.platform, s.on) {
				continue
			}
			err := filepath.WalkDir(s.from, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				content, err := os.ReadFile(path)
				entries = append(entries, entry{name: name + "/" + s.to + strings.TrimPrefix(path, s.from), mode: 0o644, content: content})
				return err
			})
			if err != nil {
				return err
			}
		}
		packed, err := pack(entries, b.at)
		if err != nil {
			return err
		}
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = packed.WriteTo(w) // into memory
		_ = w.Close()
		if err := publish(name+".tar.gz", zipped.Bytes()); err != nil {
			return err
		}
	}
	bill, err := billOf(binaries)
	if err == nil {
		err = publish("policy-service-"+binaries[0].Version+".cdx.json", bill)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
	}
	fmt.Print(sums.String())
	return err
}
