package server

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// pathSegment is what a path of a public_url may be made of: no character that a proxy would encode, decode or remove,
// or that a route could take for its own.
var (
	pathSegment = regexp.MustCompile(`^[A-Za-z0-9_~.-]*[A-Za-z0-9_~-][A-Za-z0-9_~.-]*$`)
	hostAndPort = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$`)
)

// cleanPublicURL returns a public_url as it is written into metadata: as it was given, without a slash at its end.
// Clients compare it byte by byte.
func cleanPublicURL(given string) (string, error) {
	u, err := url.Parse(given)
	switch {
	case err != nil || strings.ContainsAny(given, " \t\r\n\\%"):
		return "", errors.New("public_url is no URL; try https://pdp.example.com")
	case u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "" || u.Host == "":
		return "", errors.New("public_url must be absolute, with https or http; try https://pdp.example.com")
	case u.User != nil:
		return "", errors.New("public_url holds a user or a password; leave them out")
	case strings.ContainsAny(given, "?#"):
		return "", errors.New("public_url must have neither query nor fragment; leave them out")
	case !hostAndPort.MatchString(u.Host):
		return "", errors.New("public_url has no usable host; try https://pdp.example.com")
	}
	path := strings.TrimSuffix(u.Path, "/")
	for i, segment := range strings.Split(path, "/") {
		if i > 0 && (!pathSegment.MatchString(segment)) {
			return "", errors.New("public_url has a path of other than plain names; use letters, digits, - . _ ~ between single slashes")
		}
		// Otherwise its metadata would have the path of a tenant's metadata.
		if i == 1 && segment == "tenants" {
			return "", errors.New("public_url has a path that begins with /tenants, which is the service's own; use another path")
		}
	}
	return u.Scheme + "://" + u.Host + path, nil
}

// logOrigin is the name of a log that begins at a clean public_url: C2SP has it be the prefix of the tiles, without scheme. It
// is "" if there is none, or it could not stand in a signed note.
func logOrigin(clean string) string {
	_, rest, found := strings.Cut(clean, "://")
	if !found || strings.ContainsFunc(rest, func(r rune) bool { return r == '+' || unicode.IsSpace(r) }) {
		return ""
	}
	return rest + "/v1/log"
}

// urlPath is the path of a clean public_url, "" if there is none.
func urlPath(clean string) string {
	_, rest, _ := strings.Cut(clean, "://")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return ""
}
