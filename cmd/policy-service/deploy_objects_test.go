package main

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"

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

// cluster is all of deploy/kubernetes.
type cluster struct {
	kustomization
	set           statefulSet
	service, pods kubeService
	budget        disruptionBudget
	pod           pod
	container     container
}

func readCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	files := map[string]any{
		"kustomization.yaml": &c.kustomization, "statefulset.yaml": &c.set, "service.yaml": &c.service,
		"service-pods.yaml": &c.pods, "poddisruptionbudget.yaml": &c.budget,
		"config.yaml": &yaml.Node{}, // TestKubernetesConfig reads it as the service does
	}
	found, err := filepath.Glob("deploy/kubernetes/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		if filepath.Base(name) != "bundle" && files[filepath.Base(name)] == nil {
			t.Errorf("%s is held by no test", name)
		}
	}
	for name, into := range files {
		decoder := yaml.NewDecoder(bytes.NewReader(deployed(t, "kubernetes/"+name)))
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
	return c
}
