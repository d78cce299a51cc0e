package mcp

import (
	"net/http"
	"regexp"

	"policy-service/pdp/server/config"
)

// ownHeaders are those that the gateway itself writes, or that HTTP does.
var ownHeaders = regexp.MustCompile(`^(Host|Connection|Keep-Alive|Upgrade|Te|Trailer|Transfer-Encoding|Content-.*|Accept.*|Cookie|Proxy-.*|Mcp-.*|Last-Event-Id|Traceparent|Tracestate|Baggage)$`)

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (a UpstreamAuth) check(m *config.Reading, path string) {
	kinds := 0
	if a.HeaderFile != "" {
		kinds++
	}
	switch {
	case a.Header != "" && a.HeaderFile == "":
		m.Addf(path+".header", "%s has a header without its value; write header_file, or leave it out", path)
	case a.Header != "" && (!headerName.MatchString(a.Header) || ownHeaders.MatchString(http.CanonicalHeaderKey(a.Header))):
		m.Addf(path+".header", "%s.header is no header that a credential can be in; write one such as Authorization or X-Api-Key", path)
	}
	if t := a.TokenExchange; t != nil {
		kinds++
		t.check(m, path+".token_exchange")
		if t.Audience == "" && t.Resource == "" {
			m.Addf(path+".token_exchange", "%s.token_exchange says not for whom the token is to be; write audience or resource", path)
		}
	}
	if t := a.ClientCredentials; t != nil {
		kinds++
		t.check(m, path+".client_credentials")
	}
	if kinds > 1 {
		m.Addf(path, "%s says more than one credential; keep one of header_file, token_exchange and client_credentials", path)
	}
}

func (t TokenEndpoint) check(m *config.Reading, path string) {
	checkNetworks(m, path, t.AllowNetworks)
	switch err := overTLS(t.TokenURL); {
	case t.TokenURL == "" || t.ClientID == "" || t.ClientSecretFile == "":
		m.Addf(path, "%s lacks token_url, client_id or client_secret_file; write all of them", path)
	case err != nil:
		m.Addf(path+".token_url", "%s.token_url %w", path, err)
	}
}
