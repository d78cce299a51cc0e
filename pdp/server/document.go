package server

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/schemas"
)

// jwks answers the public halves of the signing keys.
func (s *Server) jwks(c echo.Context) error {
	if _, err := s.door.Recognize(c); err != nil {
		return err
	}
	body := s.signing.JWKS()
	return document(c, "application/json", entityTag(body), body)
}

// openAPI answers the description of all that is served.
func (s *Server) openAPI(c echo.Context) error {
	if _, err := s.door.Recognize(c); err != nil {
		return err
	}
	return document(c, "application/yaml", entityTag(schemas.OpenAPI), schemas.OpenAPI)
}

// document answers what may be kept, or 304 to who has it already.
func document(c echo.Context, contentType, tag string, body []byte) error {
	header := c.Response().Header()
	header.Set("Cache-Control", maxAge)
	header.Set("ETag", tag)
	if matches(c.Request().Header.Values("If-None-Match"), tag) {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, contentType, body)
}

func entityTag(content []byte) string {
	hash := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`
}

// matches is the weak comparison of RFC 9110, 13.1.2. Our tags hold no comma.
func matches(lists []string, tag string) bool {
	for _, list := range lists {
		for given := range strings.SplitSeq(list, ",") {
			given = strings.TrimSpace(given)
			if given == "*" || strings.TrimPrefix(given, "W/") == tag {
				return true
			}
		}
	}
	return false
}
