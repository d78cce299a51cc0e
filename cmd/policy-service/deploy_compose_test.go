package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"policy-service/pdp/pdptest/inside/config"
	"policy-service/pdp/pdptest/inside/mcp"
	"policy-service/pdp/pdptest/inside/server"
	"policy-service/pdp/pdptest/judged"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/port"
)

// composition is what tests look at in a file of deploy/compose. The library of Docker Compose has read it first.
type (
	composition struct {
		Services map[string]composeService
		Networks map[string]struct {
			Internal bool
			IPAM     struct {
				Config []struct{ Subnet netip.Prefix }
			}
		}
	}
	composeService struct {
		Image       string
		Pull        string `yaml:"pull_policy"`
		Extends     struct{ File, Service string }
		User        string
		ReadOnly    bool     `yaml:"read_only"`
		CapDrop     []string `yaml:"cap_drop"`
		Security    []string `yaml:"security_opt"`
		Restart     string
		Grace       time.Duration `yaml:"stop_grace_period"`
		Command     []string
		Networks    []string
		Ports       []string
		Volumes     []string
		Environment map[string]string
		Healthcheck struct{ Test []string }
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	}
)

// loadedCompositions are the files that the library has read: each once.
var loadedCompositions sync.Map

func readComposition(t *testing.T, file string) (c composition) {
	t.Helper()
	found, err := filepath.Glob("deploy/compose/*")
	if err != nil || len(found) != 4 {
		t.Fatalf("some of %v are held by no test (%v)", found, err)
	}
	program := judged.ProgramOf(t, "kubernetes", "manifest")
	load, _ := loadedCompositions.LoadOrStore(file, sync.OnceValue(func() error {
		out, err := exec.Command(program, "compose", "deploy/compose/"+file, "OWNER=1000:1000").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", file, err, out)
		}
		return err
	}))
	must(t, load.(func() error)())
	must(t, yaml.Unmarshal(deployed(t, "compose/"+file), &c))
	for name, s := range c.Services {
		if s.Extends.File != "" {
			c.Services[name] = readComposition(t, s.Extends.File).Services[s.Extends.Service]
		}
	}
	return c
}

// host is where a path of the service's container is on the host, from deploy/compose.
func (s composeService) host(t *testing.T, path string) string {
	t.Helper()
	for _, v := range s.Volumes {
		part := strings.SplitN(v, ":", 3)
		if rest, ok := strings.CutPrefix(path, part[1]); ok && (rest == "" || rest[0] == '/') {
			return part[0] + rest
		}
	}
	t.Fatalf("%s is in none of %v", path, s.Volumes)
	return ""
}

// TestCompose: only the gateway reaches the sample server, only its own port is open, and all are confined.
func TestCompose(t *testing.T) {
	t.Parallel()
	c := readComposition(t, "compose.yaml")
	on := c.confined(t, "gateway")
	if len(c.Services) != 3 || !slices.Equal(on["tools"], []string{"gateway", "tools"}) || !slices.Equal(on["decisions"], []string{"gateway", "pdp"}) ||
		!slices.Equal(on["clients"], []string{"gateway"}) || len(on) != 3 {
		t.Errorf("the networks: %v", on)
	}
	if !c.Networks["tools"].Internal || !c.Networks["decisions"].Internal || c.Networks["clients"].Internal {
		t.Error("only the gateway has a way out, to the issuers")
	}
	if d := c.Services["gateway"].DependsOn; d["pdp"].Condition != "service_healthy" || d["tools"].Condition != "service_started" {
		t.Errorf("%+v", d)
	}
}

// confined holds services to what only they may do, and returns which of them are on each network. One alone has ports.
func (c composition) confined(t *testing.T, open string) (on map[string][]string) {
	t.Helper()
	on = map[string][]string{}
	for name, s := range c.Services {
		for _, n := range s.Networks {
			on[n] = append(on[n], name)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.Security, []string{"no-new-privileges:true"}) || s.Restart == "" {
			t.Errorf("%s: %+v", name, s)
		}
		if s.Image != "" && (s.User != "${OWNER:?}" || s.Grace < stopsWithin) {
			t.Errorf("%s is %q, and may take %v to stop", name, s.User, s.Grace)
		}
		if s.Image != "" && (s.Image == "policy-service") != (s.Pull == "never") {
			t.Errorf("%s runs %s, pulled %s", name, s.Image, s.Pull)
		}
		if (len(s.Ports) > 0) != (name == open) {
			t.Errorf("%s has the ports %q", name, s.Ports)
		}
		for _, v := range s.Volumes {
			if !strings.HasSuffix(v, ":ro") && v != "./data:/data" && v != "./data/"+name+":/data" {
				t.Errorf("%s may write to %s", name, v)
			}
		}
	}
	for _, services := range on {
		slices.Sort(services)
	}
	return on
}

// TestComposeClusterFiles: only the balancer is reached from outside, only PDPs reach etcd, and only with a certificate. The
// gateways have names of their own, and find PDPs through the balancer. TestComposeCluster runs all that.
func TestComposeClusterFiles(t *testing.T) {
	t.Parallel()
	c := readComposition(t, "cluster.yaml")
	want := map[string][]string{
		"outside": {"balancer", "gateway-0", "gateway-1", "gateway-2"},
		"inside":  {"balancer", "gateway-0", "gateway-1", "gateway-2", "pdp-0", "pdp-1", "pdp-2"},
		"state":   {"etcd-0", "etcd-1", "etcd-2", "pdp-0", "pdp-1", "pdp-2"},
		"tools":   {"gateway-0", "gateway-1", "gateway-2", "tools"},
	}
	if diff := cmp.Diff(want, c.confined(t, "balancer")); diff != "" {
		t.Error(diff)
	}
	for name, n := range c.Networks {
		if n.Internal != (name != "outside") {
			t.Errorf("%s is internal: %v", name, n.Internal)
		}
	}
	var pdp server.Config
	_, err := server.ConfigForm.Read(config.Given{File: "deploy/compose/pdp.yaml"}, &pdp)
	must(t, err)
	var members []string
	for name, s := range c.Services {
		switch {
		case strings.HasPrefix(name, "etcd-"):
			e := s.Environment
			members = append(members, e["ETCD_ADVERTISE_CLIENT_URLS"])
			if e["ETCD_NAME"] != name || e["ETCD_ADVERTISE_CLIENT_URLS"] != "https://"+name+":2379" || e["ETCD_CLIENT_CERT_AUTH"] != "true" || e["ETCD_PEER_CLIENT_CERT_AUTH"] != "true" {
				t.Errorf("%s: %v", name, e)
			}
		case strings.HasPrefix(name, "pdp-"):
			etcd := pdp.Cluster.Etcd
			for _, file := range []string{pdp.TLS.CertFile, pdp.TLS.KeyFile, etcd.CAFile, etcd.CertFile, etcd.KeyFile, pdp.Cluster.Secrets, pdp.Data, pdp.Policies} {
				s.host(t, file)
			}
		case strings.HasPrefix(name, "gateway-"):
			var told mcp.Config
			given := config.Given{File: "deploy/compose/gateway.yaml"}
			for key, value := range s.Environment {
				given.Environ = append(given.Environ, key+"="+value)
			}
			if _, err := mcp.Form.Read(given, &told); err != nil || told.Name != name || told.PDP.URL != "https://balancer:8180" || told.PDP.URL != pdp.PublicURL || told.ToolRequests.Keep != mcp.KeepAtPDP {
				t.Errorf("%s: %+v %v", name, told.PDP, err)
			}
			for _, file := range append([]string{told.TLS.CertFile, told.TLS.KeyFile, told.PDP.CAFile, told.PDP.KeyFile}, told.Seal.KeyFiles...) {
				s.host(t, file)
			}
		}
	}
	slices.Sort(members)
	if diff := cmp.Diff(members, pdp.Cluster.Etcd.Endpoints); diff != "" || len(members) != 3 {
		t.Error(diff)
	}
	if inside := c.Networks["inside"].IPAM.Config[0].Subnet.String(); !slices.Equal(pdp.Console.TrustedProxies, []string{inside}) {
		t.Errorf("%v is not %s", pdp.Console.TrustedProxies, inside)
	}
}

// TestComposeConfig: the gateway takes the configuration, which finds the other two, and is found by its clients.
func TestComposeConfig(t *testing.T) {
	t.Parallel()
	c := readComposition(t, "compose.yaml")
	gateway, tools := c.Services["gateway"], c.Services["tools"]
	program, command := parsed(t, gateway.Command)
	file := gateway.host(t, string(program.MCPGateway.Serve.Config))
	var told mcp.Config
	if _, err := mcp.Form.Read(config.Given{File: filepath.Join("deploy/compose", file)}, &told); command != "mcp-gateway serve" || err != nil {
		t.Fatal(command, err)
	}
	for _, name := range append([]string{told.TLS.CertFile, told.TLS.KeyFile, told.PDP.CAFile, told.PDP.KeyFile}, told.Seal.KeyFiles...) {
		gateway.host(t, name)
	}
	upstream := told.Upstreams["everything"]
	if upstream.URL != "http://tools:"+tools.Environment["PORT"]+"/mcp" {
		t.Errorf("the sample server is at %s", upstream.URL)
	}
	if subnet := c.Networks["tools"].IPAM.Config[0].Subnet; len(upstream.AllowNetworks) != 1 || upstream.AllowNetworks[0] != subnet.String() {
		t.Errorf("%v is not %v", upstream.AllowNetworks, subnet)
	}
	if at, err := url.Parse(told.PDP.URL); err != nil || at.Host != "pdp:8180" {
		t.Errorf("the PDP is at %s (%v)", told.PDP.URL, err)
	}
	if at, err := url.Parse(told.Resource); err != nil || gateway.Ports[0] != fmt.Sprintf("127.0.0.1:%s:%s", at.Port(), strings.TrimPrefix(told.Listen, ":")) {
		t.Errorf("clients come to %s, and the port is %s (%v)", told.Resource, gateway.Ports[0], err)
	}
	health := gateway.Healthcheck.Test
	probe, command := parsed(t, health[2:])
	if command != "health" || !slices.Equal(health[:2], []string{"CMD", "/policy-service"}) || probe.Health.URL != "https://127.0.0.1"+told.Listen || string(probe.Health.TLSCert) != told.TLS.CertFile {
		t.Errorf("%q", health)
	}
	pdp, command := parsed(t, imageConfig(t, image(t)).Cmd)
	for _, path := range []string{string(pdp.Serve.Data), string(pdp.Serve.Policies), string(pdp.Serve.TLSCert), string(pdp.Serve.TLSKey)} {
		c.Services["pdp"].host(t, path)
	}
	if command != "serve" {
		t.Error(command)
	}
}

// compose types the commands of the file's comment, but for those of docker: what these would run in a container, it runs
// with the same files beside it, at addresses of the terminal's.
func (m *terminal) compose(t *testing.T) {
	needProgram(t, "openssl")
	c := readComposition(t, "compose.yaml")
	const folder = "cmd/policy-service/deploy/compose"
	_, tools, _ := net.SplitHostPort(port.On(t, m.address))
	issuer := mcptest.NewIssuer(t, "https://"+m.address+":8443/mcp", time.Now)
	// What is elsewhere for a container, and for the test. Addresses of the terminal are written by m.run.
	elsewhere := strings.NewReplacer(
		"pdp:8180", loopback+":8180", "tools:3001", loopback+":"+tools, "localhost:8180", loopback+":8180", "localhost:8443", loopback+":8443",
		"10.111.111.0/28", "127.0.0.0/8",
		"listen: :", "listen: "+loopback+":", "--listen :", "--listen "+loopback+":",
	)
	at := func(service, text string) string {
		text = elsewhere.Replace(text)
		for _, v := range c.Services[service].Volumes {
			part := strings.SplitN(v, ":", 3)
			text = regexp.MustCompile(`(^|[\s\[])`+regexp.QuoteMeta(part[1])+`($|[\s/\]])`).ReplaceAllString(text, "${1}"+part[0]+"${2}")
		}
		return text
	}
	enter := func(command string) string {
		t.Helper()
		shown, alive := m.run(t, command, patience)
		status, _ := m.run(t, "echo $?", patience)
		if !alive || status != "0\n" {
			t.Fatalf("$ %s\n%s", command, shown)
		}
		return shown
	}
	demo := filepath.Join(m.dir, ".mcp-demo")
	enter("PATH=" + demo + "/node_modules/.bin:$PATH; cd " + filepath.Join(m.dir, folder))
	config, err := os.ReadFile("deploy/compose/gateway.yaml")
	must(t, err)
	text := strings.ReplaceAll(at("gateway", string(config)), loopback, m.address)
	text = strings.Replace(text, "https://idp.example.com", issuer.URL, 1)
	must(t, os.WriteFile(filepath.Join(m.dir, folder, "gateway.yaml"), []byte(text), 0o600))
	var tail string
	for line := range strings.Lines(string(deployed(t, "compose/compose.yaml"))) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "#   ")
		run, once := strings.CutPrefix(command, "docker compose run --rm --no-deps pdp ")
		look, inside := strings.CutPrefix(command, "docker compose exec pdp /")
		switch {
		case !ok:
		case command == "docker compose up --detach --wait":
			enter("policy-service " + at("pdp", strings.Join(imageConfig(t, image(t)).Cmd, " ")) + " >pdp.log 2>&1 &")
			m.await(t, m.address+":8180")
			enter("PORT=" + tools + " sh -c 'cd " + demo + " && exec " + strings.Join(c.Services["tools"].Command, " ") + "' >tools.log 2>&1 &")
			enter("policy-service " + at("gateway", strings.Join(c.Services["gateway"].Command, " ")) + " >gateway.log 2>&1 &")
			m.await(t, m.address+":8443")
			mcptest.Until(t, "the tools are there, which the gateway does not need to be", func() bool {
				conn, err := net.Dial("tcp", loopback+":"+tools)
				if err == nil {
					_ = conn.Close()
				}
				return err == nil
			})
			enter("policy-service " + at("gateway", strings.Join(c.Services["gateway"].Healthcheck.Test[2:], " ")))
		case once:
			enter("policy-service " + at("pdp", run))
		case inside:
			tail = at("pdp", look)
		default:
			enter(command)
		}
	}
	client := "NODE_EXTRA_CA_CERTS=tls/tls.crt mcp-inspector --cli https://" + loopback + `:8443/mcp --header "Authorization: Bearer ` +
		issuer.Token(t, mcptest.Claims{"client_id": "desktop"}) + `" --method `
	if said := enter(client + "tools/call --tool-name echo --tool-arg message=hello"); !strings.Contains(said, `"Echo: hello"`) {
		t.Error(said)
	}
	if listed := enter(client + "tools/list"); !strings.Contains(listed, `"name": "get-sum"`) || strings.Contains(listed, `"name": "get-env"`) {
		t.Errorf("listed is\n%s", listed)
	}
	if log := enter(tail + " --decision allow"); !strings.Contains(log, "agent/desktop tool.invoke tool/everything:echo") {
		t.Errorf("on record is\n%s", log)
	}
}
