package pdp_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The dependency promises of the architecture. Tests may import anything. What needs more than the text of our files, such
// as what a package brings along through others, is in .ci/structure.

const module = "policy-service"

// rooms is the map of the house: ROOM must not import NOT, because BECAUSE. A room may have several lines, and must have
// one. A name stands for one package, and "name/..." for it and all below it; after "but" stands what is excepted.
var rooms = []struct{ room, not, because string }{
	// What PEPs import.
	{"schemas", "anything of ours", "PEPs read the schemas, and would carry all that schemas imports"},
	{"evaluation", "anything of ours but schemas", "PEPs import the vocabulary, and would carry a part of the server"},
	{"evaluation/authzenclient", "anything of ours but evaluation evaluation/authzenclient/internal/link evaluation/capability obligations", "a PEP that asks would carry a PDP, and could decide by itself"},
	{"evaluation/authzenclient/approvals", "anything of ours but evaluation evaluation/authzenclient evaluation/authzenclient/internal/link evaluation/capability obligations", "a PEP that asks people would carry a PDP, and could decide by itself"},
	{"evaluation/authzenclient/internal/link", "anything of ours", "the client could not import it without a cycle"},
	{"evaluation/capability", "anything of ours but evaluation evaluation/recent", "a gateway that checks tokens, or an agent that makes proofs, would carry a part of the server"},
	{"evaluation/coaz", "anything of ours but evaluation", "a mapping would be tied to one client or transport, and PEPs choose theirs"},
	{"evaluation/clients", "anything of ours", "it has no Go but the tests of clients in other languages"},
	{"evaluation/coaz/sdkpep", "anything of ours but evaluation evaluation/authzenclient evaluation/coaz obligations", "an MCP server that is its own PEP would carry the gateway"},
	{"evaluation/coaz/sdkpep/example", "anything of ours but evaluation evaluation/authzenclient evaluation/coaz evaluation/coaz/sdkpep", "readers copy the example, and would copy an import that an MCP server does not need"},
	{"evaluation/recent", "anything of ours", "authentication and capabilities remember with it, and would carry one another"},
	{"obligations", "anything of ours but evaluation", "a PEP that discharges obligations would carry Cedar"},
	{"policies", "anything of ours", "policies are data, and a bundle that needs code could not be copied into another directory"},

	// The library: files become a bundle, and a bundle answers questions.
	{"pdp", "pdp/server/... pdp/mcp/... pdp/console/... pdp/httpclient evaluation/authzenclient", "a program that embeds a PDP would carry a server, or a client of one"},
	{"pdp", "pdp/decisionlog/... pdp/approval/... pdp/capability/... pdp/ledger/... pdp/boltfile/...", "a program that embeds a PDP would carry our stores, even if it has its own"},
	{"pdp/internal/engine", "anything of ours but evaluation obligations pdp/internal/bundle", "a decision would depend on more than a question and a bundle, and could not be made again from its record"},
	{"pdp/internal/source", "anything of ours but evaluation pdp/internal/document pdp/plainfile pdp/spelling", "files would be read differently for what is in them, and a file that is not Cedar could keep others from being read"},
	{"pdp/internal/bundle", "anything of ours but evaluation obligations pdp/cedartext pdp/internal/access pdp/internal/document pdp/internal/places pdp/internal/source pdp/spelling schemas", "a bundle is checked before the first question, and could not be if it needed a question, a clock or a store"},
	{"pdp/internal/access", "anything of ours but pdp/internal/document", "an access declaration would become other policies because of another file of the bundle"},
	{"pdp/internal/document", "anything of ours but pdp/spelling", "settings, obligations and access declarations are read with it, and would depend on one another"},
	{"pdp/internal/places", "anything of ours but pdp/cedartext pdp/spelling", "a mistake would have no line and column in a bundle that does not load"},
	{"pdp/internal/lint", "anything of ours but evaluation obligations pdp/internal/access pdp/internal/bundle pdp/internal/document pdp/internal/places pdp/internal/source pdp/spelling", "check would need an engine, a store or a server to warn of a bundle"},
	{"pdp/internal/outline", "anything of ours but pdp/internal/bundle", "an editor would suggest names that are not in the bundle"},
	{"pdp/cedartext", "anything of ours", "fmt could not lay out a policy that does not load"},
	{"pdp/lsp", "anything of ours but evaluation pdp pdp/cedartext pdp/internal/places pdp/visible", "an editor would say something else than check says"},

	// The decision log: a record is made, kept, read and verified.
	{"pdp/decisionlog/mask", "anything of ours but evaluation pdp/evidence", "a value would be masked in one record and not in the next, if anything besides the request decided about it"},
	{"pdp/decisionlog/recorder", "anything of ours but evaluation pdp pdp/decisionlog pdp/decisionlog/mask", "one question would have another record over HTTP than in process"},
	{"pdp/decisionlog", "anything of ours but evaluation pdp/boltfile pdp/boltfile/pages pdp/decisionlog/index pdp/decisionlog/journal pdp/evidence pdp/plainfile", "a mistake of the PDP or the server could alter what is on record"},
	{"pdp/decisionlog/journal", "anything of ours but pdp/plainfile", "a record is durable before the log has it, and would wait for the log"},
	{"pdp/decisionlog/index", "anything of ours but pdp/boltfile pdp/boltfile/pages pdp/plainfile", "a page of the log would change when its index is lost and made anew"},
	{"pdp/decisionlog/c2sp", "anything of ours", "a log, its verifiers and its witnesses read these texts, and would carry one another"},
	{"pdp/decisionlog/export", "anything of ours but pdp/decisionlog pdp/decisionlog/c2sp", "an export could show more than a snapshot of the log shows to its reader"},
	{"pdp/replay", "anything of ours but evaluation evaluation/recent obligations pdp pdp/cedartext pdp/decisionlog pdp/decisionlog/export pdp/decisionlog/recorder", "a recorded question would be answered otherwise than one that is asked"},
	{"pdp/decisionlog/report", "anything of ours but evaluation pdp/approval pdp/decisionlog pdp/decisionlog/export", "a number of a report could come from somewhere else than records"},
	{"pdp/decisionlog/remote", "anything of ours but pdp/decisionlog pdp/decisionlog/export pdp/decisionlog/report pdp/httpclient", "an auditor's desk would carry a server"},
	{"pdp/decisionlog/vouch", "anything of ours but pdp/decisionlog pdp/decisionlog/export pdp/decisionlog/verify", "a record would be proved to another process in another way than to an auditor"},
	{"pdp/decisionlog/verify", "anything of ours but pdp/boltfile/pages pdp/decisionlog pdp/decisionlog/c2sp pdp/decisionlog/export pdp/plainfile", "a verifier that shares code with the writer shares its mistakes (of the log it uses constants: see its TestStranger)"},
	{"pdp/decisionlog/witness", "anything of ours but pdp/decisionlog pdp/decisionlog/c2sp pdp/httpclient pdp/plainfile", "a witness could be asked for more than checkpoints, or an answer wait for one"},

	// Approvals: kept, decided about, announced.
	{"pdp/ledger", "anything of ours but pdp/keyedmutex", "the ledger keeps items of any kind in any engine, and could keep no others than those of approvals, or in a file alone"},
	{"pdp/ledger/bolt", "anything of ours but pdp/boltfile pdp/ledger pdp/plainfile", "an engine keeps values, and would know what they mean"},
	{"pdp/ledger/etcd", "anything of ours but pdp/ledger", "an engine keeps values, and would know what they mean"},
	{"pdp/cluster", "anything of ours but pdp/ledger pdp/ledger/etcd pdp/plainfile", "what processes share would depend on what they do with it"},
	{"pdp/ledger/ledgertest", "anything of ours but pdp/ledger", "an engine of tests would be a part of what it tests"},
	{"pdp/approval", "anything of ours but evaluation obligations pdp/ledger pdp/ledger/bolt pdp/pace", "an approval would be granted differently by how the answer came: console, API or gateway"},
	{"pdp/capability", "anything of ours but evaluation evaluation/capability evaluation/recent pdp/ledger pdp/ledger/bolt pdp/pace", "a capability would be granted or used differently by how it was asked for, or by what policies say"},
	{"pdp/approval/broker", "pdp/server/... pdp/mcp/... pdp/console/... pdp/approval/inbox pdp/httpclient but pdp/server/auth", "the rules of approving would be spread over HTTP handlers"},
	{"pdp/approval/broker", "pdp/internal/... pdp/ledger/... pdp/boltfile/...", "an approval would be decided beside pdp, or kept beside pdp/approval"},
	{"pdp/capability/broker", "pdp/server/... pdp/mcp/... pdp/console/... pdp/httpclient pdp/internal/... pdp/ledger/... pdp/boltfile/...", "the rules of capabilities would be spread over HTTP handlers, or be kept beside pdp/capability"},
	{"pdp/approval/webhook", "anything of ours but pdp/address pdp/plainfile", "receivers import it to verify a delivery, and would carry the store of approvals"},
	{"pdp/approval/inbox", "anything of ours but evaluation pdp/httpclient", "a server may be of another version, and the client would know more of it than the wire says"},

	// The gateway in front of MCP servers.
	{"pdp/mcp", "pdp pdp/internal/... pdp/decisionlog/... pdp/ledger/... pdp/boltfile/... pdp/approval/... pdp/console/... pdp/server/... but pdp/approval/webhook pdp/server/auth pdp/server/config", "a gateway asks any PDP over HTTP, and would carry ours and work with no other"},
	{"pdp/mcp/internal/front", "pdp pdp/internal/... pdp/decisionlog/... pdp/ledger/... pdp/boltfile/... pdp/approval/... pdp/console/... pdp/server/... evaluation/... obligations but pdp/server/auth", "HTTP, standard streams and sessions would decide what a request means: that is the flow's"},
	{"pdp/mcp/internal/flow", "pdp pdp/internal/... pdp/decisionlog/... pdp/ledger/... pdp/boltfile/... pdp/approval/... pdp/console/... pdp/server/... evaluation/coaz/... obligations pdp/mcp/internal/front pdp/mcp/internal/desk pdp/mcp/internal/flights", "a request would go another way by the connection that it came by, or by a configuration file"},
	{"pdp/mcp/internal/people", "pdp pdp/internal/... pdp/decisionlog/... pdp/ledger/... pdp/boltfile/... pdp/approval/... pdp/console/... pdp/server/... evaluation/coaz/... obligations pdp/mcp/internal/front pdp/mcp/internal/flow pdp/mcp/internal/upstream", "people would be asked differently by how a call came, or by what its server answers"},
	{"pdp/mcp/internal/link", "pdp pdp/internal/... pdp/decisionlog/... pdp/ledger/... pdp/boltfile/... pdp/approval/... pdp/console/... pdp/server/... evaluation/authzenclient/... evaluation/coaz/... obligations pdp/mcp/internal/front pdp/mcp/internal/flow pdp/mcp/internal/people pdp/mcp/internal/events pdp/mcp/internal/reply", "what a server lists and says would depend on the request for which it is asked"},
	{"pdp/mcp/internal/answer", "anything of ours but pdp/mcp/internal/ask pdp/mcp/internal/era pdp/mcp/internal/rpc pdp/mcp/internal/upstream", "a refusal would be told in as many ways as there are rooms"},
	{"pdp/mcp/internal/meters", "anything of ours but pdp/mcp/internal/answer pdp/mcp/internal/ask pdp/mcp/internal/link pdp/mcp/internal/people pdp/mcp/internal/rpc pdp/mcp/wire", "a label could be anything that a client sent"},
	{"pdp/mcp/internal/doors", "anything of ours", "what is waited for at the end would depend on what it works on"},
	{"pdp/mcp/internal/ask", "anything of ours but evaluation evaluation/authzenclient evaluation/authzenclient/approvals evaluation/capability evaluation/coaz obligations pdp/mcp/internal/era pdp/mcp/internal/identity pdp/mcp/internal/leak pdp/mcp/internal/rpc pdp/mcp/lock", "a question would change with the connection by which the message came or goes on"},
	{"pdp/mcp/internal/rpc", "anything of ours", "the bytes that are decided about are forwarded, and would be read differently for one transport or policy"},
	{"pdp/mcp/internal/era", "anything of ours but pdp/mcp/internal/rpc", "the same bytes would become another message for another client or server"},
	{"pdp/mcp/internal/identity", "anything of ours but evaluation pdp/server/auth", "a token would stand for another principal because of what is asked with it"},
	{"pdp/mcp/internal/upstream", "anything of ours but evaluation/recent pdp/mcp/internal/doors pdp/mcp/internal/era pdp/mcp/internal/leak pdp/mcp/internal/rpc pdp/address pdp/plainfile pdp/visible", "a connection could decide whether a message may be sent, beside the PDP"},
	{"pdp/mcp/internal/arguments", "anything of ours but evaluation pdp/visible", "arguments would fit a schema for one caller and not for another"},
	{"pdp/mcp/internal/leak", "anything of ours", "a secret would be masked for one transport or message and not for another"},
	{"pdp/mcp/internal/rates", "anything of ours", "a limit would count differently for different principals or messages"},
	{"pdp/mcp/internal/desk", "anything of ours but evaluation/authzenclient evaluation/authzenclient/approvals", "one watch serves all calls that wait, and would be tied to one of them"},
	{"pdp/mcp/internal/flights", "anything of ours but pdp/mcp/internal/rpc", "a client cancels a request by its id, and could cancel only the kinds that flights knows"},
	{"pdp/mcp/internal/reply", "anything of ours but pdp/mcp/internal/rpc", "an answer would be written differently by what was decided"},
	{"pdp/mcp/internal/events", "anything of ours but evaluation/recent pdp/mcp/internal/identity pdp/mcp/internal/rpc", "a listener would miss kinds of events that the package does not know"},
	{"pdp/mcp/internal/requests", "anything of ours", "a request is taken once whatever it is, and a kind with rules of its own could be taken twice"},
	{"pdp/mcp/internal/traces", "anything of ours but pdp/mcp/internal/rpc", "a trace would end at the messages that it does not know"},
	{"pdp/mcp/lock", "anything of ours but evaluation pdp/plainfile pdp/visible", "definitions of tools could be compared in a running gateway only, and not in a pipeline"},
	{"pdp/mcp/toolschema", "anything of ours but evaluation pdp/visible", "a schema would change with the server that the definitions come from"},
	{"pdp/mcp/wire", "anything of ours but evaluation evaluation/capability pdp/mcp/internal/rpc pdp/visible", "gateways of others send these messages, and would carry our server"},

	// The server: the library and the stores on HTTP.
	{"pdp/server", "pdp/internal/...", "a server would decide differently from a PDP inside another program"},
	{"pdp/server", "pdp/mcp/...", "a PDP without a gateway would carry one"},
	{"pdp/server", "pdp/ledger/... pdp/boltfile/... pdp/decisionlog/index pdp/decisionlog/journal", "a file of the data directory would have two owners"},
	{"pdp/server", "pdp/httpclient pdp/approval/inbox pdp/decisionlog/remote", "a route would ask the API again, and one request would count as two"},
	{"pdp/server/approvals", "pdp pdp/internal/... pdp/decisionlog/... pdp/ledger/... pdp/boltfile/... pdp/console/... pdp/server/audit pdp/server/config", "the routes of approvals could decide by themselves what the broker decides"},
	{"pdp/server/approvals", "pdp/mcp/... but pdp/mcp/wire", "a PDP without a gateway would carry one"},
	{"pdp/server/audit", "pdp/mcp/...", "a PDP without a gateway would carry one"},
	{"pdp/server/capabilities", "pdp/internal/... pdp/decisionlog/... pdp/ledger/... pdp/boltfile/... pdp/console/... pdp/approval/... pdp/server/audit pdp/server/approvals pdp/server/config pdp/mcp/...", "the routes of capabilities could decide by themselves what the broker decides"},
	{"pdp/server/audit", "pdp pdp/internal/... pdp/decisionlog/recorder pdp/approval/... pdp/ledger/... pdp/boltfile/... pdp/console/... pdp/server/approvals pdp/server/config", "reading the log could decide a question or change an approval"},
	{"pdp/server/door", "anything of ours but evaluation pdp/pace pdp/server/auth pdp/server/listener", "a request would be let in differently by the route that it goes to"},
	{"pdp/server/listener", "anything of ours but pdp/plainfile pdp/server/auth", "the gateway listens with it, and would carry the server's routes"},
	{"pdp/server/auth", "anything of ours but evaluation pdp/plainfile pdp/datakey evaluation/recent pdp/ledger", "gateway and console authenticate with it, and would carry the server"},
	{"pdp/server/config", "anything of ours but pdp/plainfile pdp/spelling pdp/when", "the gateway reads its own configuration with it, and would carry the server's"},
	{"pdp/server/telemetry", "anything of ours but evaluation evaluation/capability obligations pdp/approval pdp/decisionlog pdp/decisionlog/c2sp pdp/decisionlog/witness pdp/server/auth", "all rooms of the server count with it, and could not import it without a cycle"},
	{"pdp/server/sink", "anything of ours but pdp/decisionlog pdp/server/telemetry", "a sink could send out more than the log holds"},
	{"pdp/backup", "anything of ours but pdp/plainfile", "the format of a backup would depend on the meaning of a file in it, and change with that"},
	{"pdp/server/doctor", "pdp/internal/... pdp/ledger/... pdp/boltfile/... pdp/mcp/... pdp/console/...", "doctor would judge a file by itself, and differently from the start of the server"},
	{"pdp/server/floor", "anything of ours", "our server is measured beside it, and a part that both have would cost nothing in the difference"},

	// The console: a client of our own HTTP API.
	{"pdp/console", "anything of ours but pdp/approval/inbox pdp/console/page pdp/decisionlog/remote pdp/httpclient pdp/plainfile pdp/seal pdp/server/auth", "a page could show what the API would not answer to its reader"},
	{"pdp/console/sessions", "anything of ours but pdp/console pdp/ledger pdp/server/auth", "the sessions of replicas would be kept beside the ledger"},
	{"pdp/console/page", "anything of ours but pdp/visible", "one view would be drawn as two pages, if a session or a clock had a part in it"},

	// Small rooms with one job each.
	{"pdp/boltfile", "anything of ours but pdp/boltfile/pages pdp/plainfile", "the log, its index and the ledger open their files with it, and would carry one another"},
	{"pdp/boltfile/pages", "anything of ours", "the verifier reads files with it, and would share code with the writer"},
	{"pdp/plainfile", "anything of ours", "nearly all rooms open files with it, and would carry all that it imports"},
	{"pdp/datakey", "anything of ours but pdp/plainfile", "masks and approvals keep a key with it each, and would carry one another"},
	{"pdp/signing", "anything of ours but pdp/plainfile", "the log and approvals are signed with it, and would carry one another"},
	{"pdp/evidence", "anything of ours", "the log and the PDP hold with it what nobody may guess by, and would carry one another"},
	{"pdp/seal", "anything of ours but pdp/plainfile", "gateway and console seal with it, and would carry one another"},
	{"pdp/keyedmutex", "anything of ours", "the ledger and the server lock with it, and would carry one another"},
	{"pdp/address", "anything of ours", "webhooks and the gateway judge addresses with it, and would carry one another"},
	{"pdp/pace", "anything of ours", "approvals, capabilities and the door of the server limit rates with it, and would carry one another"},
	{"pdp/httpclient", "anything of ours", "the commands of approvers and auditors would carry a server in order to speak with one"},
	{"pdp/logging", "anything of ours", "server and gateway log with it, and would carry one another"},
	{"pdp/visible", "anything of ours", "terminals, pages and the gateway print with it, and would carry one another"},
	{"pdp/spelling", "anything of ours", "bundles, configurations and commands suggest names with it, and would carry one another"},
	{"pdp/when", "anything of ours", "commands and configurations read times with it, and one time must mean the same in both"},
	{"pdp/version", "anything of ours", "archives and images are named by it, and the programs that make them would carry a server"},
	{"pdp/latency", "anything of ours", "conformance/load measures servers of others with it, and would carry ours"},

	// Helpers of tests: a line of owners keeps them out of the binary.
	{"pdp/pdptest", "pdp/mcp/... pdp/approval/... pdp/decisionlog/... pdp/console/... pdp/ledger/...", "tests would reach past HTTP into a server that runs"},
	{"pdp/pdptest/bound", "anything of ours", "benchmarks of any package could not import it without a cycle"},
	{"pdp/pdptest/bundles", "pdp/server/... pdp/mcp/... pdp/approval/... pdp/decisionlog/... pdp/console/... pdp/ledger/...", "tests of bundles and of the engine would carry a server in order to ask a question"},
	{"pdp/pdptest/clock", "anything of ours", "tests of any package could not import it without a cycle"},
	{"pdp/pdptest/counted", "anything of ours", "uses would be judged with code that counts them"},
	{"pdp/pdptest/crashedlog", "anything of ours but pdp/decisionlog", "a crashed log would be made by another program than the log, and could look different"},
	{"pdp/pdptest/filetree", "anything of ours", "tests of pdp itself could not import it without a cycle"},
	{"pdp/pdptest/etcdtest", "anything of ours but pdp/ledger pdp/ledger/etcd pdp/pdptest/judged pdp/pdptest/port", "etcd would be tested with a part of what asks it"},
	{"pdp/pdptest/judged", "anything of ours", "our log would be judged with code of ours"},
	{"pdp/pdptest/lies", "anything of ours", "clients are tested against it, and would pass if both read an answer with the same mistake"},
	{"pdp/pdptest/memorydisk", "anything of ours", "tests of any package could not import it without a cycle"},
	{"pdp/pdptest/night", "anything of ours", "tests of any package could not import it without a cycle"},
	{"pdp/pdptest/npm", "anything of ours", "tests of any package could not import it without a cycle"},
	{"pdp/pdptest/port", "anything of ours", "tests of any package could not import it without a cycle"},
	{"pdp/pdptest/strangers", "anything of ours", "somebody else's module would be tried with a part of this module that it cannot import"},
	{"pdp/pdptest/written", "anything of ours", "tests of any package could not import it without a cycle"},
	{"pdp/pdptest/organisation", "anything of ours", "the benchmarks of pdp itself could not import it without a cycle"},
	{"pdp/pdptest/toolaccess", "anything of ours", "policies made from a declaration are tested against it, and would pass if both read it with the same mistake"},
	{"pdp/pdptest/worst", "anything of ours", "tests of pdp itself could not import it without a cycle"},
	{"pdp/mcp/mcptest", "anything of ours but pdp/pdptest/lies pdp/pdptest/npm pdp/pdptest/port", "a partner that shares code with the gateway could not find its mistakes"},
	{"pdp/mcp/internal/upstream/upstreamtest", "anything of ours but pdp/mcp/internal/era pdp/mcp/internal/rpc pdp/mcp/internal/upstream", "tests of the rooms above upstream could not import it without a cycle"},
	{"pdp/console/browsertest", "anything of ours but pdp/pdptest/night", "it could open no other pages than those of the console"},
	{"pdp/decisionlog/witness/witnesstest", "anything of ours", "a witness that shares code with its client could not find its mistakes"},
	{"pdp/console/oidctest", "anything of ours", "a provider that shares code with its client could not find its mistakes"},
	{"pdp/visible/hostile", "anything of ours", "tests of any package could not import it without a cycle"},

	// What judges any PDP or PEP from outside.
	{"conformance", "anything of ours but conformance/internal/casefile conformance/internal/wire evaluation", "the suite would share mistakes with our PDP, and pass them"},
	{"conformance/pep", "anything of ours but conformance conformance/internal/casefile conformance/internal/wire", "the suite would read a mapping with the mistakes of our PEP, and pass them"},
	{"conformance/load", "anything of ours but pdp/latency", "it measures any server, and would know a faster way into ours"},
	{"conformance/internal/casefile", "anything of ours", "cases for PDPs and for PEPs are read with it, and would be tied to one suite"},
	{"conformance/internal/wire", "anything of ours", "a request of the suite would be written with the mistakes of our own clients"},
	{"conformance/internal/casetest", "anything of ours", "the pages of all suites are tested with it, and would be tied to one suite"},

	// The one binary. Each group of commands is for one kind of user.
	{"cmd/policy-service", "anything of ours but cmd/policy-service/internal/...", "main would do work that no test of a command runs"},
	{"cmd/policy-service/internal/cli", "anything of ours but evaluation pdp/visible pdp/spelling", "all commands print with it, and would carry one another"},
	{"cmd/policy-service/internal/bundledir", "anything of ours but cmd/policy-service/internal/cli pdp", "commands would load a directory differently from the library"},
	{"cmd/policy-service/internal/connection", "anything of ours but cmd/policy-service/internal/cli pdp/httpclient pdp/server", "approvals, capabilities and log reach a server with it, and would carry one another (of pdp/server it uses the name of a variable)"},
	{"cmd/policy-service/internal/completion", "anything of ours but cmd/policy-service/internal/cli", "a line would be completed by something else than the command line"},
	{"cmd/policy-service/internal/process", "anything of ours but cmd/policy-service/internal/cli pdp/plainfile pdp/server/config pdp/server/doctor", "serve and mcp-gateway start with it, and would carry one another"},
	{"cmd/policy-service/internal/author", "pdp/server/... pdp/mcp pdp/mcp/lock pdp/console/... pdp/approval/...", "check, test and fmt run in pipelines and editors, and would carry a server"},
	{"cmd/policy-service/internal/operate", "pdp/mcp/... pdp/approval/... pdp/decisionlog/... pdp/ledger/... pdp/console/...", "serve would open a store that pdp/server opens, and the file would have two owners"},
	{"cmd/policy-service/internal/gateway", "pdp/approval/... pdp/ledger/... pdp/console/... pdp/decisionlog/... but pdp/decisionlog", "log and approvals belong to the PDP, which may be in another process"},
	{"cmd/policy-service/internal/tools", "pdp/server/... pdp/approval/... pdp/decisionlog/... pdp/console/... but pdp/server/config", "a look at tools would start a server or leave a record"},
	{"cmd/policy-service/internal/approve", "pdp pdp/server/... pdp/decisionlog/... pdp/mcp/... pdp/ledger/... pdp/boltfile/... pdp/approval/... but pdp/approval/inbox", "an approver has a URL and a credential, and a command that opens files would work on the server's machine only"},
	{"cmd/policy-service/internal/capabilities", "pdp pdp/server/... pdp/decisionlog/... pdp/mcp/... pdp/ledger/... pdp/boltfile/... pdp/approval/... pdp/capability/...", "an agent has a URL, a credential and a key, and a command that opens files would work on the server's machine only"},
	{"cmd/policy-service/internal/audit", "pdp/server/... pdp/mcp/... pdp/console/... pdp/approval/broker pdp/approval/inbox", "an auditor reads a copy of a log where no server runs"},
}

// owners: PATHS, and what is below them, may be imported only in WHERE, which are packages or files, because BECAUSE. Where
// paths overlap, the longest counts.
var owners = []struct{ paths, where, because string }{
	{"github.com/labstack/echo", "pdp/server pdp/server/approvals pdp/server/audit pdp/server/capabilities pdp/server/door pdp/server/floor", "support of v4 ends on 2026-12-31, and a move to v5 would touch more than the server"},
	{"github.com/aymanbagabas/go-udiff", "pdp/console/page", "it compares texts of anybody, and each place must see that they are short and drawn harmless"},
	{"golang.org/x/oauth2", "pdp/console", "people would log in elsewhere than at the console, and all other callers bring a credential"},
	{"go.opentelemetry.io/otel/sdk go.opentelemetry.io/otel/exporters go.opentelemetry.io/contrib", "pdp/server/telemetry", "a library would choose where the telemetry of its process goes"},
	{"github.com/prometheus", "pdp/server/telemetry", "a library would choose how its process shows metrics"},
	{"filippo.io/age", "cmd/policy-service/internal/operate", "a server would hold the keys that its backups are encrypted for, or choose them"},
	{"go.etcd.io/etcd", "pdp/cluster pdp/ledger/etcd pdp/pdptest/etcdtest", "more places would have to know how etcd fails"},
	{"go.uber.org/zap", "pdp/cluster pdp/pdptest/etcdtest", "messages for the operator are by log/slog, and zap is there for a client that wants one"},
	{"go.etcd.io/bbolt", "pdp/boltfile pdp/decisionlog pdp/decisionlog/index pdp/ledger/bolt", "bbolt panics on a damaged file, and more places would have to open files by pdp/boltfile"},
	{"cel.dev/cel-go", "evaluation/coaz", "cel-go adds 10 MB, and each place that evaluates expressions must bound them"},
	{"github.com/santhosh-tekuri/jsonschema", "pdp/internal/bundle pdp/mcp/internal/arguments pdp/pdptest", "it fetches what a schema refers to, cannot be stopped, and quotes secrets, and each place must guard against that"},
	{"github.com/modelcontextprotocol/go-sdk", "evaluation/coaz/sdkpep evaluation/coaz/sdkpep/example", "the gateway is tested against the SDK, and would pass if both wrote a message with the same mistake"},
	{"github.com/cedar-policy/cedar-go", "pdp/internal/access pdp/internal/bundle pdp/internal/engine pdp/internal/lint pdp/internal/outline", "a second place that makes Cedar requests could fail open"},
	{"github.com/cedar-policy/cedar-go/x/exp", "", "it is experimental, and its batch evaluator drops forbids"},
	{"github.com/cedar-policy/cedar-go/x/exp/ast", "pdp/internal/bundle/ast.go pdp/internal/bundle/policysteps.go", "it is experimental, and a change in it would touch more than two files"},
	{"github.com/cedar-policy/cedar-go/x/exp/schema", "pdp/internal/bundle/schema.go pdp/internal/bundle/schemafiles.go pdp/internal/bundle/schemasize.go", "it is experimental, and a change in it would touch more than three files"},
	{"policy-service/pdp/mcp/internal/front", "pdp/mcp/gateway.go pdp/mcp/new.go", "what a request means would depend on how it came in"},
	{"policy-service/pdp/lsp", "cmd/policy-service/internal/author", "a server would carry an editor's protocol"},
	{"policy-service/evaluation/coaz/sdkpep", "evaluation/coaz/sdkpep/example", "the binary would carry the MCP SDK"},
	{"policy-service/conformance", "conformance conformance/pep cmd/policy-service/internal/operate", "a PDP would know the cases that judge it"},
	{"policy-service/cmd/policy-service/internal/gateway", "cmd/policy-service cmd/policy-service/internal/tools", "commands of one kind of user would carry those of another"},
	{"policy-service/cmd/policy-service/internal/approve policy-service/cmd/policy-service/internal/audit policy-service/cmd/policy-service/internal/author policy-service/cmd/policy-service/internal/operate policy-service/cmd/policy-service/internal/tools", "cmd/policy-service", "commands of one kind of user would carry those of another"},
	{"policy-service/pdp/pdptest", "pdp/console/browsertest pdp/mcp/mcptest pdp/pdptest/etcdtest", "the binary would carry helpers of tests"},
	{"policy-service/pdp/mcp/mcptest policy-service/pdp/mcp/internal/upstream/upstreamtest policy-service/pdp/console/oidctest policy-service/pdp/console/browsertest policy-service/pdp/decisionlog/witness/witnesstest policy-service/pdp/visible/hostile github.com/chromedp", "pdp/console/browsertest", "the binary would carry helpers of tests"},
	{"policy-service/pdp/server/floor", "", "the binary would carry a server that answers without a decision"},
}

// holders are the types and variables outside pdp/server that hold a *server.Server. No other may: with a whole server at
// hand each package would reach for all of it, and none could be tested without one.
var holders = []string{"pdp/pdptest.Server"}

// Where echo is, rules of the product must not be: in a package that imports echo, a file that imports one of domain must
// be a handler, which is a file that imports echo too. wiring are the exceptions, which open a store or configure it.
var (
	domain = []string{"pdp/approval", "pdp/decisionlog/mask"}
	wiring = []string{"pdp/server/log_lifecycle.go", "pdp/server/logconfig.go", "pdp/server/data.go", "pdp/server/approvals.go", "pdp/server/capabilities.go", "pdp/server/reconfigure.go", "pdp/server/backup.go", "pdp/server/restore.go", "pdp/server/cluster.go", "pdp/server/sharedkeys.go", "pdp/server/import.go"}
)

func TestRooms(t *testing.T) {
	lines := map[string]bool{}
	for _, r := range rooms {
		lines[r.room] = true
		for name := range strings.FieldsSeq(r.room + " " + strings.NewReplacer("anything of ours", "", " but ", " ").Replace(r.not)) {
			if !slices.ContainsFunc(sources(t), func(f source) bool { return names(name, f.room()) }) {
				t.Errorf("the line of %s names %s, which is no package: correct it", r.room, name)
			}
		}
	}
	for _, f := range sources(t) {
		if !lines[f.room()] {
			lines[f.room()] = true
			t.Errorf("rooms has no line for %s: add a line, which says what it must not import, and why", f.room())
		}
		for _, r := range rooms {
			not, but, _ := strings.Cut(r.not, " but ")
			for _, p := range f.imports {
				ours, isOurs := strings.CutPrefix(p, module+"/")
				if isOurs && r.room == f.room() && names(not, ours) && !names(but, ours) {
					t.Errorf("%s imports %s, but %s must not import %s, because %s", f.name, ours, r.room, r.not, r.because)
				}
			}
		}
	}
}

func TestOwners(t *testing.T) {
	for _, o := range owners {
		for where := range strings.FieldsSeq(o.where) {
			if !slices.ContainsFunc(sources(t), func(f source) bool { return where == f.name || where == f.room() }) {
				t.Errorf("the line of %s names %s, which is no package or file: correct it", o.paths, where)
			}
		}
		for p := range strings.FieldsSeq(o.paths) {
			if !slices.ContainsFunc(sources(t), func(f source) bool { return within(module+"/"+f.room(), p) || f.brings(p) }) {
				t.Errorf("%s is no package, or is imported by tests only: correct its line, or delete it", p)
			}
		}
	}
	for _, f := range sources(t) {
		for _, p := range f.imports {
			longest, where, because := "", "", ""
			for _, o := range owners {
				for path := range strings.FieldsSeq(o.paths) {
					if within(p, path) && len(path) > len(longest) {
						longest, where, because = path, o.where, o.because
					}
				}
			}
			if may := strings.Fields(where); longest != "" && !slices.Contains(may, f.name) && !slices.Contains(may, f.room()) {
				t.Errorf("%s imports %s, which may be imported only in %s, because %s", f.name, p, cmp.Or(where, "tests"), because)
			}
		}
	}
}

func TestHoldersOfServer(t *testing.T) {
	const server = module + "/pdp/server"
	found := map[string]bool{}
	for _, f := range sources(t) {
		if f.room() == "pdp/server" || !slices.Contains(f.imports, server) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", f.name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		local := "server"
		for _, spec := range file.Imports {
			if spec.Name != nil && spec.Path.Value == strconv.Quote(server) {
				local = spec.Name.Name
			}
		}
		for _, d := range file.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if !mentions(spec, local, "Server") {
					continue
				}
				name := f.room() + "." + nameOf(spec)
				if found[name] = true; !slices.Contains(holders, name) {
					t.Errorf("%s: %s holds a *server.Server: give it the values that it needs of one", f.name, name)
				}
			}
		}
	}
	for _, name := range holders {
		if !found[name] {
			t.Errorf("%s holds no *server.Server, or does not exist: correct holders", name)
		}
	}
}

// mentions reports if a declaration has pkg.name in it outside the signatures and bodies of functions, which borrow one
// at most.
func mentions(spec ast.Spec, pkg, name string) (found bool) {
	ast.Inspect(spec, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType, *ast.FuncLit:
			return false
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			found = found || ok && x.Name == pkg && n.Sel.Name == name
		}
		return true
	})
	return found
}

func nameOf(spec ast.Spec) string {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return spec.Name.Name
	case *ast.ValueSpec:
		return spec.Names[0].Name
	}
	return ""
}

func TestDomainBesideEcho(t *testing.T) {
	const echo = "github.com/labstack/echo"
	serves, rules := map[string]bool{}, map[string]string{}
	for _, f := range sources(t) {
		serves[f.room()] = serves[f.room()] || f.brings(echo)
		for _, room := range domain {
			if f.brings(module+"/"+room) && !f.brings(echo) {
				rules[f.name] = room
			}
		}
	}
	for file, room := range rules {
		if serves[path.Dir(file)] && !slices.Contains(wiring, file) {
			t.Errorf("%s imports %s and is no handler, in a package that imports echo: put it into a room without echo", file, room)
		}
	}
	for _, file := range wiring {
		if rules[file] == "" || !serves[path.Dir(file)] {
			t.Errorf("%s is gone, or needs no exception: delete it in wiring", file)
		}
	}
	for _, room := range domain {
		if !slices.ContainsFunc(sources(t), func(f source) bool { return f.room() == room }) {
			t.Errorf("domain names %s, which is no package: correct it", room)
		}
	}
}

func TestTopLevel(t *testing.T) {
	fixed := strings.Fields("cmd pdp evaluation obligations schemas policies conformance go.mod go.sum Makefile README.md LICENSE")
	ignored := []string{"bin", "dist"} // what make build, release and image make, ignored by git
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

// names reports if one of the names in a line stands for a package.
func names(line, room string) bool {
	if line == "anything of ours" {
		return true
	}
	return slices.ContainsFunc(strings.Fields(line), func(name string) bool {
		top, below := strings.CutSuffix(name, "/...")
		return room == top || below && within(room, top)
	})
}

// within reports if package p is top or below it: "github.com/a/b/v4" is below "github.com/a/b".
func within(p, top string) bool { return p == top || strings.HasPrefix(p, top+"/") }

// source is a Go file outside the tests, its name from the top of the repository.
type source struct {
	name    string
	imports []string
}

func (f source) room() string { return path.Dir(f.name) }

// brings reports if the file imports a package that is top or below it.
func (f source) brings(top string) bool {
	return slices.ContainsFunc(f.imports, func(p string) bool { return within(p, top) })
}

// sources are all of them. They are read as text, so that a build tag hides none.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := readSources()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var readSources = sync.OnceValues(func() (all []source, err error) {
	err = fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		hidden := name != "." && strings.HasPrefix(entry.Name(), ".")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "testdata" || name == "pdp/pdptest/judges" || name == "pdp/pdptest/manifests" || name == "pdp/pdptest/members"): // modules of their own
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := source{name: name}
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, p)
		}
		all = append(all, f)
		return nil
	})
	return all, err
})
