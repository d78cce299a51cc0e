// Package connection is how a command reaches a running server: the flags for that, the meaning of --credential and --ca,
// and advice if the server cannot be asked. It asks nothing itself.
package connection

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server"
)

// Flags are the server that a command asks, and the credential of its caller.
type Flags struct {
	Server     string    `required:"" asks:"server" placeholder:"URL" help:"The URL of a running server. It must be https, or http on this machine, or unix:PATH for its socket. Without the flag, $$POLICY_SERVICE_SERVER is used."`
	Credential cli.Given `placeholder:"FILE" help:"The file with an API key or a token, which tells the server who you are. ${needs} Without the flag, the key itself in $$POLICY_SERVICE_KEY is used."`
	CA         cli.Given `name:"ca" placeholder:"FILE" help:"The root certificates to trust instead of the system's, in PEM."`
	JSON       bool      `name:"json" help:"Print JSON, for programs: one line for each answer."`
}

// Resolve gives each flag with the tag asks the URL in [server.ServerVariable], unless a flag that excludes it is given: an
// explicit --data counts before the environment.
func Resolve(_ *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	excluded := func(other *kong.Flag) bool {
		return other.Set && slices.ContainsFunc(other.Xor, func(group string) bool { return slices.Contains(flag.Xor, group) })
	}
	if url := os.Getenv(server.ServerVariable); url != "" && flag.Tag.Has("asks") && !slices.ContainsFunc(parent.Flags, excluded) {
		return url, nil
	}
	return nil, nil
}

// Where are the same flags on a command line.
func (f Flags) Where() string {
	words := "--server " + cli.Shell(f.Server)
	if f.Credential != "" {
		words += " --credential " + cli.Shell(string(f.Credential))
	}
	if f.CA != "" {
		words += " --ca " + cli.Shell(string(f.CA))
	}
	return words
}

// Failed prints the message of a refusal, which is an answer and exits 1, and returns every other one.
func Failed(s cli.Streams, status int, message error) error {
	switch status {
	case http.StatusForbidden, http.StatusNotFound, http.StatusConflict:
		s.Fail(message)
		return cli.No
	}
	return message
}

// Options are how a running server is asked, by the values of --credential and --ca. A variable holds the credential if no
// file does: a flag would show it to every user of the machine.
func Options(credential, ca cli.Given) (o httpclient.Options, err error) {
	o.Credential = strings.TrimSpace(os.Getenv(server.CredentialVariable))
	if credential != "" {
		content, err := cli.ReadSmall(string(credential), os.Stdin)
		if err != nil {
			return o, fmt.Errorf("the credential cannot be read: %w", err)
		}
		if o.Credential = strings.TrimSpace(string(content)); o.Credential == "" {
			return o, fmt.Errorf("%s is empty, and holds no credential", credential)
		}
	}
	if ca != "" {
		pem, err := os.ReadFile(string(ca))
		if err != nil {
			return o, fmt.Errorf("the authorities cannot be read: %w", err)
		}
		o.Roots = x509.NewCertPool()
		if !o.Roots.AppendCertsFromPEM(pem) {
			return o, fmt.Errorf("%s holds no certificate in PEM", ca)
		}
	}
	return o, nil
}

// Try is advice about an error of a server, whatever the request was.
func Try(err error) string {
	if errors.Is(err, context.Canceled) {
		return "it was interrupted, run it again"
	}
	switch httpclient.StatusOf(err) {
	case 0:
		return "see that --server, --credential and --ca are right, and that the server runs"
	case http.StatusUnauthorized:
		return "try --credential FILE, or " + server.CredentialVariable + ", with a key of this server"
	case http.StatusForbidden:
		return "policy-service keys add makes a key with another --permission"
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return "try again in a while"
	}
	return "if this does not help, see the service's log"
}
