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

	"policy-service/pdp/pdptest/filetree"
)

// The dependency promises of the architecture. Tests may import anything. What needs more than the text of our files, such
// as what a package brings along through others, is in .ci/structure.

const module = "policy-service"

// library are the rooms in which files become a bundle, and a bundle answers questions.
const library = "pdp/internal/access pdp/internal/bundle pdp/internal/document pdp/internal/engine pdp/internal/filter pdp/internal/lint pdp/internal/outline pdp/internal/places pdp/internal/source"

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
	{"pdp", "pdp/internal/server/... pdp/internal/mcp/... pdp/mcp/... pdp/internal/console/... pdp/internal/httpclient evaluation/authzenclient", "a program that embeds a PDP would carry a server, or a client of one"},
	{"pdp", "pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/approval/... pdp/approval/... pdp/internal/capability/... pdp/internal/ledger/... pdp/internal/boltfile/...", "a program that embeds a PDP would carry our stores, even if it has its own"},
	{"pdp/internal/engine", "anything of ours but evaluation obligations pdp/internal/bundle", "a decision would depend on more than a question and a bundle, and could not be made again from its record"},
	{"pdp/internal/filter", "anything of ours but evaluation obligations pdp/internal/bundle pdp/internal/engine", "a condition would depend on more than a question and a bundle, and could not be made again from its record"},
	{"pdp/internal/source", "anything of ours but evaluation pdp/internal/document pdp/internal/plainfile pdp/internal/spelling", "files would be read differently for what is in them, and a file that is not Cedar could keep others from being read"},
	{"pdp/internal/bundle", "anything of ours but evaluation obligations pdp/internal/cedartext pdp/internal/access pdp/internal/document pdp/internal/places pdp/internal/source pdp/internal/spelling schemas", "a bundle is checked before the first question, and could not be if it needed a question, a clock or a store"},
	{"pdp/internal/access", "anything of ours but pdp/internal/document", "an access declaration would become other policies because of another file of the bundle"},
	{"pdp/internal/document", "anything of ours but pdp/internal/spelling", "settings, obligations and access declarations are read with it, and would depend on one another"},
	{"pdp/internal/places", "anything of ours but pdp/internal/cedartext pdp/internal/spelling", "a mistake would have no line and column in a bundle that does not load"},
	{"pdp/internal/lint", "anything of ours but evaluation obligations pdp/internal/access pdp/internal/bundle pdp/internal/document pdp/internal/filter pdp/internal/places pdp/internal/source pdp/internal/spelling", "check would need a store or a server to warn of a bundle"},
	{"pdp/internal/outline", "anything of ours but pdp/internal/bundle", "an editor would suggest names that are not in the bundle"},
	{"pdp/internal/cedartext", "anything of ours", "fmt could not lay out a policy that does not load"},
	{"pdp/internal/lsp", "anything of ours but evaluation pdp pdp/internal/cedartext pdp/internal/places pdp/internal/visible", "an editor would say something else than check says"},

	// The decision log: a record is made, kept, read and verified.
	{"pdp/internal/decisionlog/format", "anything of ours", "the writer and the verifier share these words, and would share more"},
	{"pdp/internal/decisionlog/record", "anything of ours but evaluation pdp/internal/decisionlog/format", "what a record says would depend on the file that it stands in"},
	{"pdp/internal/decisionlog/segment", "anything of ours but evaluation pdp/internal/boltfile pdp/internal/boltfile/pages pdp/internal/decisionlog/format pdp/internal/decisionlog/journal pdp/internal/decisionlog/record pdp/internal/plainfile", "who reads a log would carry its writer, and could write to it"},
	{"pdp/internal/decisionlog/mask", "anything of ours but evaluation pdp/internal/evidence", "a value would be masked in one record and not in the next, if anything besides the request decided about it"},
	{"pdp/internal/decisionlog/recorder", "anything of ours but evaluation pdp pdp/internal/decisionlog pdp/internal/decisionlog/format pdp/internal/decisionlog/mask pdp/internal/decisionlog/record", "one question would have another record over HTTP than in process"},
	{"pdp/internal/decisionlog", "anything of ours but evaluation pdp/internal/boltfile pdp/internal/boltfile/pages pdp/internal/decisionlog/format pdp/internal/decisionlog/index pdp/internal/decisionlog/journal pdp/internal/decisionlog/record pdp/internal/decisionlog/segment pdp/internal/evidence pdp/internal/plainfile", "a mistake of the PDP or the server could alter what is on record"},
	{"pdp/internal/decisionlog/journal", "anything of ours but pdp/internal/plainfile", "a record is durable before the log has it, and would wait for the log"},
	{"pdp/internal/decisionlog/index", "anything of ours but pdp/internal/boltfile pdp/internal/boltfile/pages pdp/internal/plainfile", "a page of the log would change when its index is lost and made anew"},
	{"pdp/internal/decisionlog/c2sp", "anything of ours", "a log, its verifiers and its witnesses read these texts, and would carry one another"},
	{"pdp/internal/decisionlog/export", "anything of ours but pdp/internal/decisionlog pdp/internal/decisionlog/c2sp pdp/internal/decisionlog/format pdp/internal/decisionlog/record pdp/internal/decisionlog/segment", "an export could show more than a snapshot of the log shows to its reader"},
	{"pdp/internal/replay", "anything of ours but evaluation evaluation/recent obligations pdp pdp/internal/cedartext pdp/internal/decisionlog pdp/internal/decisionlog/export pdp/internal/decisionlog/format pdp/internal/decisionlog/record pdp/internal/decisionlog/recorder pdp/internal/decisionlog/segment", "a recorded question would be answered otherwise than one that is asked"},
	{"pdp/internal/decisionlog/report", "anything of ours but evaluation pdp/internal/approval pdp/internal/decisionlog pdp/internal/decisionlog/export pdp/internal/decisionlog/format pdp/internal/decisionlog/record pdp/internal/decisionlog/segment", "a number of a report could come from somewhere else than records"},
	{"pdp/internal/decisionlog/remote", "anything of ours but pdp/internal/decisionlog/export pdp/internal/decisionlog/format pdp/internal/decisionlog/record pdp/internal/decisionlog/report pdp/internal/decisionlog/segment pdp/internal/httpclient", "an auditor's desk would carry a server"},
	{"pdp/internal/decisionlog/vouch", "anything of ours but pdp/decisionlog/verify pdp/internal/decisionlog pdp/internal/decisionlog/export pdp/internal/decisionlog/record pdp/internal/decisionlog/segment", "a record would be proved to another process in another way than to an auditor"},
	{"pdp/decisionlog/verify", "anything of ours but pdp/internal/boltfile/pages pdp/internal/decisionlog/c2sp pdp/internal/decisionlog/format pdp/internal/plainfile", "a verifier that shares code with the writer shares its mistakes"},
	{"pdp/internal/decisionlog/witness", "anything of ours but pdp/internal/decisionlog pdp/internal/decisionlog/c2sp pdp/internal/decisionlog/format pdp/internal/decisionlog/segment pdp/internal/httpclient pdp/internal/plainfile", "a witness could be asked for more than checkpoints, or an answer wait for one"},

	// Approvals: kept, decided about, announced.
	{"pdp/internal/ledger", "anything of ours but pdp/internal/keyedmutex", "the ledger keeps items of any kind in any engine, and could keep no others than those of approvals, or in a file alone"},
	{"pdp/internal/ledger/bolt", "anything of ours but pdp/internal/boltfile pdp/internal/ledger pdp/internal/plainfile", "an engine keeps values, and would know what they mean"},
	{"pdp/internal/ledger/etcd", "anything of ours but pdp/internal/ledger", "an engine keeps values, and would know what they mean"},
	{"pdp/internal/cluster", "anything of ours but pdp/internal/ledger pdp/internal/ledger/etcd pdp/internal/plainfile", "what processes share would depend on what they do with it"},
	{"pdp/internal/ledger/ledgertest", "anything of ours but pdp/internal/ledger", "an engine of tests would be a part of what it tests"},
	{"pdp/internal/approval", "anything of ours but evaluation obligations pdp/internal/ledger pdp/internal/ledger/bolt pdp/internal/pace", "an approval would be granted differently by how the answer came: console, API or gateway"},
	{"pdp/internal/capability", "anything of ours but evaluation evaluation/capability evaluation/recent pdp/internal/ledger pdp/internal/ledger/bolt pdp/internal/pace", "a capability would be granted or used differently by how it was asked for, or by what policies say"},
	{"pdp/internal/approval/broker", "pdp/internal/server/... pdp/internal/mcp/... pdp/mcp/... pdp/internal/console/... pdp/internal/approval/inbox pdp/internal/httpclient but pdp/internal/server/auth", "the rules of approving would be spread over HTTP handlers"},
	{"pdp/internal/approval/broker", library + " pdp/internal/ledger/... pdp/internal/boltfile/...", "an approval would be decided beside pdp, or kept beside pdp/internal/approval"},
	{"pdp/internal/capability/broker", "pdp/internal/server/... pdp/internal/mcp/... pdp/mcp/... pdp/internal/console/... pdp/internal/httpclient " + library + " pdp/internal/ledger/... pdp/internal/boltfile/...", "the rules of capabilities would be spread over HTTP handlers, or be kept beside pdp/internal/capability"},
	{"pdp/approval/webhook", "anything of ours but pdp/internal/address pdp/internal/plainfile", "receivers import it to verify a delivery, and would carry the store of approvals"},
	{"pdp/internal/approval/inbox", "anything of ours but evaluation pdp/internal/httpclient", "a server may be of another version, and the client would know more of it than the wire says"},

	// The gateway in front of MCP servers.
	{"pdp/internal/mcp", "pdp " + library + " pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/approval/... pdp/approval/... pdp/internal/console/... pdp/internal/server/... but pdp/approval/webhook pdp/internal/server/auth pdp/internal/server/config", "a gateway asks any PDP over HTTP, and would carry ours and work with no other"},
	{"pdp/internal/mcp/internal/front", "pdp " + library + " pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/approval/... pdp/approval/... pdp/internal/console/... pdp/internal/server/... evaluation/... obligations but pdp/internal/server/auth", "HTTP, standard streams and sessions would decide what a request means: that is the flow's"},
	{"pdp/internal/mcp/internal/flow", "pdp " + library + " pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/approval/... pdp/approval/... pdp/internal/console/... pdp/internal/server/... evaluation/coaz/... obligations pdp/internal/mcp/internal/front pdp/internal/mcp/internal/desk pdp/internal/mcp/internal/flights", "a request would go another way by the connection that it came by, or by a configuration file"},
	{"pdp/internal/mcp/internal/people", "pdp " + library + " pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/approval/... pdp/approval/... pdp/internal/console/... pdp/internal/server/... evaluation/coaz/... obligations pdp/internal/mcp/internal/front pdp/internal/mcp/internal/flow pdp/internal/mcp/internal/upstream", "people would be asked differently by how a call came, or by what its server answers"},
	{"pdp/internal/mcp/internal/link", "pdp " + library + " pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/approval/... pdp/approval/... pdp/internal/console/... pdp/internal/server/... evaluation/authzenclient/... evaluation/coaz/... obligations pdp/internal/mcp/internal/front pdp/internal/mcp/internal/flow pdp/internal/mcp/internal/people pdp/internal/mcp/internal/events pdp/internal/mcp/internal/reply", "what a server lists and says would depend on the request for which it is asked"},
	{"pdp/internal/mcp/internal/answer", "anything of ours but pdp/internal/mcp/internal/ask pdp/internal/mcp/internal/era pdp/internal/rpc pdp/internal/mcp/internal/upstream", "a refusal would be told in as many ways as there are rooms"},
	{"pdp/internal/mcp/internal/meters", "anything of ours but pdp/internal/mcp/internal/answer pdp/internal/mcp/internal/ask pdp/internal/mcp/internal/link pdp/internal/mcp/internal/people pdp/internal/rpc pdp/mcp/wire", "a label could be anything that a client sent"},
	{"pdp/internal/mcp/internal/doors", "anything of ours", "what is waited for at the end would depend on what it works on"},
	{"pdp/internal/mcp/internal/ask", "anything of ours but evaluation evaluation/authzenclient evaluation/authzenclient/approvals evaluation/capability evaluation/coaz obligations pdp/internal/mcp/internal/era pdp/internal/mcp/internal/identity pdp/internal/mcp/internal/leak pdp/internal/rpc pdp/internal/mcp/lock", "a question would change with the connection by which the message came or goes on"},
	{"pdp/internal/rpc", "anything of ours", "the bytes that are decided about are forwarded, and would be read differently for one transport or policy"},
	{"pdp/internal/mcp/internal/era", "anything of ours but pdp/internal/rpc", "the same bytes would become another message for another client or server"},
	{"pdp/internal/mcp/internal/identity", "anything of ours but evaluation pdp/internal/server/auth", "a token would stand for another principal because of what is asked with it"},
	{"pdp/internal/mcp/internal/upstream", "anything of ours but evaluation/recent pdp/internal/mcp/internal/doors pdp/internal/mcp/internal/era pdp/internal/mcp/internal/leak pdp/internal/rpc pdp/internal/address pdp/internal/plainfile pdp/internal/visible", "a connection could decide whether a message may be sent, beside the PDP"},
	{"pdp/internal/mcp/internal/arguments", "anything of ours but evaluation pdp/internal/visible", "arguments would fit a schema for one caller and not for another"},
	{"pdp/internal/mcp/internal/leak", "anything of ours", "a secret would be masked for one transport or message and not for another"},
	{"pdp/internal/mcp/internal/rates", "anything of ours", "a limit would count differently for different principals or messages"},
	{"pdp/internal/mcp/internal/desk", "anything of ours but evaluation/authzenclient evaluation/authzenclient/approvals", "one watch serves all calls that wait, and would be tied to one of them"},
	{"pdp/internal/mcp/internal/flights", "anything of ours but pdp/internal/rpc", "a client cancels a request by its id, and could cancel only the kinds that flights knows"},
	{"pdp/internal/mcp/internal/reply", "anything of ours but pdp/internal/rpc", "an answer would be written differently by what was decided"},
	{"pdp/internal/mcp/internal/events", "anything of ours but evaluation/recent pdp/internal/mcp/internal/identity pdp/internal/rpc", "a listener would miss kinds of events that the package does not know"},
	{"pdp/internal/mcp/internal/requests", "anything of ours", "a request is taken once whatever it is, and a kind with rules of its own could be taken twice"},
	{"pdp/internal/mcp/internal/traces", "anything of ours but pdp/internal/rpc", "a trace would end at the messages that it does not know"},
	{"pdp/internal/mcp/lock", "anything of ours but evaluation pdp/internal/plainfile pdp/internal/visible", "definitions of tools could be compared in a running gateway only, and not in a pipeline"},
	{"pdp/internal/mcp/toolschema", "anything of ours but evaluation pdp/internal/visible", "a schema would change with the server that the definitions come from"},
	{"pdp/mcp/wire", "anything of ours but evaluation evaluation/capability pdp/internal/rpc pdp/internal/visible", "gateways of others send these messages, and would carry our server"},

	// The server: the library and the stores on HTTP.
	{"pdp/internal/server", library, "a server would decide differently from a PDP inside another program"},
	{"pdp/internal/server", "pdp/internal/mcp/... pdp/mcp/...", "a PDP without a gateway would carry one"},
	{"pdp/internal/server", "pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/decisionlog/index pdp/internal/decisionlog/journal", "a file of the data directory would have two owners"},
	{"pdp/internal/server", "pdp/internal/httpclient pdp/internal/approval/inbox pdp/internal/decisionlog/remote", "a route would ask the API again, and one request would count as two"},
	{"pdp/internal/server/approvals", "pdp " + library + " pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/console/... pdp/internal/server/audit pdp/internal/server/config", "the routes of approvals could decide by themselves what the broker decides"},
	{"pdp/internal/server/approvals", "pdp/internal/mcp/... pdp/mcp/... but pdp/mcp/wire", "a PDP without a gateway would carry one"},
	{"pdp/internal/server/audit", "pdp/internal/mcp/... pdp/mcp/...", "a PDP without a gateway would carry one"},
	{"pdp/internal/server/capabilities", library + " pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/console/... pdp/internal/approval/... pdp/approval/... pdp/internal/server/audit pdp/internal/server/approvals pdp/internal/server/config pdp/internal/mcp/... pdp/mcp/...", "the routes of capabilities could decide by themselves what the broker decides"},
	{"pdp/internal/server/audit", "pdp " + library + " pdp/internal/decisionlog/recorder pdp/internal/approval/... pdp/approval/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/console/... pdp/internal/server/approvals pdp/internal/server/config", "reading the log could decide a question or change an approval"},
	{"pdp/internal/server/door", "anything of ours but evaluation pdp/internal/pace pdp/internal/server/auth pdp/internal/server/listener", "a request would be let in differently by the route that it goes to"},
	{"pdp/internal/server/listener", "anything of ours but pdp/internal/finding pdp/internal/plainfile pdp/internal/server/auth", "the gateway listens with it, and would carry the server's routes"},
	{"pdp/internal/server/auth", "anything of ours but evaluation evaluation/recent pdp/internal/plainfile", "gateway and console authenticate with it, and would carry the server"},
	{"pdp/internal/server/auth/keys", "anything of ours but evaluation pdp/internal/datakey pdp/internal/decisionlog/format pdp/internal/decisionlog/record pdp/internal/decisionlog/recorder pdp/internal/decisionlog/segment pdp/internal/ledger pdp/internal/plainfile pdp/internal/server/auth", "commands add and revoke keys with it, and would carry the server"},
	{"pdp/internal/server/config", "anything of ours but pdp/internal/plainfile pdp/internal/spelling pdp/internal/when", "the gateway reads its own configuration with it, and would carry the server's"},
	{"pdp/internal/server/telemetry", "anything of ours but evaluation evaluation/capability obligations pdp/internal/approval pdp/internal/decisionlog pdp/internal/decisionlog/c2sp pdp/internal/decisionlog/witness pdp/internal/server/auth", "all rooms of the server count with it, and could not import it without a cycle"},
	{"pdp/internal/server/sink", "anything of ours but pdp/internal/decisionlog pdp/internal/decisionlog/format pdp/internal/decisionlog/record pdp/internal/server/telemetry", "a sink could send out more than the log holds"},
	{"pdp/internal/backup", "anything of ours but pdp/internal/plainfile", "the format of a backup would depend on the meaning of a file in it, and change with that"},
	{"pdp/internal/server/doctor", library + " pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/mcp/... pdp/mcp/... pdp/internal/console/...", "doctor would judge a file by itself, and differently from the start of the server"},
	{"pdp/internal/finding", "anything of ours", "each part says what is found of it, and none could without a cycle"},
	{"pdp/internal/server/floor", "anything of ours", "our server is measured beside it, and a part that both have would cost nothing in the difference"},

	// The console: a client of our own HTTP API.
	{"pdp/internal/console", "anything of ours but pdp/internal/approval/inbox pdp/internal/console/page pdp/internal/decisionlog/remote pdp/internal/httpclient pdp/internal/plainfile pdp/internal/seal pdp/internal/server/auth", "a page could show what the API would not answer to its reader"},
	{"pdp/internal/console/sessions", "anything of ours but pdp/internal/console pdp/internal/ledger pdp/internal/server/auth", "the sessions of replicas would be kept beside the ledger"},
	{"pdp/internal/console/page", "anything of ours but pdp/internal/visible", "one view would be drawn as two pages, if a session or a clock had a part in it"},

	// Small rooms with one job each.
	{"pdp/internal/boltfile", "anything of ours but pdp/internal/boltfile/pages pdp/internal/plainfile", "the log, its index and the ledger open their files with it, and would carry one another"},
	{"pdp/internal/boltfile/pages", "anything of ours", "the verifier reads files with it, and would share code with the writer"},
	{"pdp/internal/plainfile", "anything of ours", "nearly all rooms open files with it, and would carry all that it imports"},
	{"pdp/internal/datakey", "anything of ours but pdp/internal/plainfile", "masks and approvals keep a key with it each, and would carry one another"},
	{"pdp/internal/signing", "anything of ours but pdp/internal/plainfile", "the log and approvals are signed with it, and would carry one another"},
	{"pdp/internal/evidence", "anything of ours", "the log and the PDP hold with it what nobody may guess by, and would carry one another"},
	{"pdp/internal/seal", "anything of ours but pdp/internal/plainfile", "gateway and console seal with it, and would carry one another"},
	{"pdp/internal/keyedmutex", "anything of ours", "the ledger and the server lock with it, and would carry one another"},
	{"pdp/internal/address", "anything of ours", "webhooks and the gateway judge addresses with it, and would carry one another"},
	{"pdp/internal/pace", "anything of ours", "approvals, capabilities and the door of the server limit rates with it, and would carry one another"},
	{"pdp/internal/httpclient", "anything of ours", "the commands of approvers and auditors would carry a server in order to speak with one"},
	{"pdp/internal/logging", "anything of ours", "server and gateway log with it, and would carry one another"},
	{"pdp/internal/visible", "anything of ours", "terminals, pages and the gateway print with it, and would carry one another"},
	{"pdp/internal/spelling", "anything of ours", "bundles, configurations and commands suggest names with it, and would carry one another"},
	{"pdp/internal/when", "anything of ours", "commands and configurations read times with it, and one time must mean the same in both"},
	{"pdp/internal/version", "anything of ours", "archives and images are named by it, and the programs that make them would carry a server"},
	{"pdp/internal/latency", "anything of ours", "pdp/internal/load measures servers of others with it, and would carry ours"},

	// Helpers of tests: a line of owners keeps them out of the binary.
	{"pdp/pdptest", "pdp/internal/mcp/... pdp/mcp/... pdp/internal/approval/... pdp/approval/... pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/console/... pdp/internal/ledger/...", "tests would reach past HTTP into a server that runs"},
	{"pdp/pdptest/bound", "anything of ours", "benchmarks of any package could not import it without a cycle"},
	{"pdp/pdptest/bundles", "pdp/internal/server/... pdp/internal/mcp/... pdp/mcp/... pdp/internal/approval/... pdp/approval/... pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/console/... pdp/internal/ledger/...", "tests of bundles and of the engine would carry a server in order to ask a question"},
	{"pdp/pdptest/clock", "anything of ours", "tests of any package could not import it without a cycle"},
	{"pdp/pdptest/counted", "anything of ours", "uses would be judged with code that counts them"},
	{"pdp/pdptest/crashedlog", "anything of ours but pdp/internal/decisionlog pdp/internal/decisionlog/format pdp/internal/decisionlog/record", "a crashed log would be made by another program than the log, and could look different"},
	{"pdp/pdptest/database", "anything of ours but pdp/pdptest/judged pdp/pdptest/night", "conditions for rows would be judged with a part of what makes them"},
	{"pdp/pdptest/filetree", "anything of ours", "tests of pdp itself could not import it without a cycle"},
	{"pdp/pdptest/etcdtest", "anything of ours but pdp/internal/ledger pdp/internal/ledger/etcd pdp/pdptest/judged pdp/pdptest/night pdp/pdptest/port", "etcd would be tested with a part of what asks it"},
	{"pdp/pdptest/judged", "anything of ours but pdp/pdptest/filetree pdp/pdptest/night", "our log would be judged with code of ours"},
	{"pdp/pdptest/inside/...", "anything of ours but pdp/internal/...", "tests outside of pdp would get something else by it than the room it is named after"},
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
	{"pdp/pdptest/mcptest", "anything of ours but pdp/pdptest/lies pdp/pdptest/npm pdp/pdptest/port", "a partner that shares code with the gateway could not find its mistakes"},
	{"pdp/internal/mcp/internal/upstream/upstreamtest", "anything of ours but pdp/internal/mcp/internal/era pdp/internal/rpc pdp/internal/mcp/internal/upstream", "tests of the rooms above upstream could not import it without a cycle"},
	{"pdp/pdptest/browsertest", "anything of ours but pdp/pdptest/night", "it could open no other pages than those of the console"},
	{"pdp/pdptest/witnesstest", "anything of ours", "a witness that shares code with its client could not find its mistakes"},
	{"pdp/internal/console/oidctest", "anything of ours", "a provider that shares code with its client could not find its mistakes"},
	{"pdp/internal/visible/hostile", "anything of ours", "tests of any package could not import it without a cycle"},

	// What judges any PDP or PEP from outside.
	{"conformance", "anything of ours but conformance/internal/casefile conformance/internal/wire evaluation", "the suite would share mistakes with our PDP, and pass them"},
	{"conformance/pep", "anything of ours but conformance conformance/internal/casefile conformance/internal/wire", "the suite would read a mapping with the mistakes of our PEP, and pass them"},
	{"pdp/internal/load", "anything of ours but pdp/internal/latency", "it measures any server, and would know a faster way into ours"},
	{"conformance/internal/casefile", "anything of ours", "cases for PDPs and for PEPs are read with it, and would be tied to one suite"},
	{"conformance/internal/wire", "anything of ours", "a request of the suite would be written with the mistakes of our own clients"},
	{"conformance/internal/casetest", "anything of ours", "the pages of all suites are tested with it, and would be tied to one suite"},

	// The one binary. Each group of commands is for one kind of user.
	{"cmd/policy-service", "anything of ours but pdp/command", "main would do work that no test of a command runs"},
	{"pdp/command", "anything of ours but pdp/internal/command pdp/internal/command/cli", "a binary that somebody else builds would do work that ours does not"},
	{"pdp/internal/command", "anything of ours but pdp/internal/command/...", "the command line would do work that no test of a command runs"},
	{"pdp/internal/command/cli", "anything of ours but evaluation pdp/internal/visible pdp/internal/spelling", "all commands print with it, and would carry one another"},
	{"pdp/internal/command/bundledir", "anything of ours but pdp/internal/command/cli pdp", "commands would load a directory differently from the library"},
	{"pdp/internal/command/connection", "anything of ours but pdp/internal/command/cli pdp/internal/httpclient pdp/internal/server", "approvals, capabilities and log reach a server with it, and would carry one another (of pdp/internal/server it uses the name of a variable)"},
	{"pdp/internal/command/completion", "anything of ours but pdp/internal/command/cli", "a line would be completed by something else than the command line"},
	{"pdp/internal/command/process", "anything of ours but pdp/internal/command/cli pdp/internal/finding pdp/internal/plainfile pdp/internal/server/config", "serve and mcp-gateway start with it, and would carry one another"},
	{"pdp/internal/command/author", "pdp/internal/server/... pdp/internal/mcp pdp/internal/mcp/lock pdp/internal/console/... pdp/internal/approval/... pdp/approval/...", "check, test and fmt run in pipelines and editors, and would carry a server"},
	{"pdp/internal/command/operate", "pdp/internal/mcp/... pdp/mcp/... pdp/internal/approval/... pdp/approval/... pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/ledger/... pdp/internal/console/...", "serve would open a store that pdp/internal/server opens, and the file would have two owners"},
	{"pdp/internal/command/gateway", "pdp/internal/approval/... pdp/approval/... pdp/internal/ledger/... pdp/internal/console/... pdp/internal/decisionlog/... pdp/decisionlog/... but pdp/internal/decisionlog pdp/internal/decisionlog/segment", "log and approvals belong to the PDP, which may be in another process"},
	{"pdp/internal/command/tools", "pdp/internal/server/... pdp/internal/approval/... pdp/approval/... pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/console/... but pdp/internal/server/config", "a look at tools would start a server or leave a record"},
	{"pdp/internal/command/approve", "pdp pdp/internal/server/... pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/mcp/... pdp/mcp/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/approval/... pdp/approval/... but pdp/internal/approval/inbox", "an approver has a URL and a credential, and a command that opens files would work on the server's machine only"},
	{"pdp/internal/command/capabilities", "pdp pdp/internal/server/... pdp/internal/decisionlog/... pdp/decisionlog/... pdp/internal/mcp/... pdp/mcp/... pdp/internal/ledger/... pdp/internal/boltfile/... pdp/internal/approval/... pdp/approval/... pdp/internal/capability/...", "an agent has a URL, a credential and a key, and a command that opens files would work on the server's machine only"},
	{"pdp/internal/command/audit", "pdp/internal/server/... pdp/internal/mcp/... pdp/mcp/... pdp/internal/console/... pdp/internal/approval/broker pdp/internal/approval/inbox", "an auditor reads a copy of a log where no server runs"},
}

// owners: PATHS, and what is below them, may be imported only in WHERE, which are packages as in rooms or files, because
// BECAUSE. Where paths overlap, the longest counts.
var owners = []struct{ paths, where, because string }{
	{"github.com/labstack/echo", "pdp/internal/server pdp/internal/server/approvals pdp/internal/server/audit pdp/internal/server/capabilities pdp/internal/server/door pdp/internal/server/floor", "support of v4 ends on 2026-12-31, and a move to v5 would touch more than the server"},
	{"github.com/aymanbagabas/go-udiff", "pdp/internal/console/page", "it compares texts of anybody, and each place must see that they are short and drawn harmless"},
	{"golang.org/x/oauth2", "pdp/internal/console", "people would log in elsewhere than at the console, and all other callers bring a credential"},
	{"go.opentelemetry.io/otel/sdk go.opentelemetry.io/otel/exporters go.opentelemetry.io/contrib", "pdp/internal/server/telemetry", "a library would choose where the telemetry of its process goes"},
	{"github.com/prometheus", "pdp/internal/server/telemetry", "a library would choose how its process shows metrics"},
	{"filippo.io/age", "pdp/internal/command/operate", "a server would hold the keys that its backups are encrypted for, or choose them"},
	{"go.etcd.io/etcd", "pdp/internal/cluster pdp/internal/ledger/etcd pdp/pdptest/etcdtest", "more places would have to know how etcd fails"},
	{"go.uber.org/zap", "pdp/internal/cluster pdp/pdptest/etcdtest", "messages for the operator are by log/slog, and zap is there for a client that wants one"},
	{"go.etcd.io/bbolt", "pdp/internal/boltfile pdp/internal/decisionlog pdp/internal/decisionlog/index pdp/internal/decisionlog/segment pdp/internal/ledger/bolt", "bbolt panics on a damaged file, and more places would have to open files by pdp/internal/boltfile"},
	{"cel.dev/cel-go", "evaluation/coaz", "cel-go adds 10 MB, and each place that evaluates expressions must bound them"},
	{"github.com/santhosh-tekuri/jsonschema", "pdp/internal/bundle pdp/internal/mcp/internal/arguments pdp/pdptest", "it fetches what a schema refers to, cannot be stopped, and quotes secrets, and each place must guard against that"},
	{"github.com/modelcontextprotocol/go-sdk", "evaluation/coaz/sdkpep evaluation/coaz/sdkpep/example", "the gateway is tested against the SDK, and would pass if both wrote a message with the same mistake"},
	{"github.com/cedar-policy/cedar-go", "pdp/internal/access pdp/internal/bundle pdp/internal/engine pdp/internal/filter pdp/internal/lint pdp/internal/outline", "a second place that makes Cedar requests could fail open"},
	{"github.com/cedar-policy/cedar-go/x/exp", "", "it is experimental, and its batch evaluator drops forbids"},
	{"github.com/cedar-policy/cedar-go/x/exp/ast", "pdp/internal/bundle/ast.go pdp/internal/bundle/policysteps.go", "it is experimental, and a change in it would touch more than two files"},
	{"github.com/cedar-policy/cedar-go/x/exp/eval", "pdp/internal/bundle/ast.go", "it is experimental, and evaluates what a filter knows as a decision does"},
	{"github.com/cedar-policy/cedar-go/x/exp/schema", "pdp/internal/bundle/schema.go pdp/internal/bundle/schemafiles.go pdp/internal/bundle/schemasize.go", "it is experimental, and a change in it would touch more than three files"},
	{"policy-service/" + strings.ReplaceAll(library, " ", " policy-service/"), "pdp pdp/internal/lsp " + library, "a command, a server or a store would decide beside pdp"},
	{"policy-service/pdp/internal/rpc", "pdp/mcp/wire pdp/internal/mcp/...", "messages of MCP would be read where no gateway is"},
	{"policy-service/pdp/internal/mcp/internal/front", "pdp/internal/mcp/gateway.go pdp/internal/mcp/new.go", "what a request means would depend on how it came in"},
	{"policy-service/pdp/internal/lsp", "pdp/internal/command/author", "a server would carry an editor's protocol"},
	{"policy-service/evaluation/coaz/sdkpep", "evaluation/coaz/sdkpep/example", "the binary would carry the MCP SDK"},
	{"policy-service/conformance", "conformance conformance/pep pdp/internal/command/operate", "a PDP would know the cases that judge it"},
	{"policy-service/pdp/internal/command", "pdp/command pdp/internal/command/... pdp/pdptest/inside/...", "a server or the library would carry the command line"},
	{"policy-service/pdp/internal/command/gateway", "pdp/internal/command pdp/internal/command/tools", "commands of one kind of user would carry those of another"},
	{"policy-service/pdp/internal/command/approve policy-service/pdp/internal/command/audit policy-service/pdp/internal/command/author policy-service/pdp/internal/command/operate policy-service/pdp/internal/command/tools", "pdp/internal/command", "commands of one kind of user would carry those of another"},
	{"policy-service/pdp/pdptest", "pdp/pdptest/browsertest pdp/pdptest/database pdp/pdptest/mcptest pdp/pdptest/etcdtest pdp/pdptest/judged", "the binary would carry helpers of tests"},
	{"policy-service/pdp/pdptest/mcptest policy-service/pdp/internal/mcp/internal/upstream/upstreamtest policy-service/pdp/internal/console/oidctest policy-service/pdp/pdptest/browsertest policy-service/pdp/pdptest/witnesstest policy-service/pdp/internal/visible/hostile github.com/chromedp", "pdp/pdptest/browsertest", "the binary would carry helpers of tests"},
	{"policy-service/pdp/internal/server/floor", "", "the binary would carry a server that answers without a decision"},
}

// holders are the types and variables outside pdp/internal/server that hold a *server.Server. No other may: with a whole server at
// hand each package would reach for all of it, and none could be tested without one.
var holders = []string{"pdp/pdptest.Server"}

// Where echo is, rules of the product must not be: in a package that imports echo, a file that imports one of domain must
// be a handler, which is a file that imports echo too. wiring are the exceptions, which open a store or configure it.
var (
	domain = []string{"pdp/internal/approval", "pdp/approval/webhook", "pdp/internal/decisionlog/mask"}
	wiring = []string{"pdp/internal/server/log_lifecycle.go", "pdp/internal/server/logconfig.go", "pdp/internal/server/data.go", "pdp/internal/server/approvals.go", "pdp/internal/server/capabilities.go", "pdp/internal/server/reconfigure.go", "pdp/internal/server/backup.go", "pdp/internal/server/restore.go", "pdp/internal/server/cluster.go", "pdp/internal/server/sharedkeys.go", "pdp/internal/server/import.go"}
)

func TestRooms(t *testing.T) {
	for _, r := range rooms {
		for name := range strings.FieldsSeq(r.room + " " + strings.NewReplacer("anything of ours", "", " but ", " ").Replace(r.not)) {
			if !slices.ContainsFunc(sources(t), func(f source) bool { return names(name, f.room()) }) {
				t.Errorf("the line of %s names %s, which is no package: correct it", r.room, name)
			}
		}
	}
	told := map[string]bool{}
	for _, f := range sources(t) {
		line := false
		for _, r := range rooms {
			line = line || names(r.room, f.room())
			not, but, _ := strings.Cut(r.not, " but ")
			for _, p := range f.imports {
				ours, isOurs := strings.CutPrefix(p, module+"/")
				if isOurs && names(r.room, f.room()) && names(not, ours) && !names(but, ours) {
					t.Errorf("%s imports %s, but %s must not import %s, because %s", f.name, ours, r.room, r.not, r.because)
				}
			}
		}
		if !line && !told[f.room()] {
			told[f.room()] = true
			t.Errorf("rooms has no line for %s: add a line, which says what it must not import, and why", f.room())
		}
	}
}

func TestOwners(t *testing.T) {
	for _, o := range owners {
		for where := range strings.FieldsSeq(o.where) {
			if !slices.ContainsFunc(sources(t), func(f source) bool { return where == f.name || names(where, f.room()) }) {
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
			if longest != "" && !slices.Contains(strings.Fields(where), f.name) && !names(where, f.room()) {
				t.Errorf("%s imports %s, which may be imported only in %s, because %s", f.name, p, cmp.Or(where, "tests"), because)
			}
		}
	}
}

func TestHoldersOfServer(t *testing.T) {
	const server = module + "/pdp/internal/server"
	found := map[string]bool{}
	for _, f := range sources(t) {
		if f.room() == "pdp/internal/server" || !slices.Contains(f.imports, server) {
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
		if e.IsDir() && slices.Contains(fixed, e.Name()) && !slices.Contains(filetree.Rooms, e.Name()) {
			t.Errorf("filetree.Rooms lacks %s: the go command would keep results of tests over changes there", e.Name())
		}
	}
	for _, name := range fixed {
		if !found[name] {
			t.Errorf("%s is missing at the top of the repository", name)
		}
	}
}

// TestHelpersPromiseNothing: who finds pdptest in a list of packages reads first that no version keeps it.
func TestHelpersPromiseNothing(t *testing.T) {
	said := map[string]bool{}
	for _, f := range sources(t) {
		if !within(f.room(), "pdp/pdptest") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", f.name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		said[f.room()] = said[f.room()] || strings.HasPrefix(file.Doc.Text(), "Package "+file.Name.Name+" makes no promise: ")
	}
	for room, is := range said {
		if !is {
			t.Errorf("the package comment of %s must begin with %q", room, "Package "+path.Base(room)+" makes no promise: ")
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
		case entry.IsDir() && (hidden || entry.Name() == "testdata" || name == "pdp/pdptest/databases" || name == "pdp/pdptest/judges" || name == "pdp/pdptest/kubernetes" || name == "pdp/pdptest/etcd"): // modules of their own
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
