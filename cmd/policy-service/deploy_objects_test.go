package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp/pdptest/judged"
)

// The members of objects that tests look at. What is rendered has been decoded strictly into the types of Kubernetes.
type (
	object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
	}
	metadata struct {
		Name   string
		Labels map[string]string
	}
	kubeSelector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	statefulSet struct {
		object `yaml:",inline"`
		Spec   struct {
			ServiceName string `yaml:"serviceName"`
			Replicas    int
			Selector    kubeSelector
			Management  string            `yaml:"podManagementPolicy"`
			Retention   map[string]string `yaml:"persistentVolumeClaimRetentionPolicy"`
			Template    struct {
				Metadata metadata
				Spec     pod
			}
			Claims []claim `yaml:"volumeClaimTemplates"`
		}
	}
	pod struct {
		Automount    *bool    `yaml:"automountServiceAccountToken"`
		ServiceLinks *bool    `yaml:"enableServiceLinks"`
		Grace        int      `yaml:"terminationGracePeriodSeconds"`
		Security     security `yaml:"securityContext"`
		Spread       []struct {
			Selector kubeSelector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []container
		Volumes    []kubeVolume
	}
	security struct {
		NonRoot    bool                    `yaml:"runAsNonRoot"`
		User       int                     `yaml:"runAsUser"`
		Group      int                     `yaml:"runAsGroup"`
		FSGroup    int                     `yaml:"fsGroup"`
		FSChange   string                  `yaml:"fsGroupChangePolicy"`
		Seccomp    struct{ Type string }   `yaml:"seccompProfile"`
		Escalation *bool                   `yaml:"allowPrivilegeEscalation"`
		ReadOnly   bool                    `yaml:"readOnlyRootFilesystem"`
		Caps       struct{ Drop []string } `yaml:"capabilities"`
	}
	container struct {
		Name, Image string
		Args        []string
		Env         []struct{ Name, Value string }
		Ports       []struct {
			Name string
			Port int `yaml:"containerPort"`
		}
		Startup   kubeProbe `yaml:"startupProbe"`
		Liveness  kubeProbe `yaml:"livenessProbe"`
		Readiness kubeProbe `yaml:"readinessProbe"`
		Lifecycle struct {
			PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
		}
		Resources struct{ Requests, Limits map[string]string }
		Security  security `yaml:"securityContext"`
		Mounts    []struct {
			Name     string
			Path     string `yaml:"mountPath"`
			ReadOnly bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	kubeProbe struct {
		Get struct{ Path, Port, Scheme string } `yaml:"httpGet"`
	}
	kubeVolume struct {
		Name      string
		ConfigMap struct {
			Name  string
			Items []struct{ Key, Path string }
		} `yaml:"configMap"`
		Secret struct {
			Name string `yaml:"secretName"`
			Mode int    `yaml:"defaultMode"`
		}
	}
	claim struct {
		Metadata metadata
		Spec     struct {
			Resources struct{ Requests map[string]string }
		}
	}
	kubeService struct {
		object `yaml:",inline"`
		Spec   struct {
			ClusterIP string `yaml:"clusterIP"`
			Affinity  string `yaml:"sessionAffinity"`
			Selector  map[string]string
			Ports     []struct {
				Name   string
				Port   int
				Target string `yaml:"targetPort"`
			}
		}
	}
	disruptionBudget struct {
		object `yaml:",inline"`
		Spec   struct {
			MinAvailable   int `yaml:"minAvailable"`
			MaxUnavailable int `yaml:"maxUnavailable"`
			Selector       kubeSelector
		}
	}
	configMap struct {
		object `yaml:",inline"`
		Data   map[string]string
	}
	kustomization struct {
		Maps []struct {
			Name    string
			Options struct {
				NoSuffix bool `yaml:"disableNameSuffixHash"`
			}
			Files []string
		} `yaml:"configMapGenerator"`
	}
)

// rendered are the objects of a chart or a kustomization, by kind and name, each as JSON.
type rendered map[string][]byte

// render runs the program that renders them, which refuses an object that is not as Kubernetes has its kind.
func render(t *testing.T, args ...string) (rendered, error) {
	t.Helper()
	var said bytes.Buffer
	command := exec.CommandContext(t.Context(), judged.ProgramOf(t, "kubernetes", "manifest"), args...)
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", args, err, &said)
	}
	all := rendered{}
	for line := range bytes.Lines(out) {
		var o object
		must(t, yaml.Unmarshal(line, &o))
		name := o.Kind + " " + o.Metadata.Name
		if all[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		all[name] = line
	}
	return all, nil
}

func (r rendered) get(t *testing.T, name string, into any) {
	t.Helper()
	if r[name] == nil {
		t.Fatalf("there is no %s in %v", name, slices.Sorted(maps.Keys(r)))
	}
	must(t, yaml.Unmarshal(r[name], into))
}

// config is a file of the ConfigMap that a volume of the pod is.
func (c *cluster) config(t *testing.T, volume, file string) string {
	t.Helper()
	for _, v := range c.pod.Volumes {
		if v.Name == volume {
			var m configMap
			c.all.get(t, "ConfigMap "+v.ConfigMap.Name, &m)
			return m.Data[file]
		}
	}
	t.Fatalf("there is no volume %s", volume)
	return ""
}

// secrets are the names of the Secrets of all pods.
func (r rendered) secrets(t *testing.T) (names []string) {
	t.Helper()
	for key := range r {
		if kind, _, _ := strings.Cut(key, " "); kind == "StatefulSet" || kind == "Deployment" {
			var set statefulSet
			r.get(t, key, &set)
			for _, v := range set.Spec.Template.Spec.Volumes {
				if v.Secret.Name != "" {
					names = append(names, v.Secret.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// cluster is a set of pods, with what is about them.
type cluster struct {
	all           rendered
	set           statefulSet // a Deployment has the same members, as far as they are used
	service, pods kubeService // a Deployment has one service
	budget        disruptionBudget
	pod           pod
	container     container
}

// of are the pods of a StatefulSet or a Deployment.
func (r rendered) of(t *testing.T, kind, name string) *cluster {
	t.Helper()
	c := &cluster{all: r}
	r.get(t, kind+" "+name, &c.set)
	r.get(t, "Service "+name, &c.service)
	r.get(t, "PodDisruptionBudget "+name, &c.budget)
	if r["Service "+name+"-pods"] != nil {
		r.get(t, "Service "+name+"-pods", &c.pods)
	}
	if c.pod = c.set.Spec.Template.Spec; len(c.pod.Containers) != 1 {
		t.Fatalf("%d containers", len(c.pod.Containers))
	}
	c.container = c.pod.Containers[0]
	return c
}

func kustomized(t *testing.T, dir string) rendered {
	t.Helper()
	all, err := render(t, "kustomization", "deploy/"+dir)
	must(t, err)
	return all
}

func readCluster(t *testing.T) *cluster {
	t.Helper()
	return kustomized(t, "kubernetes").of(t, "StatefulSet", "policy-service")
}

// chartValues are of a release of everything that the chart has.
const chartValues = `
image: registry.example.com/policy-service:v0.1.0
etcd: {endpoints: [https://etcd-0.etcd:2379, https://etcd-1.etcd:2379, https://etcd-2.etcd:2379]}
config: {auth: {mtls: [{san: gateway.default.svc, tenants: [default], permissions: [decide]}]}, console: {}}
serviceMonitor: {enabled: true}
gateway:
  enabled: true
  replicas: 4
  config:
    resource: https://mcp.example.com/mcp
    identity: {issuers: [{issuer: https://idp.example.com, algorithms: [ES256]}]}
    upstreams: {jira: {url: https://jira-mcp.default.svc/mcp}}
balancer: {enabled: true}
`

func charted(t *testing.T, values string) (rendered, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(file, []byte(values), 0o600))
	return render(t, "chart", "deploy/helm", file)
}

// TestManifests: the objects of each directory, and of the chart, find one another, and fit. Their pods are what the restricted
// pod security standard asks for, with a root that cannot be written to.
func TestManifests(t *testing.T) {
	t.Parallel()
	chart, err := charted(t, chartValues)
	must(t, err)
	whole := kustomized(t, "kubernetes-cluster")
	for name, c := range map[string]*cluster{
		"service":          readCluster(t),
		"gateway":          kustomized(t, "kubernetes-gateway").of(t, "StatefulSet", "mcp-gateway"),
		"cluster service":  whole.of(t, "StatefulSet", "policy-service"),
		"cluster gateway":  whole.of(t, "StatefulSet", "mcp-gateway"),
		"cluster balancer": whole.of(t, "Deployment", "balancer"),
		"cluster etcd":     whole.of(t, "StatefulSet", "etcd"),
		"chart service":    chart.of(t, "StatefulSet", "policy-service"),
		"chart gateway":    chart.of(t, "StatefulSet", "policy-service-gateway"),
		"chart balancer":   chart.of(t, "Deployment", "policy-service-balancer"),
	} {
		t.Run(name, func(t *testing.T) {
			c.joined(t)
			c.confined(t)
			if strings.HasSuffix(name, "service") || strings.HasSuffix(name, "gateway") {
				c.stops(t)
			}
		})
	}
}

func (c *cluster) joined(t *testing.T) {
	labels := c.set.Spec.Template.Metadata.Labels
	selected := []map[string]string{
		labels, c.set.Spec.Selector.MatchLabels, c.service.Spec.Selector, c.budget.Spec.Selector.MatchLabels, c.pod.Spread[0].Selector.MatchLabels,
	}
	for _, s := range []kubeService{c.service, c.pods} {
		if s.Kind == "" {
			continue
		}
		selected = append(selected, s.Spec.Selector)
		for n, p := range s.Spec.Ports {
			if port := c.container.Ports[n]; p.Target != port.Name || p.Port != port.Port {
				t.Errorf("%+v", p)
			}
		}
	}
	if name := c.set.Spec.ServiceName; c.set.Kind == "StatefulSet" && name != c.pods.Metadata.Name && name != c.service.Metadata.Name {
		t.Errorf("the pods have no names: there is no %s", name)
	}
	for _, s := range selected {
		if len(s) == 0 || !maps.Equal(labels, s) {
			t.Errorf("%v is selected, and pods are %v", s, labels)
		}
	}
	least := max(c.budget.Spec.MinAvailable, c.set.Spec.Replicas-c.budget.Spec.MaxUnavailable)
	if c.budget.Spec.MinAvailable == 0 && c.budget.Spec.MaxUnavailable == 0 || least < 1 || c.budget.Spec.MinAvailable >= c.set.Spec.Replicas {
		t.Errorf("%+v of %d: a node can be drained, and not all pods at once", c.budget.Spec, c.set.Spec.Replicas)
	}
	if image := c.container.Image; !strings.Contains(image, ":") || c.container.Name != "haproxy" && c.container.Name != "etcd" && image != "registry.example.com/policy-service:v0.1.0" {
		t.Errorf("it runs %s", image)
	}
	mounted := map[string]bool{}
	for _, m := range c.container.Mounts {
		mounted[m.Name] = true
		if m.ReadOnly != (m.Name != "data") {
			t.Errorf("%s is mounted read-only: %v", m.Path, m.ReadOnly)
		}
	}
	for _, v := range c.pod.Volumes {
		if !mounted[v.Name] {
			t.Errorf("%s is mounted nowhere", v.Name)
		}
	}
}

func (c *cluster) confined(t *testing.T) {
	pod, own := c.pod.Security, c.container.Security
	if !pod.NonRoot || pod.User != nobody || pod.FSGroup != nobody || pod.Seccomp.Type != "RuntimeDefault" {
		t.Errorf("%+v", pod)
	}
	if own.Escalation == nil || *own.Escalation || !own.ReadOnly || !slices.Equal(own.Caps.Drop, []string{"ALL"}) {
		t.Errorf("%+v", own)
	}
	if c.pod.Automount == nil || *c.pod.Automount || c.pod.ServiceLinks == nil || *c.pod.ServiceLinks {
		t.Error("it needs neither a token of the cluster nor the environment of other services")
	}
	for _, v := range c.pod.Volumes {
		if v.Secret.Name != "" && v.Secret.Mode&0o007 != 0 {
			t.Errorf("%s is open to everybody: %#o", v.Secret.Name, v.Secret.Mode)
		}
	}
}

// stops holds probes, times and memory to what the program needs.
func (c *cluster) stops(t *testing.T) {
	for path, p := range map[string]kubeProbe{"/livez": c.container.Liveness, "/livez ": c.container.Startup, "/readyz": c.container.Readiness} {
		if p.Get.Path != strings.TrimSpace(path) || p.Get.Port != c.container.Ports[0].Name || p.Get.Scheme != "HTTPS" {
			t.Errorf("%+v", p)
		}
	}
	grace, sleep := time.Duration(c.pod.Grace)*time.Second, time.Duration(c.container.Lifecycle.PreStop.Sleep.Seconds)*time.Second
	if sleep < time.Second || grace < sleep+stopsWithin {
		t.Errorf("%v are left for a stop that takes up to %v after %v", grace, stopsWithin, sleep)
	}
	if c.container.Resources.Limits["cpu"] != "" {
		t.Errorf("%+v", c.container.Resources)
	}
	limit := ""
	for _, e := range c.container.Env {
		if e.Name == "GOMEMLIMIT" {
			limit = e.Value
		}
	}
	ninetyPercent(t, bytesOf(t, strings.TrimSuffix(limit, "B")), bytesOf(t, c.container.Resources.Limits["memory"]))
}
