package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nobody is the user of the image.
const nobody = 65534

// run is how the image runs. There is no volume on purpose: where the one for /data is forgotten, a root that is read-only
// makes an error of it, and no log goes with its container.
var run = v1.Config{
	User:         fmt.Sprintf("%d:%d", nobody, nobody),
	WorkingDir:   "/",
	ExposedPorts: map[string]struct{}{"8180/tcp": {}},
	Entrypoint:   []string{"/policy-service"},
	Cmd:          strings.Fields("serve --policies /policies --data /data/state --listen :8180 --tls-cert /tls/tls.crt --tls-key /tls/tls.key"),
	Healthcheck: &v1.HealthConfig{
		Test:     strings.Fields("CMD /policy-service health --url https://127.0.0.1:8180 --tls-cert /tls/tls.crt"),
		Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 30 * time.Second,
	},
}

// writeImage makes DIR/image, an OCI layout with an index of all platforms, and for each of them an archive that docker
// load and podman load take.
func writeImage(dir, rootsFile string, binaries []binary) error {
	roots, err := os.ReadFile(rootsFile)
	if err != nil {
		return fmt.Errorf("%w; name the roots of the web with -roots", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var version string
	for _, b := range binaries {
		image, err := imageOf(b, roots)
		if err != nil {
			return err
		}
		architecture := strings.TrimPrefix(b.platform, "linux-")
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
		version = strings.ReplaceAll(b.Version, "+", "-") // a tag has no +
		file := filepath.Join(dir, "policy-service-"+b.Version+"-image-"+architecture+".tar")
		if err := tarball.WriteToFile(file, name.MustParseReference("policy-service:latest"), image); err != nil {
			return err
		}
		fmt.Println(file)
	}
	// One entry, so that tools which take one image of a layout take the index of all platforms.
	tagged := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": version}},
	})
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	at := filepath.Join(dir, "image")
	if err := os.RemoveAll(at); err != nil { // of another commit
		return err
	}
	_, err = layout.Write(at, tagged)
	fmt.Printf("%s:%s %s, with the roots of %s\n", at, version, digest, rootsFile)
	return err
}

// imageOf is the image for one platform: the roots and a directory for data, which seldom change, and the binary.
func imageOf(b binary, roots []byte) (v1.Image, error) {
	var layers []v1.Layer
	for _, entries := range [][]entry{
		{
			// For what the service itself asks: issuers of tokens, and a receiver of telemetry.
			{name: "etc/", mode: 0o755}, {name: "etc/ssl/", mode: 0o755}, {name: "etc/ssl/certs/", mode: 0o755},
			{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: roots},
			{name: "data/", mode: 0o700, owner: nobody}, // a new volume takes owner and mode from here
		},
		{{name: "policy-service", mode: 0o755, content: b.content}},
	} {
		packed, err := pack(entries, time.Unix(0, 0)) // the layer of the roots stays the same from commit to commit
		if err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	config := &v1.ConfigFile{OS: "linux", Architecture: strings.TrimPrefix(b.platform, "linux-"), Created: v1.Time{Time: b.at}, Config: run, RootFS: v1.RootFS{Type: "layers"}}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title":    "policy-service",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source":   source(b.info.Main.Path),
		"org.opencontainers.image.version":  b.Version,
		"org.opencontainers.image.revision": b.Commit,
	}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), config)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layers...)
}

// source is where a module is published, if its path says so.
func source(module string) string {
	if host, _, _ := strings.Cut(module, "/"); strings.Contains(host, ".") {
		return "https://" + module
	}
	return module
}
