package gateway

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/mcp"
	"policy-service/pdp/server"
	"policy-service/pdp/server/doctor"
)

// pdp is whether the PDP answers, takes the gateway's key, and has the same time.
func (x *exam) pdp() {
	if e := x.told.PDP.Embedded; e != nil {
		x.embedded(*e)
		return
	}
	client, err := toServer(x.told.PDP.CAFile)
	if err != nil {
		x.wrong("pdp", err)
		return
	}
	key, _ := os.ReadFile(x.told.PDP.KeyFile) // files says why it cannot be read
	for _, route := range []struct{ path, permission string }{
		{"/access/v1/evaluation", "decide"}, {"/access/v1/search/action", "search"}, {"/access/v1/requests", "request"},
	} {
		answer, err := x.probe(client, route.path, strings.TrimSpace(string(key)))
		if err != nil {
			x.bites("pdp", "see that it runs, and that pdp.url and pdp.ca_file are right", "every request will be refused: %s does not answer: %v", x.told.PDP.URL, withoutURL(err))
			return
		}
		if route.permission == "decide" {
			x.clock(answer.Header.Get("Date"))
		}
		if !x.permitted(answer.StatusCode, route.permission) {
			return
		}
	}
	x.addresses(client)
	x.relays(client, strings.TrimSpace(string(key)))
}

// addresses is whether the PDP calls itself as the gateway does. It names requests for approval by its own address, and
// the gateway sends its key to no other one than pdp.url. A PDP that publishes no address may not know it.
func (x *exam) addresses(client *http.Client) {
	_, text, err := x.send(client, http.MethodGet, strings.TrimSuffix(x.told.PDP.URL, "/")+"/.well-known/authzen-configuration", "", "")
	var published struct {
		Point string `json:"policy_decision_point"`
	}
	if err != nil || json.Unmarshal(text, &published) != nil || published.Point == "" {
		return
	}
	if there, here := origin(published.Point), origin(x.told.PDP.URL); there != here {
		x.bites("people", "write the one of them as the other: pdp.url here, or public_url at the PDP",
			"every call that people must approve will be refused: the PDP says that its address is %s, and pdp.url is %s", there, here)
	}
}

// origin is a URL without what stands behind scheme, host and port; and the URL itself if it is none.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// probe asks nothing: an empty object is refused, but only to a caller who may ask.
func (x *exam) probe(client *http.Client, path, key string) (*http.Response, error) {
	base := strings.TrimSuffix(x.told.PDP.URL, "/")
	if tenant := x.told.PDP.Tenant; tenant != "" && tenant != evaluation.DefaultTenant {
		base += "/tenants/" + tenant
	}
	answer, _, err := x.send(client, http.MethodPost, base+path, key, "{}")
	return answer, err
}

// send sends a request, and reads a small answer.
func (x *exam) send(client *http.Client, method, address, key, body string) (answer *http.Response, text []byte, err error) {
	ctx, cancel := context.WithTimeout(x.ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if answer, err = client.Do(r); err != nil {
		return nil, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(answer.Body, mostSecret)) // to its end, so that its connection can be used again
	return answer, text, err
}

// relays is whether the PDP takes what people answer to a form of the gateway. Whom the PDP knows, only its operator sees.
func (x *exam) relays(client *http.Client, key string) {
	if why := NoForm(x.told); why != "" {
		x.ok("people", "%s", why)
	}
	if !asksTheirClients(x.told) || len(x.told.Identity.Issuers) == 0 {
		return
	}
	answer, text, err := x.send(client, http.MethodGet, strings.TrimSuffix(x.told.PDP.URL, "/")+"/v1/me", key, "")
	var me struct {
		Caller      string   `json:"caller"`
		Permissions []string `json:"permissions"`
	}
	if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(text, &me) != nil {
		x.ok("people", "whether %s takes what people answer to forms cannot be seen: it does not say what the gateway may do", x.told.PDP.URL)
		return
	}
	if !slices.Contains(me.Permissions, "relay") {
		x.bites("people", makeKey, "no form is shown to anybody: the key of pdp.key_file has not the permission relay")
		return
	}
	name := strings.TrimPrefix(me.Caller, "key:")
	for _, i := range x.told.Identity.Issuers {
		x.ok("people", "the gateway has the permission relay. People of %s are shown forms if the PDP has them in auth.jwt, with audience: %s, relayed_by: [%s] and a principal that is called as here; whether it does cannot be seen from here",
			i.Issuer, cmp.Or(i.Audience, x.told.Resource), name)
	}
}

const makeKey = "make one: policy-service keys add --data DIR --name mcp-gateway --permission decide --permission search --permission request --permission relay"

// permitted says what the status of a probe means, and reports whether the next one can say more.
func (x *exam) permitted(status int, permission string) bool {
	switch status {
	case http.StatusBadRequest:
		x.ok("pdp", "%s answers, and the gateway has the permission %s", x.told.PDP.URL, permission)
	case http.StatusUnauthorized:
		x.bites("pdp", makeKey, "every request will be refused: the PDP does not take the key of pdp.key_file")
		return false
	case http.StatusForbidden:
		x.bites("pdp", makeKey, "the key of pdp.key_file has not the permission %s", permission)
	case http.StatusNotFound:
		if permission == "request" {
			x.ok("pdp", "the PDP has no decision log, and so asks nobody for an approval")
			break
		}
		x.bites("pdp", "see that pdp.url is the address of a PDP and pdp.tenant one of its tenants", "every request will be refused: %s has no tenant %s, or is no PDP", x.told.PDP.URL, x.told.PDP.Tenant)
		return false
	default:
		x.bites("pdp", "see its log", "the PDP answers with status %d", status)
	}
	return true
}

// mostSkew is how far two clocks may be apart before tokens and approvals end at other times than they say.
const mostSkew = 10 * time.Second

func (x *exam) clock(date string) {
	at, err := http.ParseTime(date)
	if err != nil {
		return // it does not say
	}
	if skew := time.Since(at).Round(time.Second); skew.Abs() > mostSkew {
		x.bites("clock", "have both machines set their clocks, by NTP or another way", "the clock of this machine is %v ahead of the PDP's", skew)
		return
	}
	x.ok("clock", "it agrees with the PDP's")
}

// embedded looks at the PDP in the process as the doctor of a server does.
func (x *exam) embedded(e mcp.EmbeddedConfig) {
	if e.Data == "" {
		x.bites("pdp", "write pdp.embedded.data, or --pdp-data DIR", "the PDP in this process keeps nothing: there is no decision log, and nobody is asked for an approval")
	}
	config := server.Config{Policies: e.Policies, Data: e.Data, Program: server.Program{InProcess: true}}
	for _, f := range doctor.Examine(x.ctx, doctor.Patient{Policies: e.Policies, Config: config}) {
		if f.Check != "listen" && f.Check != "configuration" && (e.Data != "" || f.Check != "data") {
			x.findings = append(x.findings, f)
		}
	}
	if e.Data == "" {
		return
	}
	if bundle, _ := pdp.Load(pdp.Dir(e.Policies)); bundle != nil { // what is wrong with it is said already
		if others := takeOthers(bundle); others != "" {
			x.ok("people", "%s: %s", others, NobodyElse)
		}
	}
}

// toServer asks one server, and follows it nowhere.
func toServer(caFile string) (*http.Client, error) {
	transport, err := ToPDP(mcp.PDPConfig{CAFile: caFile})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}
