package gateway

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/doctor"
)

// remotePDP is the PDP that the gateway asks.
type remotePDP struct{ told mcp.Config }

// Findings looks whether the PDP answers, takes the gateway's key, and has the same time.
func (x remotePDP) Findings(ctx context.Context) (found finding.List) {
	if e := x.told.PDP.Embedded; e != nil {
		return inProcess(ctx, *e)
	}
	client, err := toServer(x.told.PDP.CAFile)
	if err != nil {
		found.Wrong("pdp", err)
		return found
	}
	text, _ := os.ReadFile(x.told.PDP.KeyFile) // [files] says why it cannot be read
	key := strings.TrimSpace(string(text))
	path := "/access/v1/evaluation"
	if tenant := x.told.PDP.Tenant; tenant != evaluation.DefaultTenant {
		path = "/tenants/" + tenant + path
	}
	// This asks nothing: an empty object is refused with 400, but only to a caller that may ask.
	answer, _, err := send(ctx, client, http.MethodPost, x.base()+path, key, "{}")
	if err != nil {
		found.Bites("pdp", "see that it runs, and that pdp.url and pdp.ca_file are right", "every request will be refused: %s does not answer: %v", x.told.PDP.URL, withoutURL(err))
		return found
	}
	clock(answer.Header.Get("Date"), &found)
	switch answer.StatusCode {
	case http.StatusBadRequest:
		found.OK("pdp", "%s answers, and the gateway has the permission decide", x.told.PDP.URL)
	case http.StatusUnauthorized:
		found.Bites("pdp", makeKey, "every request will be refused: the PDP does not take the key of pdp.key_file")
		return found
	case http.StatusForbidden:
		found.Bites("pdp", makeKey, "the key of pdp.key_file has not the permission decide")
	case http.StatusNotFound:
		found.Bites("pdp", "see that pdp.url is the address of a PDP and pdp.tenant one of its tenants", "every request will be refused: %s has no tenant %s, or is no PDP", x.told.PDP.URL, x.told.PDP.Tenant)
		return found
	default:
		found.Bites("pdp", "see its log", "the PDP answers with status %d", answer.StatusCode)
	}
	x.addresses(ctx, client, &found)
	x.permissions(ctx, client, key, &found)
	return found
}

// addresses looks whether the PDP calls itself as the gateway does. It names requests for approval by its own address, and
// the gateway sends its key to no other one than pdp.url. A PDP that publishes no address may not know it.
func (x remotePDP) addresses(ctx context.Context, client *http.Client, found *finding.List) {
	_, text, err := send(ctx, client, http.MethodGet, x.base()+"/.well-known/authzen-configuration", "", "")
	var published struct {
		Point string `json:"policy_decision_point"`
	}
	if err != nil || json.Unmarshal(text, &published) != nil || published.Point == "" {
		return
	}
	if there, here := origin(published.Point), origin(x.told.PDP.URL); there != here {
		found.Bites("people", "write the one of them as the other: pdp.url here, or public_url at the PDP",
			"every call that people must approve will be refused: the PDP says that its address is %s, and pdp.url is %s", there, here)
	}
}

// base is pdp.url without a slash at its end.
func (x remotePDP) base() string { return strings.TrimSuffix(x.told.PDP.URL, "/") }

// origin is the scheme, host and port of a URL; and the URL itself if it is none.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// permissions looks at the permissions of the gateway's key. A PDP of another make does not name them.
func (x remotePDP) permissions(ctx context.Context, client *http.Client, key string, found *finding.List) {
	answer, text, err := send(ctx, client, http.MethodGet, x.base()+"/v1/me", key, "")
	var me struct {
		Permissions []string `json:"permissions"`
	}
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(text, &me) != nil {
		return
	}
	wanted := []string{"search", "request"}
	if asksTheirClients(x.told) && len(x.told.Identity.Issuers) > 0 {
		wanted = append(wanted, "relay")
	}
	for _, permission := range wanted {
		if !slices.Contains(me.Permissions, permission) {
			found.Bites("pdp", makeKey, "the key of pdp.key_file has not the permission %s", permission)
		}
	}
}

const makeKey = "make one: policy-service keys add --data DIR --name mcp-gateway --permission decide --permission search --permission request --permission relay"

// mostSkew is how far two clocks may be apart before tokens and approvals end at other times than they say.
const mostSkew = 10 * time.Second

func clock(date string, found *finding.List) {
	at, err := http.ParseTime(date)
	if skew := time.Since(at).Abs().Round(time.Second); err == nil && skew > mostSkew { // a PDP that does not say is passed over
		found.Bites("clock", "have both machines set their clocks, by NTP or another way", "the clocks of this machine and of the PDP are %v apart", skew)
	}
}

// inProcess looks at the PDP in the process as the doctor of a server does.
func inProcess(ctx context.Context, e mcp.EmbeddedConfig) (found finding.List) {
	config := server.Config{Policies: e.Policies, Data: e.Data, Program: server.Program{InProcess: true}}
	for _, f := range doctor.Examine(ctx, doctor.Patient{Config: config}) {
		if f.Check != "configuration" && (e.Data != "" || f.Check != "data") {
			found = append(found, f)
		}
	}
	return found
}

// toServer asks one server, and follows it nowhere.
func toServer(caFile string) (*http.Client, error) {
	transport, err := ToPDP(mcp.PDPConfig{CAFile: caFile})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}
