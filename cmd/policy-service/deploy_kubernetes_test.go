package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/inside/config"
	"policy-service/pdp/pdptest/inside/server"
)

// TestKubernetesObjects: each says what it is, and they find one another.
func TestKubernetesObjects(t *testing.T) {
	c := readCluster(t)
	want := []string{"ConfigMap policy-service-bundle", "PodDisruptionBudget policy-service", "Service policy-service", "Service policy-service-pods", "StatefulSet policy-service"}
	var got []string
	for name := range c.all {
		if !strings.HasPrefix(name, "ConfigMap policy-service-config-") { // with a hash of its content
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(c.all) != 6 {
		t.Error(diff)
	}
	if c.set.Spec.ServiceName != c.pods.Metadata.Name || c.pods.Spec.ClusterIP != "None" || c.service.Spec.Affinity != "ClientIP" {
		t.Error("the StatefulSet needs a headless service, and clients one that stays with a replica")
	}
}

// TestKubernetesSecurity: nothing but the data can be written to.
func TestKubernetesSecurity(t *testing.T) {
	c := readCluster(t)
	if pod := c.pod.Security; pod.Group != nobody || pod.FSChange != "OnRootMismatch" {
		t.Errorf("%+v", pod)
	}
}

// TestKubernetesRuns: what it runs is what this program has, in places that are mounted, with probes that are answered.
func TestKubernetesRuns(t *testing.T) {
	t.Parallel()
	c := readCluster(t)
	program, command := parsed(t, c.container.Args)
	if command != "serve" || string(program.Serve.Listen) != ":"+strconv.Itoa(c.container.Ports[0].Port) {
		t.Errorf("%s --listen %s", command, program.Serve.Listen)
	}
	mounted := map[string]string{}
	for _, m := range c.container.Mounts {
		mounted[m.Path] = m.Name
	}
	for path, want := range map[string]string{
		string(program.Serve.Policies): "policies", filepath.Dir(string(program.Serve.Config)): "config", filepath.Dir(string(program.Serve.Data)): "data",
	} {
		if mounted[path] != want {
			t.Errorf("%s is on volume %q, want %q", path, mounted[path], want)
		}
	}
	if len(c.set.Spec.Claims) != 1 || c.set.Spec.Claims[0].Metadata.Name != "data" || c.set.Spec.Retention["whenDeleted"] != "Retain" || c.set.Spec.Retention["whenScaled"] != "Retain" {
		t.Error("the log needs a volume that stays")
	}
	running := pdptest.Start(t, pdp.Dir("deploy/kubernetes/bundle"))
	for _, p := range []kubeProbe{c.container.Liveness, c.container.Startup, c.container.Readiness} {
		if answer := running.Get(p.Get.Path); answer.Status != http.StatusOK {
			t.Errorf("%+v is answered %d", p, answer.Status)
		}
	}
}

// bytesOf reads a quantity as Kubernetes writes it.
func bytesOf(t *testing.T, quantity string) int64 {
	t.Helper()
	var n int64
	var unit string
	if _, err := fmt.Sscanf(quantity, "%d%s", &n, &unit); err != nil {
		t.Fatalf("%q: %v", quantity, err)
	}
	return n << map[string]int{"Mi": 20, "Gi": 30}[unit]
}

// TestKubernetesConfig: the service can be made with it, its files are in what is mounted, and retention fits the volume.
func TestKubernetesConfig(t *testing.T) {
	c := readCluster(t)
	program, _ := parsed(t, c.container.Args)
	told := server.Config{Program: server.Program{Source: pdp.Dir("deploy/kubernetes/bundle")}, Listen: string(program.Serve.Listen), Data: string(program.Serve.Data)}
	if _, err := server.ConfigForm.Read(config.Given{File: "deploy/kubernetes/config.yaml"}, &told); err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(told); err != nil {
		t.Error(err)
	}
	for _, file := range []string{told.TLS.CertFile, told.TLS.KeyFile, told.TLS.ClientCAFile} {
		if !slices.Contains([]string{"/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt"}, file) {
			t.Errorf("%s is not in the secret", file)
		}
	}
	if len(told.Auth.JWT)+len(told.Auth.MTLS) == 0 {
		t.Error("without credentials it does not listen beyond loopback, and there are no API keys before it runs")
	}
	// What is kept, the hashes of much more, and a reserve.
	if keep, disk := told.DecisionLog.Retain.Bytes, bytesOf(t, c.set.Spec.Claims[0].Spec.Resources.Requests["storage"]); keep == 0 || keep > disk/100*70 {
		t.Errorf("%d of %d bytes are kept", keep, disk)
	}
	if c.config(t, "config", "config.yaml") != string(deployed(t, "kubernetes/config.yaml")) {
		t.Error("the ConfigMap does not hold the file")
	}
}

// files are those of a ConfigMap that kustomize makes, by key.
func (c *cluster) files(t *testing.T, name string) map[string]string {
	t.Helper()
	files := map[string]string{}
	var k kustomization
	must(t, yaml.Unmarshal(deployed(t, "kubernetes/kustomization.yaml"), &k))
	for _, m := range k.Maps {
		if m.Name != name {
			continue
		}
		if m.Options.NoSuffix != (name == "policy-service-bundle") {
			t.Errorf("%s: an edit of the bundle must reach running pods, and one of the configuration start new ones", name)
		}
		for _, f := range m.Files {
			key, file, given := strings.Cut(f, "=")
			if !given {
				key, file = filepath.Base(f), f
			}
			files[key] = file
		}
	}
	if len(files) == 0 {
		t.Fatalf("there is no ConfigMap %s", name)
	}
	return files
}

// TestKubernetesBundle lays the bundle out as the kubelet does. It loads without a word, its tests pass, it serves, and
// its MANIFEST is to the byte what check --write-manifest writes.
func TestKubernetesBundle(t *testing.T) {
	t.Parallel()
	dir := readCluster(t).volume(t)
	bundle, problems := pdp.Check(pdp.Dir(dir), time.Now())
	_, ofTests := pdp.Examples(pdp.Dir(dir))
	if problems = append(problems, ofTests...); bundle == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	want, problems := pdp.Dir(dir).Manifest()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := deployed(t, "kubernetes/bundle/MANIFEST"); !bytes.Equal(got, want) {
		t.Errorf("policy-service check cmd/policy-service/deploy/kubernetes/bundle --write-manifest would write\n%s", want)
	}
	copied := filepath.Join(t.TempDir(), "bundle")
	must(t, os.CopyFS(copied, os.DirFS("deploy/kubernetes/bundle")))
	for _, args := range [][]string{{"check", copied, "--write-manifest", "--strict"}, {"test", copied}} {
		if out, err := exec.CommandContext(t.Context(), "policy-service", args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if written, err := os.ReadFile(filepath.Join(copied, "MANIFEST")); err != nil || !bytes.Equal(written, want) {
		t.Errorf("the command wrote\n%s%v", written, err)
	}
	answer := pdptest.Start(t, pdp.Dir(dir)).Post("/access/v1/evaluation",
		`{"subject":{"type":"agent","id":"a"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"wiki:search_pages"}}`)
	if answer.Body != `{"decision":true}` {
		t.Error(answer.Body)
	}
}

// volume is the bundle's volume as the kubelet makes it of the ConfigMap and of the paths in the StatefulSet: everything
// behind a link that is replaced at once.
func (c *cluster) volume(t *testing.T) string {
	t.Helper()
	dir, files := t.TempDir(), c.files(t, "policy-service-bundle")
	for _, v := range c.pod.Volumes {
		if v.Name != "policies" {
			continue
		}
		if v.ConfigMap.Name != "policy-service-bundle" || len(v.ConfigMap.Items) != len(files) {
			t.Errorf("%s has %d items, and the ConfigMap %d", v.ConfigMap.Name, len(v.ConfigMap.Items), len(files))
		}
		for _, item := range v.ConfigMap.Items {
			if files[item.Key] != "bundle/"+item.Path {
				t.Errorf("the key %s is the file %q, and becomes %s", item.Key, files[item.Key], item.Path)
			}
			writeFile(t, filepath.Join(dir, "..2026_01_02", item.Path), c.config(t, "policies", item.Key))
			top, _, _ := strings.Cut(item.Path, "/")
			if err := os.Symlink("..data/"+top, filepath.Join(dir, top)); err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	must(t, os.Symlink("..2026_01_02", filepath.Join(dir, "..data")))
	return dir
}
