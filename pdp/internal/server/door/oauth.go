package door

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
)

// OAuthError is an error in the form of RFC 6749, section 5.2.
type OAuthError struct {
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// NewOAuthError holds a description to the characters that RFC 6749 takes.
func NewOAuthError(code, description string) OAuthError {
	return OAuthError{code, strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case r == '\\':
			return '/'
		case r < ' ' || r > '~':
			return '.'
		}
		return r
	}, description)}
}

func (p *Problem) oauth() OAuthError {
	if p.Pointer != "" {
		return NewOAuthError(p.OAuth, p.Pointer+": "+p.Detail)
	}
	return NewOAuthError(p.OAuth, p.Detail)
}

// oauthErrors are those of problems whose status says more than that the request is not good.
var oauthErrors = map[int]string{
	http.StatusUnauthorized:        "invalid_client",
	http.StatusForbidden:           "unauthorized_client",
	http.StatusTooManyRequests:     "temporarily_unavailable",
	http.StatusServiceUnavailable:  "temporarily_unavailable",
	http.StatusInternalServerError: "server_error",
}

// OAuth answers with an error in the form of OAuth.
func (d *Door) OAuth(c echo.Context, err error) error {
	p := *d.problemOf(err, evaluation.AuthZEN)
	p.OAuth = cmp.Or(p.OAuth, oauthErrors[p.Status], "invalid_request")
	return d.answer(c, &p, err)
}
