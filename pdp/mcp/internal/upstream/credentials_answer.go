package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// refusal is the error of an endpoint that gives no token, with its reason if that is a word of the RFCs.
func refusal(status int, body []byte) error {
	var answer struct {
		Error string `json:"error"`
	}
	words := []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
		"invalid_scope", "invalid_target", "access_denied", "temporarily_unavailable", "server_error"}
	if json.Unmarshal(body, &answer) != nil || !slices.Contains(words, answer.Error) {
		answer.Error = "no reason"
	}
	return fmt.Errorf("the token endpoint gives no token: status %d, %s", status, answer.Error)
}

const (
	grantClient   = "client_credentials"
	grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccess    = "urn:ietf:params:oauth:token-type:access_token"
	typeJWT       = "urn:ietf:params:oauth:token-type:jwt"
)

// readToken reads an answer. The answer to an exchange must name the type of its token.
func readToken(body []byte, exchanged bool, asked time.Time) (t token, err error) {
	var answer struct {
		Token   string   `json:"access_token"`
		Type    string   `json:"token_type"`
		Issued  string   `json:"issued_token_type"`
		Expires *float64 `json:"expires_in"`
	}
	if json.Unmarshal(bytes.TrimSpace(body), &answer) != nil {
		return t, errors.New("the answer of the token endpoint is not one JSON object without ambiguities")
	}
	wrong := ""
	switch {
	case answer.Token == "" || len(answer.Token) > mostToken || !isToken(answer.Token):
		wrong = "access_token"
	case !strings.EqualFold(answer.Type, "Bearer"):
		wrong = "token_type"
	case exchanged && answer.Issued != typeAccess && answer.Issued != typeJWT:
		wrong = "issued_token_type"
	case answer.Expires != nil && *answer.Expires <= 0:
		wrong = "expires_in"
	}
	if wrong != "" {
		return t, fmt.Errorf("the answer of the token endpoint is no token that can be used: look at its %s", wrong)
	}
	t.text = answer.Token
	if answer.Expires != nil {
		t.ends = asked.Add(time.Duration(min(*answer.Expires, longest.Seconds())) * time.Second)
	}
	return t, nil
}

// longest is the longest time that a token is kept.
const longest = 24 * time.Hour

// isToken reports whether a text can be a bearer token in a header.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
