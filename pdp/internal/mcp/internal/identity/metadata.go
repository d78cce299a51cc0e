package identity

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server/auth"
)

// wellKnown is where RFC 9728 has the metadata of a resource.
const wellKnown = "/.well-known/oauth-protected-resource"

// resource is an identifier that is an address. Its metadata is at path on its own host, which metadata has whole.
type resource struct{ id, metadata, path string }

// plainResource has no character that needs an escape anywhere: in the identifier, in a path, in a header.
var plainResource = regexp.MustCompile(`^(https?://[A-Za-z0-9.:\[\]-]+)((?:/[A-Za-z0-9._~-]+)*/?)$`)

// CheckResource is an error for what is no identifier of a resource that clients can use.
func CheckResource(text string) error {
	_, err := parseResource(text)
	return err
}

func parseResource(text string) (resource, error) {
	u, err := url.Parse(text)
	parts := plainResource.FindStringSubmatch(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil:
		return resource{}, errors.New("resource is no absolute URL; write it like https://mcp.example.com/mcp")
	case strings.Contains(text, "#"):
		return resource{}, errors.New("resource has a fragment, which no token's audience has; write it without")
	case u.Scheme == "http" && !auth.IsLoopbackName(u.Hostname()):
		return resource{}, errors.New("resource is plain HTTP on another host than loopback; clients would send tokens in the clear; write https")
	case parts == nil || u.Hostname() == "" || path.Clean("/"+parts[2]) != "/"+strings.Trim(parts[2], "/"):
		return resource{}, errors.New("resource is no plain address; write the one that clients use, such as https://mcp.example.com/mcp")
	}
	at := wellKnown
	if parts[2] != "/" {
		at += parts[2]
	}
	return resource{id: text, metadata: parts[1] + at, path: at}, nil
}

// MetadataPaths are where the metadata is: the resource's path behind the well-known one, and the well-known one alone, at
// which clients look if they know no more than the host. A fixed identity has none.
func (i *Identity) MetadataPaths() []string {
	if i.fixed != nil {
		return nil
	}
	return slices.Compact([]string{i.resource.path, wellKnown})
}

// Metadata is the document of RFC 9728, as JSON. A fixed identity has none.
func (i *Identity) Metadata() []byte { return slices.Clone(i.metadata) }

func (i *Identity) document(name string) ([]byte, error) {
	document := struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers,omitempty"`
		Bearer   []string `json:"bearer_methods_supported"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Name     string   `json:"resource_name,omitempty"`
	}{i.resource.id, i.servers(), []string{"header"}, i.scopes, name}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("the metadata cannot be written: %w; take what is not UTF-8 out of the names in the configuration", err)
	}
	return text, nil
}

// servers are the issuers at whose address clients may look. With a jwks_file an issuer may be any text.
func (i *Identity) servers() (addresses []string) {
	for address := range i.issuers {
		u, err := url.Parse(address)
		if err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && auth.IsLoopbackName(u.Hostname())) {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return addresses
}

// scope is what RFC 6749 lets a scope be.
var scope = regexp.MustCompile(`^[!#-\[\]-~]{1,128}$`)

func checkScopes(scopes []string) error {
	for n, s := range scopes {
		if !scope.MatchString(s) || slices.Contains(scopes[:n], s) {
			return fmt.Errorf("identity.scopes[%d]: it is no scope, or given twice; write one such as mcp:tools", n)
		}
	}
	return nil
}
