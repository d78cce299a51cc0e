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

// oauthErrors are those of problems that are answered with their own status. All others are answered with 400.
var oauthErrors = map[int]string{
	http.StatusBadRequest:            "invalid_request",
	http.StatusUnauthorized:          "invalid_client",
	http.StatusNotFound:              "invalid_request",
	http.StatusRequestEntityTooLarge: "invalid_request",
	http.StatusTooManyRequests:       "temporarily_unavailable",
	http.StatusServiceUnavailable:    "temporarily_unavailable",
	http.StatusInternalServerError:   "server_error",
}

// OAuth answers with an error in the form of OAuth.
func (d *Door) OAuth(c echo.Context, err error) error {
	p := *d.problemOf(err, evaluation.AuthZEN)
	code, its := oauthErrors[p.Status]
	if p.Status == http.StatusForbidden {
		code = "unauthorized_client"
	}
	if !its {
		p.Status = http.StatusBadRequest
	}
	p.OAuth = cmp.Or(p.OAuth, code, "invalid_request")
	return d.answer(c, &p, err)
}
