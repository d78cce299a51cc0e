// Package capabilities has the commands about capability tokens, policy-service capabilities. An agent makes a key, requests
// a capability, proves that it holds one, and gives it back. Operators list capabilities and take them back, and anybody
// with the keys of the service can verify a token.
//
// A token is printed where it is asked for, and nowhere else; no error holds one, or a proof.
package capabilities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/connection"
	"policy-service/pdp/internal/httpclient"
)

// Command is policy-service capabilities.
type Command struct {
	Key      keyCommand      `cmd:"" help:"Make the key of a holder, to which capabilities are bound."`
	Request  requestCommand  `cmd:"" help:"Ask for a capability, and print its token."`
	Renew    renewCommand    `cmd:"" help:"Ask for a new token of a capability, with the same key."`
	Delegate delegateCommand `cmd:"" help:"Hand a narrower capability on to another holder, and print its token."`
	Prove    proveCommand    `cmd:"" help:"Print the proof of one call, which the holder of a capability makes."`
	Verify   verifyCommand   `cmd:"" help:"Check a token, and the proof of a call, without the server."`
	List     listCommand     `cmd:"" help:"List capabilities."`
	Show     showCommand     `cmd:"" help:"Show one capability: who holds it, for which tools, until when."`
	Revoke   revokeCommand   `cmd:"" help:"Take back one capability, or all of a holder, key or server."`
	Return   returnCommand   `cmd:"" help:"Give a capability back, as the program that asked for it."`
}

// serverFlags are the server and the credential of the caller.
type serverFlags struct {
	connection.Flags `set:"needs=It needs the permission capability, or capability.admin for what others asked for."`
}

// exits ends the help of the commands that ask a server.
const exits = "Exit codes: 0 if it is done, 1 if the server refuses it, 2 if the command is wrong or the server could not be asked."

// open calls f with the server. what names the failed act in an error.
func (at serverFlags) open(s cli.Streams, what string, f func(context.Context, *httpclient.Server) error) error {
	options, err := connection.Options(at.Credential, at.CA)
	if err != nil {
		return at.failed(s, what, err)
	}
	server, err := httpclient.New(at.Server, options)
	if err != nil {
		return at.failed(s, what, err)
	}
	defer server.Close()
	ctx, stop := cli.UntilSignal()
	defer stop()
	var ended cli.ExitCode
	if err := f(ctx, server); errors.As(err, &ended) {
		return ended // the person has read why
	} else if err != nil {
		return at.failed(s, what, err)
	}
	return nil
}

func (at serverFlags) failed(s cli.Streams, what string, err error) error {
	status := httpclient.StatusOf(err)
	var failure *authzenclient.Error
	if errors.As(err, &failure) {
		if status = failure.Status; failure.Kind == authzenclient.NotApproved {
			status = http.StatusConflict // people refused it
		}
		err = &httpclient.Error{Status: failure.Status, Detail: failure.Detail}
		if failure.Status == 0 {
			err = errors.New(string(failure.Kind) + ": " + failure.Detail)
		}
	}
	return connection.Failed(s, status, fmt.Errorf("cannot %s: %w; %s", what, err, at.try(status, err)))
}

func (at serverFlags) try(status int, err error) string {
	switch status {
	case http.StatusBadRequest:
		switch says := err.Error(); {
		case strings.Contains(says, string(capability.ProofWrongAudience)):
			return "give --server the service's own URL, which its operator sets as public_url"
		case strings.Contains(says, string(capability.ProofMissing)):
			return "give --key the private key, or use a credential that has the permission capability.admin, too"
		}
		return "correct it, and run it again"
	case http.StatusForbidden:
		return "policy-service keys add makes a key with another --permission"
	case http.StatusNotFound:
		return "try policy-service capabilities list " + at.Where()
	case http.StatusConflict:
		if strings.Contains(err.Error(), "not_narrower") {
			return "policy-service capabilities show says what it has"
		}
		return "ask for another one with policy-service capabilities request"
	}
	return connection.Try(err)
}
