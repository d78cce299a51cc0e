package authzenclient

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// parseBase never repeats the text in an error: a URL may hold a password.
func parseBase(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(s, "/"))
	switch {
	case err != nil, u.Hostname() == "", u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("authzen: the base URL is not an http or https URL")
	case u.User != nil:
		return nil, errors.New("authzen: the base URL holds credentials; use WithKey or WithToken")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(s, "#"):
		return nil, errors.New("authzen: the base URL has a query or a fragment; leave them out")
	}
	return u, nil
}

// originOf is scheme, host and port, in the one form that can be compared.
func originOf(u *url.URL) string {
	scheme := strings.ToLower(u.Scheme)
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[scheme])
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// exposed reports whether an origin is plain http to another machine.
func exposed(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" {
		return err != nil
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback())
}

// trusted holds endpoints to the origin that was asked, or one that was allowed:
// metadata must not be able to send requests elsewhere.
func (a address) trusted(endpoint string) error {
	if strings.Contains(endpoint, "?") {
		return errors.New("has a query, which no endpoint has")
	}
	return a.near(endpoint)
}

// near is trusted for addresses of one thing only, such as a task, which may have a query.
func (a address) near(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("is not a URL without fragment and credentials")
	}
	if origin := originOf(u); origin != a.origin && !slices.Contains(a.allowed, origin) {
		return errors.New("is at another origin than the base URL; see WithEndpointOrigin")
	}
	return nil
}
