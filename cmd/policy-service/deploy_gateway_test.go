package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"policy-service/pdp/mcp"
	"policy-service/pdp/server/config"
)

// gatewayCluster is all of deploy/kubernetes-gateway.
type gatewayCluster struct {
	kustomization
	set       statefulSet // a Deployment has the same members, as far as they are used
	service   kubeService
	budget    disruptionBudget
	container container
}

func readGatewayCluster(t *testing.T) *gatewayCluster {
	t.Helper()
	c := &gatewayCluster{}
	files := map[string]any{
		"kustomization.yaml": &c.kustomization, "deployment.yaml": &c.set, "service.yaml": &c.service,
		"poddisruptionbudget.yaml": &c.budget, "gateway.yaml": &yaml.Node{},
	}
	found, err := filepath.Glob("deploy/kubernetes-gateway/*")
	if err != nil || len(found) != len(files) {
		t.Fatalf("some of %v are held by no test, or are missing (%v)", found, err)
	}
	for name, into := range files {
		decoder := yaml.NewDecoder(bytes.NewReader(deployed(t, "kubernetes-gateway/"+name)))
		decoder.KnownFields(true)
		if err := decoder.Decode(into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
			t.Fatalf("%s holds a second document: %v", name, err)
		}
	}
	if n := len(c.set.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%d containers", n)
	}
	c.container = c.set.Spec.Template.Spec.Containers[0]
	return c
}

// TestGatewayManifests: the objects find one another, are confined, run what this program has, and fit.
func TestGatewayManifests(t *testing.T) {
	c := readGatewayCluster(t)
	pod := c.set.Spec.Template.Spec
	labels := c.set.Spec.Template.Metadata.Labels
	for what, selected := range map[string]map[string]string{
		"Deployment": c.set.Spec.Selector.MatchLabels, "Service": c.service.Spec.Selector,
		"PodDisruptionBudget": c.budget.Spec.Selector.MatchLabels, "spread": pod.Spread[0].Selector.MatchLabels,
	} {
		if len(labels) == 0 || !maps.Equal(labels, selected) {
			t.Errorf("%s selects %v, and pods are %v", what, selected, labels)
		}
	}
	if !slices.Equal(c.Resources, []string{"deployment.yaml", "service.yaml", "poddisruptionbudget.yaml"}) || c.container.Image != c.Images[0].Name || c.set.Kind != "Deployment" {
		t.Error(c.Resources, c.container.Image, c.set.Kind)
	}
	if c.budget.Spec.MinAvailable < 1 || c.budget.Spec.MinAvailable >= c.set.Spec.Replicas {
		t.Errorf("%d of %d: a node can be drained, and not all pods at once", c.budget.Spec.MinAvailable, c.set.Spec.Replicas)
	}
	own := c.container.Security
	if !pod.Security.NonRoot || pod.Security.User != nobody || pod.Security.FSGroup != nobody || pod.Security.Seccomp.Type != "RuntimeDefault" ||
		own.Escalation == nil || *own.Escalation || !own.ReadOnly || !slices.Equal(own.Caps.Drop, []string{"ALL"}) ||
		pod.Automount == nil || *pod.Automount || pod.ServiceLinks == nil || *pod.ServiceLinks {
		t.Errorf("%+v %+v", pod.Security, own)
	}
	for _, v := range pod.Volumes {
		if v.Secret.Name != "" && v.Secret.Mode&0o007 != 0 {
			t.Errorf("%s is open to everybody: %#o", v.Secret.Name, v.Secret.Mode)
		}
	}
	port := c.container.Ports[0]
	for path, p := range map[string]kubeProbe{"/livez": c.container.Liveness, "/livez ": c.container.Startup, "/readyz": c.container.Readiness} {
		if p.Get.Path != strings.TrimSpace(path) || p.Get.Port != port.Name || p.Get.Scheme != "HTTPS" {
			t.Errorf("%+v", p)
		}
	}
	grace, sleep := time.Duration(pod.Grace)*time.Second, time.Duration(c.container.Lifecycle.PreStop.Sleep.Seconds)*time.Second
	if s := c.service.Spec.Ports[0]; sleep < time.Second || grace < sleep+stopsWithin || s.Target != port.Name || s.Port != port.Port {
		t.Errorf("%v, %v, %+v", grace, sleep, s)
	}
	ninetyPercent(t, bytesOf(t, strings.TrimSuffix(c.container.Env[0].Value, "B")), bytesOf(t, c.container.Resources.Limits["memory"]))
}

// TestGatewayManifestsConfig: the gateway takes the configuration, and its files are in what is mounted.
func TestGatewayManifestsConfig(t *testing.T) {
	c := readGatewayCluster(t)
	program, command := parsed(t, c.container.Args)
	if command != "mcp-gateway serve" || program.MCPGateway.Serve.Stdio {
		t.Error(command)
	}
	var told mcp.Config
	if _, err := mcp.Form.Read(config.Given{File: "deploy/kubernetes-gateway/gateway.yaml"}, &told); err != nil {
		t.Fatal(err)
	}
	if _, port, _ := strings.Cut(told.Listen, ":"); port != strconv.Itoa(c.container.Ports[0].Port) {
		t.Errorf("it listens on %s, and the pod on %d", told.Listen, c.container.Ports[0].Port)
	}
	mounted := []string{}
	for _, m := range c.container.Mounts {
		mounted = append(mounted, m.Path)
	}
	files := append([]string{string(program.MCPGateway.Serve.Config), told.TLS.CertFile, told.TLS.KeyFile, told.PDP.CAFile, told.PDP.KeyFile}, told.Seal.KeyFiles...)
	for _, name := range files {
		if !slices.Contains(mounted, filepath.Dir(name)) {
			t.Errorf("%s is in none of %v", name, mounted)
		}
	}
	if c.set.Spec.Replicas > 1 && len(told.Seal.KeyFiles) == 0 {
		t.Error("replicas need a key in common")
	}
}

// TestGatewayUnitRuns: what it runs is what this program has, in places that the unit provides.
func TestGatewayUnitRuns(t *testing.T) {
	service := readUnit(t, "systemd/mcp-gateway.service")["Service"]
	start, examine := strings.Fields(service["ExecStart"][0]), strings.Fields(strings.TrimPrefix(service["ExecStartPre"][0], "-"))
	c, command := parsed(t, start[1:])
	if command != "mcp-gateway serve" || c.MCPGateway.Serve.Stdio {
		t.Error(command)
	}
	of, command := parsed(t, examine[1:])
	if command != "mcp-gateway doctor" || of.MCPGateway.Doctor.Config != c.MCPGateway.Serve.Config || !strings.HasPrefix(service["ExecStartPre"][0], "-") {
		t.Errorf("%s is not about what is served, or keeps it from starting", service["ExecStartPre"][0])
	}
	user := service["User"][0]
	if users := string(deployed(t, "systemd/mcp-gateway.conf")); !strings.Contains(users, "\nu "+user+" - ") || service["Group"][0] != user || service["StateDirectory"][0] != user {
		t.Errorf("nobody makes the user %s", user)
	}
}
