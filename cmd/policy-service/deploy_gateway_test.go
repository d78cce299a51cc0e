package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/inside/config"
	"policy-service/pdp/pdptest/inside/mcp"
)

// TestGatewayManifestsConfig: the gateway takes the configuration, and its files are in what is mounted.
func TestGatewayManifestsConfig(t *testing.T) {
	c := kustomized(t, "kubernetes-gateway").of(t, "StatefulSet", "mcp-gateway")
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
