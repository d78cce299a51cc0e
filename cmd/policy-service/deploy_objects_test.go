package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// The kinds of object in deploy/kubernetes, with the members that are used there and no other: a member that is misspelt
// is an error, and so is one that nobody has thought of here.
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
			MaxSkew     int          `yaml:"maxSkew"`
			TopologyKey string       `yaml:"topologyKey"`
			Otherwise   string       `yaml:"whenUnsatisfiable"`
			Selector    kubeSelector `yaml:"labelSelector"`
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
		Get      struct{ Path, Port, Scheme string } `yaml:"httpGet"`
		Period   int                                 `yaml:"periodSeconds"`
		Timeout  int                                 `yaml:"timeoutSeconds"`
		Failures int                                 `yaml:"failureThreshold"`
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
			Modes     []string `yaml:"accessModes"`
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
			MinAvailable int `yaml:"minAvailable"`
			Selector     kubeSelector
		}
	}
	kustomization struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Resources  []string
		Images     []struct {
			Name    string
			NewName string `yaml:"newName"`
			NewTag  string `yaml:"newTag"`
		}
		Maps []struct {
			Name    string
			Options struct {
				NoSuffix bool `yaml:"disableNameSuffixHash"`
			}
			Files []string
		} `yaml:"configMapGenerator"`
	}
)

// cluster is all of deploy/kubernetes, or of deploy/kubernetes-gateway.
type cluster struct {
	kustomization
	set           statefulSet // a Deployment has the same members, as far as they are used
	service, pods kubeService // the gateway has one service
	budget        disruptionBudget
	pod           pod
	container     container
}

func readCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	c.read(t, "kubernetes", map[string]any{
		"statefulset.yaml": &c.set, "service-pods.yaml": &c.pods,
		"config.yaml": &yaml.Node{}, // TestKubernetesConfig reads it as the service does
	})
	return c
}

func readGatewayCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	c.read(t, "kubernetes-gateway", map[string]any{"deployment.yaml": &c.set, "gateway.yaml": &yaml.Node{}})
	return c
}

// read reads the files of a directory, which has no other ones.
func (c *cluster) read(t *testing.T, dir string, files map[string]any) {
	t.Helper()
	files["kustomization.yaml"], files["service.yaml"], files["poddisruptionbudget.yaml"] = &c.kustomization, &c.service, &c.budget
	found, err := filepath.Glob("deploy/" + dir + "/*")
	must(t, err)
	for _, name := range found {
		if filepath.Base(name) != "bundle" && files[filepath.Base(name)] == nil {
			t.Errorf("%s is held by no test", name)
		}
	}
	for name, into := range files {
		decoder := yaml.NewDecoder(bytes.NewReader(deployed(t, dir+"/"+name)))
		decoder.KnownFields(true)
		if err := decoder.Decode(into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
			t.Fatalf("%s holds a second document: %v", name, err)
		}
	}
	c.pod = c.set.Spec.Template.Spec
	if len(c.pod.Containers) != 1 {
		t.Fatalf("%d containers", len(c.pod.Containers))
	}
	c.container = c.pod.Containers[0]
}

// TestManifests: the objects of each directory find one another, and fit. Their pods are what the restricted pod security
// standard asks for, with a root that cannot be written to.
func TestManifests(t *testing.T) {
	for name, c := range map[string]*cluster{"service": readCluster(t), "gateway": readGatewayCluster(t)} {
		t.Run(name, func(t *testing.T) {
			c.joined(t)
			c.confined(t)
			c.stops(t)
		})
	}
}

func (c *cluster) joined(t *testing.T) {
	labels := c.set.Spec.Template.Metadata.Labels
	selected := []map[string]string{
		labels, c.set.Spec.Selector.MatchLabels, c.service.Spec.Selector, c.budget.Spec.Selector.MatchLabels, c.pod.Spread[0].Selector.MatchLabels,
	}
	port := c.container.Ports[0]
	for _, s := range []kubeService{c.service, c.pods} {
		if s.Kind == "" {
			continue
		}
		selected = append(selected, s.Spec.Selector)
		if p := s.Spec.Ports[0]; p.Target != port.Name || p.Port != port.Port {
			t.Errorf("%+v", p)
		}
	}
	for _, s := range selected {
		if len(s) == 0 || !maps.Equal(labels, s) {
			t.Errorf("%v is selected, and pods are %v", s, labels)
		}
	}
	if c.budget.Spec.MinAvailable < 1 || c.budget.Spec.MinAvailable >= c.set.Spec.Replicas {
		t.Errorf("%d of %d: a node can be drained, and not all pods at once", c.budget.Spec.MinAvailable, c.set.Spec.Replicas)
	}
	if c.container.Image != c.Images[0].Name {
		t.Errorf("kustomize replaces no image %s", c.container.Image)
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
	env := c.container.Env
	if len(env) != 1 || env[0].Name != "GOMEMLIMIT" || c.container.Resources.Limits["cpu"] != "" {
		t.Fatalf("%+v %+v", env, c.container.Resources)
	}
	ninetyPercent(t, bytesOf(t, strings.TrimSuffix(env[0].Value, "B")), bytesOf(t, c.container.Resources.Limits["memory"]))
}
