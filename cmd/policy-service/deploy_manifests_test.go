package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	diffs "github.com/google/go-cmp/cmp"

	"policy-service/pdp/pdptest/inside/config"
	"policy-service/pdp/pdptest/inside/mcp"
	"policy-service/pdp/pdptest/inside/server"
)

// told is a file of a ConfigMap, in which the program itself has found no mistake.
func (c *cluster) told(t *testing.T, file string, command ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), file)
	must(t, os.WriteFile(name, []byte(c.config(t, "config", file)), 0o600))
	check := exec.CommandContext(t.Context(), "policy-service", append(command, "config", "check", name)...)
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return name
}

// mounts holds files of a configuration to the volumes of the pod.
func (c *cluster) mounts(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		if !slices.ContainsFunc(c.container.Mounts, func(m struct {
			Name     string
			Path     string `yaml:"mountPath"`
			ReadOnly bool   `yaml:"readOnly"`
		}) bool {
			return file == m.Path || strings.HasPrefix(file, m.Path+"/")
		}) {
			t.Errorf("%q is in no volume", file)
		}
	}
}

// TestClusterManifests: the configurations of the whole cluster, as kustomize and as Helm render them, are what the programs take.
// They find one another, and what they read is mounted.
func TestClusterManifests(t *testing.T) {
	t.Parallel()
	chart, err := charted(t, chartValues)
	must(t, err)
	for name, all := range map[string]struct {
		rendered
		pdp, gateway, balancer string
		gateways               int
	}{
		"kustomization": {kustomized(t, "kubernetes-cluster"), "policy-service", "mcp-gateway", "balancer", 3},
		"chart":         {chart, "policy-service", "policy-service-gateway", "policy-service-balancer", 4},
	} {
		t.Run(name, func(t *testing.T) {
			pdps, gateways, balancer := all.of(t, "StatefulSet", all.pdp), all.of(t, "StatefulSet", all.gateway), all.of(t, "Deployment", all.balancer)
			if pdps.set.Spec.Replicas != 3 || gateways.set.Spec.Replicas != all.gateways {
				t.Errorf("%d PDPs, %d gateways", pdps.set.Spec.Replicas, gateways.set.Spec.Replicas)
			}
			var pdp server.Config
			_, err := server.ConfigForm.Read(config.Given{File: pdps.told(t, "config.yaml")}, &pdp)
			must(t, err)
			etcd := pdp.Cluster.Etcd
			pdps.mounts(t, pdp.Data, pdp.TLS.CertFile, pdp.TLS.KeyFile, pdp.TLS.ClientCAFile, etcd.CAFile, etcd.CertFile, etcd.KeyFile, pdp.Cluster.Secrets)
			if want := []string{"https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379", "https://etcd-2.etcd:2379"}; !slices.Equal(etcd.Endpoints, want) {
				t.Errorf("etcd is at %v", etcd.Endpoints)
			}
			if pdp.PublicURL != "https://"+all.pdp+".default.svc:8180" {
				t.Errorf("the PDPs are at %s", pdp.PublicURL)
			}
			var gateway mcp.Config
			given := config.Given{File: gateways.told(t, "gateway.yaml", "mcp-gateway"), Environ: []string{"MCP_GATEWAY_NAME=" + all.gateway + "-0"}}
			named := false
			for _, e := range gateways.container.Env {
				if named = named || e.Name == mcpName && e.Value == ""; strings.HasPrefix(e.Name, "MCP_GATEWAY_") && e.Value != "" {
					given.Environ = append(given.Environ, e.Name+"="+e.Value)
				}
			}
			_, err = mcp.Form.Read(given, &gateway)
			must(t, err)
			gateways.mounts(t, append([]string{gateway.TLS.CertFile, gateway.TLS.KeyFile, gateway.PDP.CAFile, gateway.PDP.KeyFile}, gateway.Seal.KeyFiles...)...)
			if gateway.PDP.URL != pdp.PublicURL || gateway.ToolRequests.Keep != mcp.KeepAtPDP || !named {
				t.Errorf("%+v %+v %v", gateway.PDP, gateway.ToolRequests, named)
			}
			all.balances(t, balancer, pdps, gateways)
		})
	}
}

const mcpName = "MCP_GATEWAY_NAME"

// balances holds the balancer's file and its variables to the pods. HAProxy itself reads it, as it is rendered.
func (r rendered) balances(t *testing.T, balancer, pdps, gateways *cluster) {
	t.Helper()
	text := balancer.config(t, "config", "haproxy.cfg")
	plain := strings.TrimRight(string(deployed(t, "balancer/haproxy.cfg")), "\n")
	if !strings.HasPrefix(text, plain) {
		t.Error("it is not the file as it stands")
	}
	for n := range gateways.set.Spec.Replicas {
		if !strings.Contains(text, fmt.Sprintf("\n    server gateway-%d ", n)) {
			t.Errorf("there is no gateway-%d", n)
		}
	}
	want := map[string]string{"PDP_HOST": pdps.service.Metadata.Name + ".default.svc", "GATEWAY_HOST": gateways.service.Metadata.Name + ".default.svc"}
	for n := range 3 {
		for key, c := range map[string]*cluster{"PDP": pdps, "GATEWAY": gateways} {
			want[fmt.Sprintf("%s_%d", key, n)] = fmt.Sprintf("%s-%d.%s.default.svc.cluster.local:%d", c.set.Metadata.Name, n, c.set.Spec.ServiceName, c.container.Ports[0].Port)
		}
	}
	got := map[string]string{}
	for _, e := range balancer.container.Env {
		got[e.Name] = e.Value
	}
	if diff := diffs.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	needProgram(t, "haproxy")
	dir := t.TempDir()
	tls := filepath.Join(dir, "tls")
	if out, err := exec.Command("sh", "deploy/certificates.sh", tls).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Only here: a test has no directory /tls.
	text = strings.ReplaceAll(text, "/tls/", tls+"/balancer/")
	file := filepath.Join(dir, "haproxy.cfg")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	check := exec.CommandContext(t.Context(), "haproxy", "-c", "-f", file)
	for key, value := range got {
		check.Env = append(check.Env, key+"="+value)
	}
	if out, err := check.CombinedOutput(); err != nil || len(regexp.MustCompile(`(?m)^\[WARNING\].*'server gateways/.*cluster\.local'`).FindAll(out, -1)) != gateways.set.Spec.Replicas {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestClusterSecrets: the comment of the kustomization makes the Secrets that pods need, and no other.
func TestClusterSecrets(t *testing.T) {
	t.Parallel()
	var made []string
	for _, file := range []string{"kubernetes-cluster/kustomization.yaml", "kubernetes-gateway/kustomization.yaml"} {
		text := string(deployed(t, file))
		for _, found := range regexp.MustCompile(`(?m)kubectl create secret generic ([a-z-]+)|[ a-z-]+:([a-z-]+)(?:;| )`).FindAllStringSubmatch(text, -1) {
			if name := cmp.Or(found[1], found[2]); strings.HasPrefix(file, "kubernetes-cluster") || found[1] != "" {
				made = append(made, name)
			}
		}
	}
	slices.Sort(made)
	needed := kustomized(t, "kubernetes-cluster").secrets(t)
	if diff := diffs.Diff(needed, slices.Compact(made)); diff != "" || len(needed) != 7 {
		t.Error(diff)
	}
	chart, err := charted(t, chartValues)
	must(t, err)
	needed[slices.Index(needed, "etcd-tls")] = "policy-service-metrics" // the chart has no etcd, and a scraper
	slices.Sort(needed)
	if diff := diffs.Diff(needed, chart.secrets(t)); diff != "" {
		t.Error(diff)
	}
}

// TestClusterEtcd: the members of etcd take nobody without a certificate of theirs, and know one another by the names that
// certificates.sh gives.
func TestClusterEtcd(t *testing.T) {
	t.Parallel()
	etcd := kustomized(t, "kubernetes-cluster").of(t, "StatefulSet", "etcd")
	is := map[string]string{}
	for _, e := range etcd.container.Env {
		is[e.Name] = e.Value
	}
	for key, want := range readComposition(t, "cluster.yaml").Services["etcd-0"].Environment {
		// Names in Kubernetes have that of the Service behind them, and are those of pods.
		want = regexp.MustCompile(`https://(etcd-\d)`).ReplaceAllString(want, "https://$1.etcd")
		if key == "ETCD_NAME" || strings.Contains(key, "ADVERTISE") {
			want = strings.ReplaceAll(want, "etcd-0", "$(ETCD_NAME)")
		}
		if got := is[key]; got != want && key != "ETCD_NAME" {
			t.Errorf("%s is %q, want %q as in the compose file", key, got, want)
		}
	}
	if names := string(deployed(t, "certificates.sh")); !strings.Contains(names, " etcd-0.etcd etcd-1.etcd etcd-2.etcd\n") || etcd.set.Spec.ServiceName != "etcd" || etcd.set.Spec.Management != "Parallel" {
		t.Error("the certificates are for other names")
	}
}

// TestChart: what is missing, or cannot be meant, is said.
func TestChart(t *testing.T) {
	t.Parallel()
	const image, etcd = "image: registry.example.com/p:v1\n", "etcd: {endpoints: [https://etcd:2379]}\n"
	for _, c := range []struct{ values, want string }{
		{etcd, "image is missing: set it to the image of policy-service in your registry"},
		{image, "etcd.endpoints is missing: list the URLs of the members of your etcd, 3.6 or newer"},
		{image + "etcd: {endpoints: [http://etcd:2379]}\n", "does not match pattern"},
		{image + etcd + "replica: 3\n", "replica"},
		{image + etcd + "replicas: three\n", "got string, want integer"},
		{image + etcd + "gateway: {enabled: true}\n", "gateway.config.resource is missing"},
	} {
		if _, err := charted(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %s", c.values, err, c.want)
		}
	}
	least, err := charted(t, image+etcd)
	must(t, err)
	var kinds []string
	for name := range least {
		kinds = append(kinds, name)
	}
	slices.Sort(kinds)
	want := []string{"ConfigMap policy-service-config", "NetworkPolicy policy-service", "PodDisruptionBudget policy-service", "Service policy-service", "Service policy-service-pods", "StatefulSet policy-service"}
	if diff := diffs.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	// What the chart sets is not taken away by config, and config is not lost.
	c, err := charted(t, image+etcd+"config: {data: /elsewhere, cluster: {keys_stale: 5s}, tls: {min_version: \"1.2\"}}\n")
	must(t, err)
	var pdp server.Config
	_, err = server.ConfigForm.Read(config.Given{File: c.of(t, "StatefulSet", "policy-service").told(t, "config.yaml")}, &pdp)
	must(t, err)
	if pdp.Data != "/data/state" || pdp.Cluster.KeysStale.String() != "5s" || pdp.TLS.MinVersion != "1.2" || pdp.TLS.CertFile == "" {
		t.Errorf("%+v", pdp)
	}
}

// TestChartOptions: whatever can be given is where it belongs.
func TestChartOptions(t *testing.T) {
	t.Parallel()
	all, err := charted(t, `
image: registry.example.com/policy-service:v0.1.0
imagePullSecrets: [{name: registry}]
etcd: {endpoints: [https://etcd:2379], prefix: /ours/}
replicas: 1
policies: {configMapName: ours, items: [{key: tools.cedar, path: tools.cedar}]}
config: {cluster: {etcd: {username: pdp, password_file: /etcd/password}}, auth: {mtls: [{san: a.example, tenants: ["*"], permissions: [decide]}]}}
storage: {size: 20Gi, className: fast}
networkPolicy: {ingress: [{from: [{namespaceSelector: {}}]}], egress: [{ports: [{port: 443}]}]}
serviceMonitor: {enabled: true, labels: {team: ours}}
gateway:
  enabled: true
  replicas: 1
  egress: [{ports: [{port: 443}]}]
  config: {resource: "https://mcp.example.com/mcp", identity: {issuers: [{issuer: "https://idp.example.com", algorithms: [ES256]}]}, upstreams: {jira: {url: "https://jira/mcp"}}}
balancer: {enabled: true, replicas: 1, service: {type: LoadBalancer, annotations: {a: b}}}
`)
	must(t, err)
	var pdp server.Config
	var set statefulSet
	all.get(t, "StatefulSet policy-service", &set)
	c := &cluster{all: all, set: set, pod: set.Spec.Template.Spec}
	_, err = server.ConfigForm.Read(config.Given{File: c.told(t, "config.yaml")}, &pdp)
	must(t, err)
	if e := pdp.Cluster.Etcd; e.Prefix != "/ours/" || e.Username != "pdp" || e.PasswordFile != "/etcd/password" || e.KeyFile == "" {
		t.Errorf("%+v", e)
	}
	for name, want := range map[string]string{
		"StatefulSet policy-service":         `"storageClassName":"fast"`,
		"StatefulSet policy-service-gateway": `"imagePullSecrets":[{"name":"registry"}]`,
		"ServiceMonitor policy-service":      `"team":"ours"`,
		"NetworkPolicy policy-service":       `"port":443`,
		"Service policy-service-balancer":    `"externalTrafficPolicy":"Local"`,
	} {
		if !strings.Contains(string(all[name]), want) {
			t.Errorf("%s has no %s: %s", name, want, all[name])
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "PodDisruptionBudget") { // it would keep the node of the only pod from being drained
			t.Errorf("one pod has a %s", name)
		}
	}
}

// TestChartNetwork: pods of other programs reach a PDP or a gateway by no other port, and these reach DNS, etcd and one another alone.
func TestChartNetwork(t *testing.T) {
	t.Parallel()
	chart, err := charted(t, chartValues)
	must(t, err)
	for _, name := range []string{"policy-service", "policy-service-gateway"} {
		var p struct {
			Spec struct {
				Selector kubeSelector `yaml:"podSelector"`
				Types    []string     `yaml:"policyTypes"`
				Ingress  []struct {
					From []struct {
						PodSelector kubeSelector `yaml:"podSelector"`
					}
					Ports []struct{ Port string }
				}
				Egress []struct {
					To []struct {
						PodSelector kubeSelector `yaml:"podSelector"`
					}
					Ports []struct{ Port string }
				}
			}
		}
		chart.get(t, "NetworkPolicy "+name, &p)
		c := chart.of(t, "StatefulSet", name)
		if diff := diffs.Diff(c.set.Spec.Template.Metadata.Labels, p.Spec.Selector.MatchLabels); diff != "" || !slices.Equal(p.Spec.Types, []string{"Ingress", "Egress"}) {
			t.Errorf("%s: %s", name, diff)
		}
		if in := p.Spec.Ingress; len(in) != 1 || len(in[0].From) != 1 || len(in[0].From[0].PodSelector.MatchLabels) == 0 || len(in[0].Ports) != 1 || in[0].Ports[0].Port != "https" {
			t.Errorf("%s: %+v", name, in)
		}
		var ports []string
		for _, to := range p.Spec.Egress {
			for _, port := range to.Ports {
				ports = append(ports, port.Port)
			}
		}
		want := map[string][]string{"policy-service": {"53", "53", "2379"}, "policy-service-gateway": {"53", "53", "https"}}[name]
		if !slices.Equal(ports, want) {
			t.Errorf("%s reaches %v", name, ports)
		}
	}
	// Prometheus finds the pods, once each.
	var monitor struct {
		Spec struct {
			Selector  kubeSelector
			Endpoints []struct{ Port, Scheme, Path string }
		}
	}
	chart.get(t, "ServiceMonitor policy-service", &monitor)
	c := chart.of(t, "StatefulSet", "policy-service")
	matches := func(s kubeService) bool {
		for key, value := range monitor.Spec.Selector.MatchLabels {
			if s.Metadata.Labels[key] != value {
				return false
			}
		}
		return true
	}
	if e := monitor.Spec.Endpoints; len(e) != 1 || e[0].Port != c.pods.Spec.Ports[0].Name || e[0].Scheme != "https" || e[0].Path != "/metrics" || matches(c.service) || !matches(c.pods) {
		t.Errorf("%+v", monitor)
	}
}
