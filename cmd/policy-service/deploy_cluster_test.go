package main

import (
	"context"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/net/dns/dnsmessage"

	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/judged"
	"policy-service/pdp/pdptest/mcptest"
)

// composed is a terminal in which services of a composition run by the kernel alone, as Docker would run them: with the
// files, the networks and the names that it gives them, and no other.
type composed struct {
	*terminal
	c       composition
	folder  string   // deploy/compose there
	healthy []string // the health check of the image of policy-service
	inside  map[string]bool
	at      map[string]map[string]netip.Addr // by service and network
	phase   int                              // which requests have in their query, for the log of the balancer
}

// openComposed makes networks, and a namespace for each service.
func openComposed(t *testing.T, file string) *composed {
	t.Helper()
	for _, program := range []string{"unshare", "ip", "chroot", "mount", "curl", "openssl", "haproxy"} {
		needProgram(t, program)
	}
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("it needs to be root")
		}
		t.Skip("it makes networks and mounts; run it as root")
	}
	m := &composed{terminal: &terminal{dir: t.TempDir(), address: loopback}, c: readComposition(t, file), inside: map[string]bool{}, at: map[string]map[string]netip.Addr{}}
	m.folder = filepath.Join(m.dir, "cmd/policy-service/deploy/compose")
	m.checkout(t, "cmd/policy-service/deploy", "policies/mcp")
	m.shell = []string{"unshare", "--mount", "--net", "sh", "-c", `set -e; ip link set lo up; mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; exec "$0"`}
	m.open(t, built(t))
	services := slices.Sorted(maps.Keys(m.c.Services))
	for _, s := range services {
		m.at[s] = map[string]netip.Addr{}
		m.must(t, "ip netns add "+s+" && ip -n "+s+" link set lo up")
	}
	for n, name := range slices.Sorted(maps.Keys(m.c.Networks)) {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 62, byte(n), 0}), 24)
		if given := m.c.Networks[name].IPAM.Config; len(given) > 0 {
			prefix = given[0].Subnet
		}
		next := prefix.Addr().Next() // that of the host
		m.must(t, fmt.Sprintf("ip link add br%d type bridge && ip link set br%[1]d up && ip addr add %s/%d dev br%[1]d", n, next, prefix.Bits()))
		for k, s := range services {
			if !slices.Contains(m.c.Services[s].Networks, name) {
				continue
			}
			next = next.Next()
			if m.at[s][name] = next; !prefix.Contains(next) {
				t.Fatalf("%s has no room for %s", prefix, s)
			}
			m.must(t, fmt.Sprintf("ip link add v%dx%d type veth peer name to-%s netns %s && ip link set v%[1]dx%[2]d master br%[1]d up && "+
				"ip -n %[4]s addr add %[5]s/%[6]d dev to-%[3]s && ip -n %[4]s link set to-%[3]s up", n, k, name, s, next, prefix.Bits()))
		}
	}
	m.must(t, "cd "+m.folder)
	t.Cleanup(func() {
		logs, _ := filepath.Glob(filepath.Join(m.folder, "*.log"))
		for _, name := range logs {
			if text, err := os.ReadFile(name); err == nil && t.Failed() {
				t.Logf("%s ends with\n%s", filepath.Base(name), text[max(0, len(text)-2000):])
			}
		}
	})
	return m
}

// contain makes the files of a service, and returns the command that runs something there.
func (m *composed) contain(t *testing.T, name string) string {
	t.Helper()
	s, at := m.c.Services[name], filepath.Join(m.dir, "root", name)
	if !m.inside[name] {
		m.inside[name] = true
		script := "mkdir -p ROOT && mount -t tmpfs tmpfs ROOT && mkdir ROOT/etc ROOT/dev ROOT/proc && mount --rbind /dev ROOT/dev && mount -t proc proc ROOT/proc\n"
		const system = "mkdir ROOT/usr && mount --bind /usr ROOT/usr && for d in bin sbin lib lib64; do ln -s usr/$d ROOT/$d; done\n"
		switch program, _, _ := strings.Cut(s.Image, ":"); program {
		case "policy-service":
			script += "touch ROOT/policy-service && mount --bind " + filepath.Join(built(t), "policy-service") + " ROOT/policy-service\n"
		case "quay.io/coreos/etcd":
			script += system
			for file, tool := range map[string]string{"etcd": "server", "etcdctl": "etcdctl"} {
				script += "touch ROOT/" + file + " && mount --bind " + judged.ProgramOf(t, "etcd", tool) + " ROOT/" + file + "\n"
			}
		case "haproxy":
			script += system
		default:
			t.Fatalf("what is in the image %q?", s.Image)
		}
		for _, v := range s.Volumes {
			part := strings.SplitN(v, ":", 3)
			from := filepath.Join(m.folder, part[0])
			script += fmt.Sprintf("if [ -d %s ]; then mkdir -p ROOT%s; else mkdir -p ROOT%s && touch ROOT%[2]s; fi && mount --bind %[1]s ROOT%[2]s\n", from, part[1], filepath.Dir(part[1]))
			if len(part) == 3 {
				script += "mount -o remount,bind," + part[2] + " ROOT" + part[1] + "\n"
			}
		}
		hosts := "127.0.0.1 localhost\n"
		for other, addresses := range m.at {
			for network, address := range addresses {
				if m.at[name][network].IsValid() {
					hosts += address.String() + " " + other + "\n"
				}
			}
		}
		must(t, os.WriteFile(filepath.Join(m.dir, "hosts-"+name), []byte(hosts), 0o600))
		script += "cp " + filepath.Join(m.dir, "hosts-"+name) + " ROOT/etc/hosts && echo nameserver 127.0.0.11 >ROOT/etc/resolv.conf && mount -o remount,ro ROOT"
		m.must(t, strings.ReplaceAll("set -e\n"+script+"\nset +e", "ROOT", at))
	}
	environment := ""
	for _, key := range slices.Sorted(maps.Keys(s.Environment)) {
		environment += fmt.Sprintf(" %s='%s'", key, s.Environment[key])
	}
	return "env -i PATH=/:/usr/sbin:/usr/bin" + environment + " ip netns exec " + name + " chroot " + at + " "
}

// start starts a service.
func (m *composed) start(t *testing.T, name string) {
	t.Helper()
	s := m.c.Services[name]
	command := m.contain(t, name)
	if s.Image == "policy-service" {
		command += "/policy-service "
	}
	for _, word := range s.Command {
		command += "'" + word + "' "
	}
	m.must(t, command+">>"+name+".log 2>&1 & "+m.pid(name)+"=$!")
}

func (m *composed) pid(name string) string { return "pid_" + strings.ReplaceAll(name, "-", "_") }

// awaits waits until a service is healthy.
func (m *composed) awaits(t *testing.T, name string) {
	t.Helper()
	s := m.c.Services[name]
	check := m.contain(t, name)
	test := s.Healthcheck.Test
	if test == nil {
		test = m.healthy
	}
	check += strings.Join(test[1:], " ")
	m.must(t, "until "+check+" >health.log 2>&1; do kill -0 $"+m.pid(name)+" || break; sleep 0.1; done; kill -0 $"+m.pid(name)+" || { tail -20 "+name+".log; false; }")
}

// up waits until the last that the balancer has seen of a server is not that it is down.
func (m *composed) up(t *testing.T, server string) {
	t.Helper()
	m.must(t, fmt.Sprintf(`while grep -a 'Server %s is' balancer.log | tail -1 | grep -q ' is DOWN'; do sleep 0.1; done`, server))
}

// down waits until the last that the balancer has seen of a server is that it is down.
func (m *composed) down(t *testing.T, server string) {
	t.Helper()
	m.must(t, fmt.Sprintf(`until grep -a 'Server %s is' balancer.log | tail -1 | grep -q ' is DOWN'; do sleep 0.1; done`, server))
}

// again starts a gateway that was killed, once the balancer has seen that.
func (m *composed) again(t *testing.T, gateway string) {
	t.Helper()
	m.down(t, "gateways/"+gateway)
	m.start(t, gateway)
	m.awaits(t, gateway)
}

// gatewaysUp waits until all gateways get requests: a session whose gateway is down goes to another one.
func (m *composed) gatewaysUp(t *testing.T) {
	t.Helper()
	for _, name := range []string{"gateway-0", "gateway-1", "gateway-2"} {
		m.up(t, "gateways/"+name)
	}
}

func (m *composed) kill(t *testing.T, name, signal string) {
	t.Helper()
	m.must(t, "kill -"+signal+" $"+m.pid(name)+"; wait $"+m.pid(name)+"; true")
}

// echoServer is the server behind the gateways: it notes each call in the file calls, and answers "wait" once there is a file go.
func echoServer() {
	s := sdk.NewServer(&sdk.Implementation{Name: "everything", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "echo", Description: "echo"}, func(ctx context.Context, _ *sdk.CallToolRequest, in struct {
		Message string `json:"message"`
	}) (*sdk.CallToolResult, any, error) {
		calls, err := os.OpenFile("calls", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(calls, in.Message)
			_ = calls.Close()
		}
		for in.Message == "wait" && err == nil {
			if _, is := os.Stat("go"); is == nil {
				break
			}
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "Echo: " + in.Message}}}, nil, err
	})
	l, err := net.Listen("tcp", ":"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	// The name by which gateways ask is no loopback name.
	log.Fatal(http.Serve(l, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{Stateless: true})))
}

// nameServer is DNS as Docker has it, with the names and addresses in the file names.
func nameServer() {
	conn, err := net.ListenPacket("udp", "127.0.0.11:53")
	if err != nil {
		log.Fatal(err)
	}
	for b := make([]byte, 1500); ; {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			log.Fatal(err)
		}
		var m dnsmessage.Message
		if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Additionals = true, nil
		q := m.Questions[0]
		names, err := os.ReadFile("names")
		if err != nil {
			log.Fatal(err)
		}
		m.RCode = dnsmessage.RCodeNameError
		for line := range strings.Lines(string(names)) {
			part := strings.Fields(line)
			if part[0]+"." != q.Name.String() {
				continue
			}
			if m.RCode = dnsmessage.RCodeSuccess; q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(part[1]).As4()},
				})
			}
		}
		if answer, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

// named writes what the balancer's DNS says.
func (m *composed) named(t *testing.T) {
	t.Helper()
	text := ""
	for name, addresses := range m.at {
		if address, ok := addresses["inside"]; ok {
			text += name + " " + address.String() + "\n"
		}
	}
	must(t, os.WriteFile(filepath.Join(m.folder, "names.new"), []byte(text), 0o600))
	must(t, os.Rename(filepath.Join(m.folder, "names.new"), filepath.Join(m.folder, "names")))
}

// openCluster types the commands of the comment in cluster.yaml. The sample server is ours, as there is no npm.
func openCluster(t *testing.T) *composed {
	t.Helper()
	m := openComposed(t, "cluster.yaml")
	m.healthy = imageConfig(t, image(t)).Healthcheck.Test
	issuer := mcptest.NewIssuer(t, "https://localhost:8443/mcp", time.Now)
	keys, err := os.ReadFile(issuer.KeysFile(t))
	must(t, err)
	token := issuer.Token(t, mcptest.Claims{"iss": "https://idp.example.com", "client_id": "desktop"})
	text := string(deployed(t, "compose/gateway.yaml"))
	for line, more := range map[string]string{
		"issuer: https://idp.example.com\n": "      jwks_file: /secrets/jwks.json\n",
		"\npdp:\n":                          "  timeout: 1m\n",
	} {
		if !strings.Contains(text, line) {
			t.Fatalf("gateway.yaml has no %q", line)
		}
		text = strings.Replace(text, line, line+more, 1)
	}
	must(t, os.WriteFile(filepath.Join(m.folder, "gateway.yaml"), []byte(text), 0o600))
	echo, err := exec.LookPath("echo-mcp-server")
	must(t, err)
	dns, err := exec.LookPath("name-server")
	must(t, err)
	for line := range strings.Lines(string(deployed(t, "compose/cluster.yaml"))) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "#   ")
		docker, is := strings.CutPrefix(command, "docker compose -f cluster.yaml ")
		up, isUp := strings.CutPrefix(docker, "up --detach --wait")
		run, isRun := strings.CutPrefix(docker, "run --rm --no-deps pdp-0 ")
		look, isExec := strings.CutPrefix(docker, "exec pdp-0 ")
		switch {
		case !ok:
		case !is:
			m.must(t, command)
		case isUp && up == "":
			must(t, os.WriteFile(filepath.Join(m.folder, "keys/jwks.json"), keys, 0o600))
			m.must(t, "PORT="+m.c.Services["tools"].Environment["PORT"]+" ip netns exec tools "+echo+" >tools.log 2>&1 &")
			m.named(t)
			m.must(t, "ip netns exec balancer "+dns+" >dns.log 2>&1 &")
			for _, name := range []string{"pdp-1", "pdp-2", "balancer", "gateway-0", "gateway-1", "gateway-2"} {
				m.start(t, name)
			}
			for _, name := range []string{"pdp-1", "pdp-2", "gateway-0", "gateway-1", "gateway-2"} {
				m.awaits(t, name)
			}
		case isUp:
			for name := range strings.FieldsSeq(up) {
				m.start(t, name)
			}
			for name := range strings.FieldsSeq(up) {
				m.awaits(t, name)
			}
		case isRun:
			m.must(t, m.contain(t, "pdp-0")+"/policy-service "+run)
		case isExec:
			m.must(t, "echo '"+m.contain(t, "pdp-0")+look+"' >tail")
		default:
			t.Fatalf("what does %s do?", command)
		}
	}
	balancer := m.at["balancer"]["outside"].String()
	m.must(t, fmt.Sprintf(`cat >.curlrc <<'EOF'
silent
show-error
cacert = "tls/authority.crt"
connect-to = "localhost:8180:%s:8180"
connect-to = "localhost:8443:%[1]s:8443"
EOF
CURL_HOME=$PWD; export CURL_HOME
echo 'Authorization: Bearer %s' >token; echo "Authorization: Bearer $(cat keys/pdp.key)" >key
until curl -f https://localhost:8180/readyz >health.log 2>&1 && curl -f https://localhost:8443/readyz >health.log 2>&1; do sleep 0.1; done`, balancer, token))
	return m
}

const echoed = `{"subject":{"type":"agent","id":"desktop"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"everything:echo"}}`

// asks sends n evaluations, each over a connection of its own, and returns how many had each status, and which PDPs answered.
func (m *composed) asks(t *testing.T, n int, more string) (statuses string, servers []string) {
	t.Helper()
	m.phase++
	statuses = m.must(t, fmt.Sprintf(`for n in $(seq %d); do curl -o answer -w '%%{http_code}\n' 'https://localhost:8180/access/v1/evaluation?phase=%d.' -H @key -H 'Content-Type: application/json' %s; done | sort | uniq -c | tr -s ' '`, n, m.phase, more))
	return statuses, m.served(t, "pdps", n)
}

// served are the servers of a backend that had the n requests of this phase, by the log of the balancer. That comes a moment
// after the answers.
func (m *composed) served(t *testing.T, backend string, n int) []string {
	t.Helper()
	line := fmt.Sprintf(`%s/\S* \S* [1-9].*[?]phase=%d[.]`, backend, m.phase)
	text := m.must(t, fmt.Sprintf(`until [ "$(grep -ac '%s' balancer.log)" -ge %d ]; do sleep 0.05; done; grep -a '%[1]s' balancer.log`, line, n))
	var all []string
	for _, found := range regexp.MustCompile(` `+backend+`/(\S+) `).FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// rpc sends a message of MCP in a session, and returns status and answer. Session is the headers of the session.
func (m *composed) rpc(t *testing.T, session, message string) string {
	t.Helper()
	return m.must(t, fmt.Sprintf(`curl -o answer -D headers -w '%%{http_code} ' 'https://localhost:8443/mcp?phase=%d.' -H @token -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' `, m.phase)+
		session+` -d '`+message+`'; cat answer`)
}

const callEcho = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"%s"}}}`

// begin begins a session of a legacy client, and returns the header with its id, and its gateway.
func (m *composed) begin(t *testing.T) (header, gateway string) {
	t.Helper()
	said := m.rpc(t, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	found := regexp.MustCompile(`(?mi)^mcp-session-id: ((gateway-\d)\.\S+)`).FindStringSubmatch(m.must(t, "cat headers"))
	if !strings.HasPrefix(said, "200 ") || found == nil {
		t.Fatalf("no session: %s", said)
	}
	header = "-H 'Mcp-Session-Id: " + found[1] + "' -H 'MCP-Protocol-Version: 2025-06-18'"
	if said := m.rpc(t, header, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); !strings.HasPrefix(said, "202 ") {
		t.Fatal(said)
	}
	return header, found[2]
}

func (m *composed) calls(t *testing.T, header, message, want string) {
	t.Helper()
	if said := m.rpc(t, header, fmt.Sprintf(callEcho, message)); !strings.Contains(said, want) {
		t.Errorf("a call: %s, want %s", said, want)
	}
}

// TestComposeCluster runs what compose/cluster.yaml runs, with the files as they stand: three members of etcd, three PDPs, three
// gateways, and the balancer. Requests go on when any of them is killed, and none is sent twice.
func TestComposeCluster(t *testing.T) {
	t.Parallel()
	m := openCluster(t)
	all, two := []string{"pdp-0", "pdp-1", "pdp-2"}, []string{"pdp-0", "pdp-2"}
	ask := "-d '" + echoed + "'"
	for _, name := range all {
		m.up(t, "pdps/"+name)
	}
	// On a busy machine the balancer may take a server for down for a moment: each that is wanted answers in the end, and no other.
	answer := func(t *testing.T, want []string) {
		t.Helper()
		seen := map[string]bool{}
		etcdtest.Eventually(t, fmt.Sprint("each answers of ", want), func() bool {
			statuses, servers := m.asks(t, 12, ask)
			for _, name := range servers {
				seen[name] = true
			}
			if statuses != " 12 200\n" || slices.ContainsFunc(servers, func(name string) bool { return !slices.Contains(want, name) }) {
				t.Fatalf("got %s from %v, want %v", statuses, servers, want)
			}
			return len(seen) == len(want)
		})
	}
	answer(t, all)
	if decided := m.must(t, "sh ./tail"); !strings.Contains(decided, "agent/desktop tool.invoke tool/everything:echo") {
		t.Errorf("on record is %s", decided)
	}

	if said := m.must(t, m.contain(t, "gateway-1")+"/policy-service mcp-gateway doctor --config /etc/mcp-gateway/gateway.yaml"); !strings.HasSuffix(said, "nothing bites\n") {
		t.Errorf("a gateway finds\n%s", said)
	}

	t.Run("large", func(t *testing.T) {
		m.must(t, `printf 'X-Large: %30000s\n' | tr ' ' x >large; printf '{"subject":{"type":"agent","id":"a"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"t"},"context":{"arguments":{"a":"%200000s"}}}' >body`)
		if got, _ := m.asks(t, 3, "-H @large -d @body"); got != " 3 200\n" {
			t.Errorf("got %s: %s", got, m.must(t, "cat answer"))
		}
	})

	t.Run("sessions", func(t *testing.T) {
		m.gatewaysUp(t)
		header, gateway := m.begin(t)
		m.phase++
		for range 6 {
			m.calls(t, header, "hello", "Echo: hello")
		}
		if got := m.served(t, "gateways", 6); !slices.Equal(got, []string{gateway}) {
			t.Errorf("a session of %s was at %v", gateway, got)
		}
		// A stream is passed on before anything comes on it.
		m.must(t, `curl -o stream -D streamed https://localhost:8443/mcp -H @token -H 'Accept: text/event-stream' `+header+` >stream.log 2>&1 & stream=$!
until grep -qi 'content-type: text/event-stream' streamed; do kill -0 $stream || break; sleep 0.05; done; kill $stream`)
		m.kill(t, gateway, "KILL")
		// The one that has the session is gone. None of the answers is an error of the balancer.
		if said := m.rpc(t, header, fmt.Sprintf(callEcho, "hello")); strings.HasPrefix(said, "5") {
			t.Errorf("with %s gone: %s", gateway, said)
		}
		again, other := m.begin(t)
		if other == gateway {
			t.Errorf("a session began at %s, which is gone", gateway)
		}
		m.calls(t, again, "hello", "Echo: hello")
		m.again(t, gateway)
	})

	t.Run("sent once", func(t *testing.T) {
		m.gatewaysUp(t)
		header, gateway := m.begin(t)
		m.must(t, "rm -f go calls")
		// A connection that had a request before.
		m.must(t, `curl -o begun https://localhost:8443/readyz --next --max-time 30 -o waited --cacert tls/authority.crt --connect-to ::`+m.at["balancer"]["outside"].String()+`: -w '%{http_code}' https://localhost:8443/mcp -H @token -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' `+
			header+` -d '`+fmt.Sprintf(callEcho, "wait")+`' >status 2>&1 & asked=$!; until grep wait calls >found 2>&1; do sleep 0.05; done`)
		m.kill(t, gateway, "KILL")
		m.must(t, "wait $asked; touch go")
		if status, calls := m.must(t, "cat status"), m.must(t, "cat calls"); !strings.HasPrefix(status, "502") || calls != "wait\n" {
			t.Errorf("the client hears %s, and the server %q", status, calls)
		}
		m.again(t, gateway)
	})

	t.Run("a PDP is killed", func(t *testing.T) {
		m.gatewaysUp(t)
		header, _ := m.begin(t)
		m.kill(t, "pdp-1", "KILL")
		answer(t, two)
		m.down(t, "pdps/pdp-1")
		answer(t, two)
		for range 4 {
			m.calls(t, header, "hello", "Echo: hello")
		}
	})

	t.Run("a PDP is not ready", func(t *testing.T) {
		m.must(t, "ip -n pdp-1 link set to-state down")
		m.start(t, "pdp-1")
		m.must(t, "until [ \"$(ip netns exec pdp-1 curl -k -o answer -w '%{http_code}' https://127.0.0.1:8180/readyz 2>health.log)\" = 503 ]; do sleep 0.1; done")
		answer(t, two)
		m.must(t, "ip -n pdp-1 link set to-state up")
		m.up(t, "pdps/pdp-1")
		answer(t, all)
	})

	// As the pod of a PDP, which comes back with another address.
	t.Run("a PDP moves", func(t *testing.T) {
		m.kill(t, "pdp-1", "TERM")
		m.down(t, "pdps/pdp-1")
		old := m.at["pdp-1"]["inside"]
		m.at["pdp-1"]["inside"] = netip.MustParseAddr("10.111.112.14")
		m.must(t, fmt.Sprintf("ip -n pdp-1 addr del %s/28 dev to-inside && ip -n pdp-1 addr add %s/28 dev to-inside", old, m.at["pdp-1"]["inside"]))
		m.start(t, "pdp-1")
		m.awaits(t, "pdp-1")
		answer(t, two)
		m.named(t)
		m.up(t, "pdps/pdp-1")
		answer(t, all)
	})

	t.Run("a member of etcd is killed", func(t *testing.T) {
		m.kill(t, "etcd-1", "KILL")
		answer(t, all)
		m.start(t, "etcd-1")
		m.awaits(t, "etcd-1")
		// A program with another certificate is no client of etcd.
		refused, _ := m.run(t, "ip netns exec etcd-0 curl -sS --cacert tls/etcd/ca.crt --cert tls/pdp/tls.crt --key tls/pdp/tls.key https://127.0.0.1:2379/health", patience)
		if strings.Contains(refused, `"health"`) {
			t.Errorf("etcd answers a stranger: %s", refused)
		}
	})

	t.Run("the console", func(t *testing.T) {
		etcdtest.Eventually(t, "one person is at more than one", func() bool { // sessions are in etcd
			m.phase++
			page := fmt.Sprintf("curl -o answer -D headers -w '%%{http_code}\\n' 'https://localhost:8180/console/login?phase=%d.'", m.phase)
			for range 4 {
				if got := m.must(t, page); got != "200\n" {
					t.Fatalf("got %s", got)
				}
			}
			return len(m.served(t, "pdps", 4)) > 1
		})
		// Wrong keys are counted by the address of the client, and not by that of the balancer.
		const login = `curl -o answer -w '%{http_code}\n' -H 'Sec-Fetch-Site: same-origin' -H 'Origin: https://localhost:8180' -d key=wrong https://localhost:8180/console/login`
		if got := m.must(t, "for n in $(seq 16); do "+login+"; done | tail -1"); got != "429\n" {
			t.Errorf("the sixteenth wrong key is answered %s: there are five at each of three", got)
		}
		if got := m.must(t, "ip netns exec gateway-0 "+login); got != "403\n" && got != "401\n" {
			t.Errorf("the first wrong key of another client is answered %s", got)
		}
	})
}
