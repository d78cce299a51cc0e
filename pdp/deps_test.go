package pdp_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The dependency promises of the architecture, a line each with who relies on it. A line that names a package or file
// that does not exist fails, so that a rename cannot switch a promise off; what comes later gets its line when it comes.

const module = "policy-service"

// rooms says which packages of ours each package of ours may import, outside its tests.
var rooms = []struct{ room, may, why string }{
	{"schemas", "", "everybody reads it, so it stands below everybody"},
	{"policies", "", "policies are data; a bundle must not need code"},
	{"evaluation", "schemas", "PEP authors import this package, and get a vocabulary, not a server"},
	{"evaluation/authzenclient", "evaluation obligations", "PEP authors import this package, and get HTTP, the vocabulary and their half of obligations, nothing else of ours"},
	{"evaluation/coaz", "evaluation", "a mapping becomes questions in any PEP: what brings the message and what asks the PDP, the PEP chooses"},
	{"evaluation/coaz/sdkpep", "evaluation evaluation/authzenclient evaluation/coaz obligations", "authors of MCP servers import this package: a server is its own PEP without any gateway around it"},
	{"evaluation/coaz/sdkpep/example", "evaluation evaluation/authzenclient evaluation/coaz evaluation/coaz/sdkpep", "it shows what a server needs of ours, and uses nothing else"},
	{"obligations", "evaluation schemas", "PEP authors import this package: a PEP does obligations without being able to decide"},
	{"pdp/cedartext", "", "a text is laid out without knowing what it means, and where it is"},
	{"pdp/internal/outline", "pdp/internal/bundle", "what policies can name is read from a bundle, and nothing that decides depends on it"},
	{"pdp/lsp", "evaluation pdp pdp/cedartext pdp/internal/places", "an editor is told what the product as a library says, and nothing else; places count as in its messages"},
	{"pdp", "pdp/cedartext pdp/internal/bundle pdp/internal/document pdp/internal/engine pdp/internal/lint pdp/internal/outline obligations evaluation", "the product as a library: whoever embeds a PDP gets no process around it"},
	{"pdp/internal/document", "pdp/spelling", "what is wrong with a document is known before anybody knows what it means"},
	{"pdp/internal/places", "pdp/cedartext pdp/spelling", "where something stands in a text is known without knowing what it means"},
	{"pdp/internal/access", "pdp/internal/document", "a declaration becomes policies: it knows nothing of the other files of a bundle"},
	{"pdp/internal/bundle", "obligations evaluation schemas pdp/internal/access pdp/internal/document pdp/internal/places pdp/plainfile pdp/spelling", "what is loaded is checked before anybody asks: it knows no questions"},
	{"pdp/internal/engine", "pdp/internal/bundle obligations evaluation", "a decision is a function of a question and a bundle: it knows nothing of clocks, records and approvals"},
	{"pdp/internal/lint", "pdp/cedartext pdp/internal/access pdp/internal/bundle pdp/internal/document pdp/internal/places obligations evaluation pdp/spelling", "it reads a bundle and returns warnings: nothing that decides depends on it"},
	{"pdp/approval", "obligations evaluation pdp/ledger", "it keeps what people said: who may decide, what is asked and how that is recorded, it is told"},
	{"pdp/ledger", "pdp/boltfile pdp/keyedmutex pdp/plainfile", "it keeps the items of any owner: what an item means, and where the log is, it is told"},
	{"pdp/boltfile", "pdp/boltfile/pages pdp/plainfile", "it knows no more of a file than that bbolt reads it"},
	{"pdp/boltfile/pages", "", "whoever does not trust a file reads it so: the verifier, and boltfile before bbolt opens one"},
	{"pdp/plainfile", "", "it opens and replaces any file, whatever is in it"},
	{"pdp/datakey", "pdp/plainfile", "a secret key is kept without knowing what it is for"},
	{"pdp/keyedmutex", "", "a lock knows nothing of what it guards"},
	{"pdp/latency", "", "how long things took is counted without knowing what things"},
	{"pdp/signing", "pdp/plainfile", "keys and signatures know nothing of what is signed"},
	{"pdp/approval/broker", "evaluation obligations pdp pdp/approval pdp/approval/webhook pdp/datakey pdp/decisionlog pdp/decisionlog/mask pdp/decisionlog/recorder pdp/decisionlog/verify pdp/server/auth pdp/signing pdp/visible", "what an approval is worth, and who may decide about it, is decided without knowing how it was asked for: the server brings callers, keys and URLs. Of the server it knows auth alone, which says who a caller is and what it may do, and has no routes"},
	{"pdp/approval/webhook", "pdp/plainfile", "other systems are told what happened by something that does not know what did; receivers import it to verify"},
	{"pdp/server/door", "evaluation pdp/server/auth pdp/server/listener", "requests are let in without knowing what for: that is for the routes"},
	{"pdp/server/listener", "pdp/plainfile pdp/server/auth", "whatever is served: it knows connections and certificates, and no request. The gateway listens by it as well"},
	{"pdp/server/auth", "evaluation pdp/plainfile", "who asks is found out without knowing what for"},
	{"pdp/decisionlog", "evaluation pdp/boltfile pdp/boltfile/pages pdp/decisionlog/index pdp/decisionlog/journal pdp/plainfile", "it keeps what it is given: who decides and who serves are not its business"},
	{"pdp/decisionlog/index", "pdp/boltfile pdp/boltfile/pages", "it knows sequences and terms, and nothing else of the log, so that no answer can depend on it"},
	{"pdp/decisionlog/journal", "pdp/plainfile", "what is durable first knows nothing of what it is, and of the log that it is filled into"},
	{"pdp/decisionlog/export", "pdp/decisionlog", "it writes out what a snapshot shows its reader, and so can show nobody more"},
	{"pdp/decisionlog/report", "evaluation pdp/approval pdp/decisionlog pdp/decisionlog/export", "it counts what records say, and what an approval's steps are counted as its owner says"},
	{"pdp/decisionlog/verify", "pdp/boltfile/pages pdp/decisionlog pdp/decisionlog/export", "a verifier that shares code with the writer shares its mistakes: of the log it uses constants, which its own test holds it to, and it reads files without what wrote them"},
	{"pdp/decisionlog/mask", "evaluation", "what a secret is, is told by a request alone"},
	{"pdp/decisionlog/recorder", "evaluation pdp pdp/decisionlog pdp/decisionlog/mask", "what goes on record is known without knowing how it was asked"},
	{"pdp/httpclient", "", "how a running server is spoken to is known in one place, without knowing what about"},
	{"pdp/decisionlog/remote", "pdp/httpclient pdp/decisionlog pdp/decisionlog/export pdp/decisionlog/report", "it reads over HTTP what the log reads from files, and says it in the log's own types"},
	{"pdp/approval/inbox", "pdp/httpclient", "it is at the other end of the line from the store, and may be of another version: they share nothing but HTTP"},
	{"pdp/mcp/internal/rpc", "", "what a message is, is known without MCP, HTTP or a policy"},
	{"pdp/mcp/internal/era", "pdp/mcp/internal/rpc", "a message of one era becomes one of the other by its bytes alone"},
	{"pdp/seal", "pdp/plainfile", "what is sealed it does not know"},
	{"pdp/mcp/internal/identity", "evaluation pdp/server/auth", "who asks is found out without knowing what for"},
	{"pdp/mcp/internal/upstream", "pdp/mcp/internal/era pdp/mcp/internal/rpc pdp/plainfile pdp/visible", "it sends what it is given: whether it may be sent, others have decided"},
	{"pdp/mcp/internal/arguments", "evaluation pdp/visible", "whether arguments fit a schema is known without knowing whose they are, and what becomes of the call"},
	{"pdp/mcp/internal/rates", "", "how often somebody may ask is counted without knowing who it is, and what is asked"},
	{"pdp/mcp/lock", "evaluation pdp/plainfile pdp/visible", "what was accepted is kept and compared without a server, and without knowing what follows from a difference"},
	{"pdp/mcp/internal/people", "evaluation/authzenclient", "what people say is told to who waits for it, without knowing what they were asked, and what follows"},
	{"pdp/mcp/internal/drift", "pdp/mcp/lock pdp/visible", "what is told once, and for how long, is known without a server"},
	{"pdp/mcp/internal/flights", "pdp/mcp/internal/rpc", "what a client can give up is known by its id, whatever it is"},
	{"pdp/mcp/internal/reply", "pdp/mcp/internal/rpc", "how an answer goes back to a client is known without knowing what is answered"},
	{"pdp/mcp/internal/crowd", "pdp/mcp/internal/identity pdp/mcp/internal/rpc pdp/mcp/internal/turn", "who listens is told what others say, without knowing what it is about"},
	{"pdp/mcp/internal/requests", "", "who takes what was requested is settled once, without knowing what it is, and who may"},
	{"pdp/mcp/internal/turn", "", "how many want one thing at once is settled without knowing who they are, and what they want"},
	{"pdp/mcp/internal/traces", "pdp/mcp/internal/rpc", "where a trace goes on is known without knowing what is done in it"},
	{"pdp/mcp/internal/ask", "evaluation evaluation/authzenclient evaluation/coaz obligations pdp/mcp/internal/era pdp/mcp/internal/identity pdp/mcp/internal/rpc pdp/mcp/lock", "questions and refusals are made without knowing how a message came, and where it goes"},
	{"pdp/mcp", "evaluation evaluation/authzenclient evaluation/coaz obligations pdp/approval/webhook pdp/mcp/internal/arguments pdp/mcp/internal/ask pdp/mcp/internal/drift pdp/mcp/internal/era pdp/mcp/internal/gate pdp/mcp/internal/identity pdp/mcp/internal/rates pdp/mcp/internal/rpc pdp/mcp/internal/upstream pdp/mcp/lock pdp/plainfile pdp/seal pdp/server/auth pdp/server/config pdp/spelling pdp/visible", "the gateway as a library: it asks a PDP by HTTP, wherever that is, and knows neither its policies nor its process"},
	{"pdp/mcp/internal/gate", "evaluation evaluation/authzenclient pdp/mcp/internal/arguments pdp/mcp/internal/ask pdp/mcp/internal/crowd pdp/mcp/internal/drift pdp/mcp/internal/era pdp/mcp/internal/flights pdp/mcp/internal/identity pdp/mcp/internal/people pdp/mcp/internal/rates pdp/mcp/internal/reply pdp/mcp/internal/requests pdp/mcp/internal/rpc pdp/mcp/internal/traces pdp/mcp/internal/turn pdp/mcp/internal/upstream pdp/mcp/lock pdp/mcp/wire pdp/seal pdp/server/auth", "a message goes its way without knowing where anybody is, or what was configured"},
	{"pdp/mcp/mcptest", "pdp/pdptest/lies pdp/pdptest/npm", "partners of a gateway for tests, in nobody's binary: what they would share with it they could not find fault with"},
	{"pdp/mcp/wire", "evaluation pdp/visible", "a gateway sends these messages from outside our server, so they know neither the server nor the store"},
	{"pdp/mcp/toolschema", "evaluation pdp/visible", "a schema is made of definitions alone: where they come from, and who asks by it, it is told"},
	{"pdp/console/page", "pdp/visible", "a page is a function of what it shows: it knows no HTTP, no session and no clock"},
	{"pdp/console", "pdp/approval/inbox pdp/console/page pdp/httpclient pdp/plainfile pdp/seal pdp/server/auth", "its pages are made of what the HTTP API answers to whoever looks at them: it reads no store, and knows no PDP"},
	{"pdp/visible", "", "text is made harmless without knowing for what screen"},
	{"pdp/visible/hostile", "", "tests of whatever shows text to people read it, in nobody's binary"},
	{"pdp/spelling", "", "how far apart two names are: it knows nothing of what they name"},
	{"pdp/when", "", "how people write a time: it knows no clock, and nothing of what happened then"},
	{"pdp/server/config", "pdp/plainfile pdp/spelling pdp/when", "it reads a file into any struct: what the keys mean, their program knows"},
	{"pdp/server/sink", "pdp/decisionlog pdp/server/telemetry", "it hands on what the log has: which sinks there are, it is told"},
	{"pdp/server/telemetry", "obligations evaluation pdp/approval pdp/decisionlog pdp/server/auth", "it counts by the words of those who act, and serves nothing: it knows no route and no server"},
	{"pdp/server/approvals", "evaluation pdp/approval pdp/approval/broker pdp/keyedmutex pdp/mcp/wire pdp/server/auth pdp/server/door", "approval requests are served by something that decides nothing: it knows the broker and no PDP"},
	{"pdp/server/audit", "evaluation pdp/decisionlog pdp/decisionlog/export pdp/decisionlog/mask pdp/decisionlog/report pdp/keyedmutex pdp/server/auth pdp/server/door pdp/server/telemetry pdp/when", "the log is served by something that cannot decide: it knows no PDP and no approvals"},
	{"pdp/server", "pdp/approval pdp/approval/broker pdp/approval/webhook pdp/console pdp/datakey pdp/decisionlog pdp/decisionlog/mask pdp/decisionlog/recorder pdp/decisionlog/verify pdp/server/approvals pdp/server/audit pdp/server/auth pdp/server/config pdp/server/door pdp/server/listener pdp/server/sink pdp/server/telemetry pdp/signing pdp obligations evaluation schemas policies pdp/plainfile", "the process knows the library, never the other way round"},
	{"pdp/server/floor", "", "it is what our server is measured beside: anything of ours in it would hide what ours costs"},
	{"pdp/server/doctor", "pdp/approval pdp/approval/broker pdp/decisionlog pdp/plainfile pdp/server pdp/server/auth pdp", "it looks at what a server would meet, and asks each owner whether it can be used"},
	{"pdp/pdptest", "pdp/server pdp/server/auth pdp evaluation schemas policies", "a real server for tests, in nobody's binary"},
	{"pdp/console/oidctest", "", "a provider for tests, in nobody's binary: what it would share with its client it could not find fault with"},
	{"pdp/console/browsertest", "", "a browser for tests of any page, in nobody's binary: it knows none of ours"},
	{"pdp/pdptest/lies", "", "clients and gateways are held to it, so it must not share a reading with them"},
	{"pdp/pdptest/memorydisk", "", "tests of every package that writes to a disk mount one, so it must not import any"},
	{"pdp/pdptest/npm", "", "tests of every package compare with programs of others, so it must not import any"},
	{"pdp/pdptest/organisation", "", "the library's own benchmarks import it, so it must not import the library"},
	{"pdp/pdptest/crashedlog", "pdp/decisionlog", "tests of every package that reads a log want one that crashed, and it is made by the log itself"},
	{"pdp/pdptest/clock", "", "tests of every package have one, so it must not import any"},
	{"pdp/pdptest/toolaccess", "", "servers are held to how it reads a declaration, so it must not share a reading with what makes policies of one"},
	{"pdp/pdptest/bound", "", "benchmarks of every package import it, so it must not import any"},
	{"pdp/pdptest/night", "", "tests of every package ask it how much of them runs, so it must not import any"},
	{"conformance", "conformance/internal/casefile conformance/internal/wire evaluation", "it judges any PDP from outside, so it must not know ours"},
	{"conformance/internal/casefile", "", "how a case is written is known without knowing what it judges"},
	{"conformance/internal/wire", "", "how a suite sends and reads is known without knowing what it judges"},
	{"conformance/internal/casetest", "", "how the pages of a suite are held to its cases, in nobody's binary"},
	{"conformance/pep", "conformance conformance/internal/casefile conformance/internal/wire", "it judges any PEP from outside, so it must not know how ours reads a mapping"},
	{"conformance/load", "pdp/latency", "it measures any server from outside, so it must not know ours; what takes time is nothing to pdp/latency"},
	{"cmd/policy-service/internal/cli", "evaluation pdp/visible", "how a command speaks with who runs it: it knows no command"},
	{"cmd/policy-service/internal/bundledir", "cmd/policy-service/internal/cli pdp", "a bundle's directory as commands take it"},
	{"cmd/policy-service/internal/author", "cmd/policy-service/internal/bundledir cmd/policy-service/internal/cli evaluation pdp pdp/decisionlog pdp/decisionlog/export pdp/decisionlog/recorder pdp/latency pdp/lsp pdp/mcp/wire pdp/plainfile pdp/spelling pdp/visible pdp/when", "who writes policies needs no server, no gateway, and keeps no log: eval reads a record out of a file and knows a misspelt tenant, and access import a message"},
	{"cmd/policy-service/internal/process", "cmd/policy-service/internal/cli pdp/plainfile pdp/server/config pdp/server/doctor", "what every process has that runs until a signal, whatever it serves"},
	{"cmd/policy-service/internal/gateway", "cmd/policy-service/internal/bundledir cmd/policy-service/internal/cli cmd/policy-service/internal/process evaluation pdp pdp/decisionlog pdp/mcp pdp/plainfile pdp/server pdp/server/auth pdp/server/config pdp/server/doctor pdp/server/listener pdp/server/telemetry", "flags, signals, address and telemetry around the gateway, and the PDP that may be in its process"},
	{"cmd/policy-service/internal/tools", "cmd/policy-service/internal/bundledir cmd/policy-service/internal/cli cmd/policy-service/internal/gateway evaluation evaluation/coaz obligations pdp pdp/mcp pdp/mcp/lock pdp/mcp/toolschema pdp/plainfile pdp/server/config pdp/spelling", "what is behind a gateway, and what it asks, is looked at with its own code, and nothing is forwarded; configuration, lock and policies are held against each other here, because neither the gateway nor the PDP knows the other's"},
	{"cmd/policy-service/internal/operate", "cmd/policy-service/internal/bundledir cmd/policy-service/internal/cli cmd/policy-service/internal/process conformance conformance/pep pdp pdp/server pdp/server/auth pdp/server/config pdp/server/doctor pdp/signing schemas", "flags, signals and memory around the server; what others do with a log or an approval is not its business"},
	{"cmd/policy-service/internal/connection", "cmd/policy-service/internal/cli pdp/httpclient pdp/server", "how a running server is reached, whatever it is asked; of the server it uses the name of a variable"},
	{"cmd/policy-service/internal/approve", "cmd/policy-service/internal/cli cmd/policy-service/internal/connection evaluation pdp/approval/inbox pdp/httpclient pdp/visible pdp/when", "an approver has a server's URL and a credential, and nothing of ours besides"},
	{"cmd/policy-service/internal/audit", "cmd/policy-service/internal/cli cmd/policy-service/internal/connection pdp pdp/approval pdp/decisionlog pdp/decisionlog/export pdp/decisionlog/remote pdp/decisionlog/report pdp/decisionlog/verify pdp/httpclient pdp/visible pdp/when", "an auditor reads a log where it lies or over HTTP, and needs no server in this process"},
	{"cmd/policy-service", "cmd/policy-service/internal/approve cmd/policy-service/internal/audit cmd/policy-service/internal/author cmd/policy-service/internal/cli cmd/policy-service/internal/gateway cmd/policy-service/internal/operate cmd/policy-service/internal/tools", "one command line on top of all of it"},
}

// owners says where alone something from outside may be imported: packages, or a file. The longest line counts.
var owners = []struct{ path, where, why string }{
	{"github.com/labstack/echo", "pdp/server pdp/server/approvals pdp/server/audit pdp/server/door pdp/server/floor", "v4's support ends on 2026-12-31: a move to v5 touches the server, its rooms, and the floor it is measured by"},
	{"golang.org/x/oauth2", "pdp/console", "people log in by a provider at the console alone: everybody else brings a credential"},
	{"go.opentelemetry.io/otel/sdk", "pdp/server/telemetry", "the process chooses where telemetry goes, libraries only speak the API"},
	{"go.opentelemetry.io/otel/exporters", "pdp/server/telemetry", "as the SDK"},
	{"go.opentelemetry.io/contrib", "pdp/server/telemetry", "as the SDK"},
	{"github.com/prometheus", "pdp/server/telemetry", "what is counted is counted by the OpenTelemetry API; how it is shown is the process's business"},
	{"go.etcd.io/bbolt", "pdp/boltfile pdp/decisionlog pdp/decisionlog/index pdp/ledger", "it panics on a damaged file: only who knows that may open one, and each has a file of its own"},
	{"cel.dev/cel-go", "evaluation/coaz", "what reads CEL weighs 10 MB, and must be bounded: only mappings are written in it"},
	{"github.com/santhosh-tekuri/jsonschema", "pdp/internal/bundle pdp/mcp/internal/arguments pdp/pdptest", "it fetches what schemas refer to, cannot be stopped, and quotes values: who reads schemas of others takes of it what is safe with them"},
	{"github.com/modelcontextprotocol/go-sdk", "evaluation/coaz/sdkpep evaluation/coaz/sdkpep/example", "our messages are held to it in tests, and who sends them brings their own: only a server that is made with it is its PEP by it"},
	{"github.com/chromedp", "pdp/console/browsertest", "it starts browsers: for tests alone, and they speak of people and pages rather than of its protocol"},
	{"github.com/cedar-policy/cedar-go", "pdp/internal/access pdp/internal/bundle pdp/internal/engine pdp/internal/lint pdp/internal/outline", "one place turns requests into Cedar, and it is the fail-safe one: importers of pdp see none of it"},
	{"github.com/cedar-policy/cedar-go/x/exp", "", "experimental; its batch evaluator drops forbids"},
	{"github.com/cedar-policy/cedar-go/x/exp/ast", "pdp/internal/bundle/ast.go pdp/internal/bundle/policysteps.go", "experimental: a change upstream touches two files"},
	{"github.com/cedar-policy/cedar-go/x/exp/schema", "pdp/internal/bundle/schema.go pdp/internal/bundle/schemafiles.go pdp/internal/bundle/schemasize.go", "experimental: a change upstream touches three files"},
}

// heavy says what a package must not bring along, directly or through others.
var heavy = []struct{ room, never, why string }{
	{"schemas", "net/http", "embedded files, read by PEPs too"},
	{"evaluation", "net/http", "PEP authors import this package: no HTTP"},
	{"evaluation", "github.com/cedar-policy", "PEP authors import this package: no Cedar"},
	{"evaluation", "go.etcd.io/bbolt", "PEP authors import this package: no storage"},
	{"evaluation", "go.opentelemetry.io", "PEP authors import this package: no telemetry"},
	{"evaluation", "github.com/fsnotify/fsnotify", "PEP authors import this package: no file watching"},
	{"evaluation/coaz", "net/http", "questions are pure values: who asks them brings the HTTP"},
	{"evaluation", "cel.dev/cel-go", "PEP authors import this package: no expressions"},
	{"obligations", "net/http", "PEP authors import this package: no HTTP"},
	{"obligations", "github.com/cedar-policy", "PEP authors import this package: no Cedar"},
	{"obligations", "go.etcd.io/bbolt", "PEP authors import this package: no storage"},
	{"obligations", "go.opentelemetry.io", "PEP authors import this package: no telemetry"},
	{"evaluation/authzenclient", "github.com/cedar-policy", "a PEP asks, it does not decide: no Cedar"},
	{"evaluation/authzenclient", "github.com/labstack", "a PEP brings its own web framework, or none"},
	{"evaluation/authzenclient", "go.etcd.io/bbolt", "a PEP keeps nothing"},
	{"evaluation/authzenclient", "cel.dev/cel-go", "a PEP that needs no mapping does not carry what reads one"},
	{"evaluation/authzenclient", "go.opentelemetry.io", "a PEP's telemetry is its own: it wraps the http.Client it gives us"},
	{"evaluation/coaz/sdkpep", "github.com/cedar-policy", "an MCP server asks, it does not decide: no Cedar"},
	{"evaluation/coaz/sdkpep", "go.etcd.io/bbolt", "an MCP server that is a PEP keeps nothing of ours"},
	{"evaluation/coaz/sdkpep", "github.com/labstack", "the SDK serves HTTP: no web framework of ours"},
	{"pdp/mcp/wire", "net/http", "its messages are pure values: HTTP is for who sends them"},
	{"pdp/mcp/wire", "go.etcd.io/bbolt", "it shows approval requests without knowing where they are kept"},
	{"pdp", "github.com/labstack", "a PDP inside another program brings no web framework"},
	{"pdp", "go.opentelemetry.io/otel/sdk", "a PDP inside another program uses that program's telemetry"},
	{"cmd/policy-service/internal/author", "github.com/labstack", "who writes policies needs no server"},
	{"cmd/policy-service", "github.com/chromedp", "what starts a browser is in nobody's binary"},
	{"pdp/decisionlog/recorder", "github.com/labstack", "domain code lives in no package that serves"},
	{"pdp/approval/broker", "github.com/labstack", "domain code lives in no package that serves"},
	{"conformance", "github.com/cedar-policy", "it judges PDPs that know nothing of Cedar"},
	{"conformance/pep", "github.com/modelcontextprotocol/go-sdk", "it sends messages that no client would send"},
	{"conformance/pep", "cel.dev/cel-go", "it judges how mappings are read, and so reads none"},
	{"conformance/load", "github.com/cedar-policy", "it measures PDPs that know nothing of Cedar"},
}

// notYet are paths above that nothing but tests imports yet, with what brings them. Any other must be in use, or it is misspelt.
var notYet = map[string]string{}

func TestRooms(t *testing.T) {
	may := map[string]string{}
	for _, r := range rooms {
		may[r.room] = r.may
		for _, name := range append(strings.Fields(r.may), r.room) {
			if !isRoom(name) {
				t.Errorf("there is no package %s; it was renamed, or comes later: correct the line of %s (%s)", name, r.room, r.why)
			}
		}
	}
	for _, i := range imports(t) {
		allowed, listed := may[i.room()]
		if !listed {
			t.Errorf("no line of rooms says what package %s may import: add one, with its reason", i.room())
		}
		if ours, isOurs := strings.CutPrefix(i.path, module+"/"); isOurs && !slices.Contains(strings.Fields(allowed), ours) {
			t.Errorf("%s imports %s, but %s may import only [%s]: %s", i.file, i.path, i.room(), allowed, why(i.room()))
		}
	}
}

func TestOwners(t *testing.T) {
	for _, o := range owners {
		for _, where := range strings.Fields(o.where) {
			if !isRoom(where) && !isFile(where) {
				t.Errorf("there is no %s, which may import %s: correct this line (%s)", where, o.path, o.why)
			}
		}
		checkUse(t, o.path)
	}
	for _, i := range imports(t) {
		longest := -1
		for n, o := range owners {
			if within(i.path, o.path) && (longest < 0 || len(o.path) > len(owners[longest].path)) {
				longest = n
			}
		}
		if longest < 0 {
			continue
		}
		o := owners[longest]
		if where := strings.Fields(o.where); !slices.Contains(where, i.file) && !slices.Contains(where, i.room()) {
			t.Errorf("%s imports %s, which may be imported by %s only: %s", i.file, i.path, cmp.Or(o.where, "tests"), o.why)
		}
	}
}

func TestHeavy(t *testing.T) {
	brings := closure(t)
	for _, h := range heavy {
		all, exists := brings[module+"/"+h.room]
		if !exists {
			t.Errorf("there is no package %s; it was renamed, or comes later: correct this line (%s)", h.room, h.why)
		}
		for _, p := range all {
			if within(p, h.never) {
				t.Errorf("%s brings %s along: %s", h.room, p, h.why)
			}
		}
		checkUse(t, h.never)
	}
}

func TestTopLevel(t *testing.T) {
	fixed := strings.Fields("cmd pdp evaluation obligations schemas policies conformance go.mod go.sum Makefile README.md LICENSE")
	ignored := []string{"bin"} // what make build makes, ignored by git
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, e := range entries {
		found[e.Name()] = true
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(slices.Concat(fixed, ignored), e.Name()) {
			t.Errorf("%s stands at the top of the repository, which is fixed: put it into one of the rooms", e.Name())
		}
	}
	for _, name := range fixed {
		if !found[name] {
			t.Errorf("%s is missing at the top of the repository", name)
		}
	}
}

// checkUse fails where nothing imports p, which is what a misspelt line looks like, and where notYet is out of date.
func checkUse(t *testing.T, p string) {
	t.Helper()
	used := slices.ContainsFunc(imports(t), func(i imported) bool { return within(i.path, p) })
	by, waits := notYet[p]
	switch {
	case used && waits:
		t.Errorf("%s is imported now (%s): delete its line of notYet", p, by)
	case !used && !waits:
		t.Errorf("nothing imports %s: the line is misspelt, or no longer needed", p)
	}
}

// within says whether package p is at top or below it: "github.com/a/b/v4" is below "github.com/a/b".
func within(p, top string) bool { return p == top || strings.HasPrefix(p, top+"/") }

func why(room string) string {
	for _, r := range rooms {
		if r.room == room {
			return r.why
		}
	}
	return ""
}

func isFile(name string) bool {
	info, err := os.Stat(filepath.Join("..", name))
	return err == nil && info.Mode().IsRegular()
}

func isRoom(name string) bool {
	files, _ := filepath.Glob(filepath.Join("..", name, "*.go"))
	return len(files) > 0
}

// imported is one import in one file outside the tests, the file's name from the top of the repository.
type imported struct{ file, path string }

func (i imported) room() string { return path.Dir(i.file) }

// imports are read from the text of every file, so that a build tag hides none.
func imports(t *testing.T) []imported {
	t.Helper()
	all, err := readImports()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var readImports = sync.OnceValues(func() (all []imported, err error) {
	err = walkSources(func(name string) error {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all = append(all, imported{name, p})
		}
		return nil
	})
	return all, err
})

// walkSources calls visit with the name of every Go file outside the tests, from the top of the repository.
func walkSources(visit func(name string) error) error {
	return fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		hidden := name != "." && strings.HasPrefix(entry.Name(), ".")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		return visit(name)
	})
}

// closure is, for every package of ours, all that it brings along. It asks the go command, which alone knows.
func closure(t *testing.T) map[string][]string {
	t.Helper()
	if !isFile("go.mod") { // looked at so that a cached result of this test does not outlive a change of it
		t.Fatal("no go.mod in the directory above")
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Deps", "./...")
	list.Dir = ".."
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	brings := map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Deps       []string
		}
		if err := decoder.Decode(&p); err == io.EOF {
			return brings
		} else if err != nil {
			t.Fatal(err)
		}
		brings[p.ImportPath] = p.Deps
	}
}

// closed names the types whose exported fields only these rooms may name. Such a type has another name outside of its
// own package, by which everybody can reach the fields.
var closed = []struct{ name, rooms, why string }{
	{"pdp/internal/bundle.Bundle", "pdp pdp/internal/bundle pdp/internal/engine pdp/internal/lint pdp/internal/outline",
		"whoever embeds a PDP has a bundle to hold and to name, and nothing of how it decides"},
}

// TestClosed looks for the fields in every package of ours that has the package of such a type below it, also if it gets
// a value of the type from a third package. It compares the fields themselves, so that neither an alias nor a struct that
// embeds the type hides one.
func TestClosed(t *testing.T) {
	imports(t) // looked at so that a cached result of this test does not outlive a new file
	type listed struct{ deps, files []string }
	export, ours := map[string]string{}, map[string]listed{}
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .Deps \" \"}}\t{{join .GoFiles \"\t\"}}", "./...")
	list.Dir, list.Stderr = "..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		export[words[0]] = words[1]
		if room, ok := strings.CutPrefix(words[0], module+"/"); ok {
			l := listed{deps: strings.Fields(words[3])}
			for _, file := range words[4:] {
				l.files = append(l.files, filepath.Join(words[2], file))
			}
			ours[room] = l
		}
	}
	files := token.NewFileSet()
	from := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(export[path]) })
	for _, c := range closed {
		home, name, _ := strings.Cut(c.name, ".")
		fields := exportedFields(t, from, module+"/"+home, name)
		seen := false
		for room, l := range ours {
			if !slices.Contains(l.deps, module+"/"+home) {
				continue
			}
			var parsed []*ast.File
			for _, name := range l.files {
				file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				parsed = append(parsed, file)
			}
			info := types.Info{Uses: map[*ast.Ident]types.Object{}}
			config := types.Config{Importer: from}
			if _, err := config.Check(module+"/"+room, files, parsed, &info); err != nil {
				t.Fatal(err)
			}
			for at, of := range info.Uses {
				if !fields[of] {
					continue
				}
				if seen = true; !slices.Contains(strings.Fields(c.rooms), room) {
					t.Errorf("%s names %s of %s: %s", files.Position(at.Pos()), of.Name(), c.name, c.why)
				}
			}
		}
		if !seen {
			t.Errorf("nobody reads a field of %s; it was renamed: correct its line (%s)", c.name, c.why)
		}
	}
}

// exportedFields are the exported fields of a struct, which embeds none.
func exportedFields(t *testing.T, from types.Importer, room, name string) map[types.Object]bool {
	t.Helper()
	in, err := from.Import(room)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[types.Object]bool{}
	of := in.Scope().Lookup(name)
	if of == nil {
		return fields
	}
	for f := range of.Type().Underlying().(*types.Struct).Fields() {
		fields[f] = f.Exported()
		if f.Embedded() {
			t.Errorf("%s.%s embeds %s, whose fields this test does not know: give the field a name", room, name, f.Name())
		}
	}
	return fields
}
