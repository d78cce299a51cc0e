package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/httpclient"
)

// approvalsCommand is for approvers: what programs want to do, and wait for a person to agree to. All of it asks a running
// server, which knows who somebody is by the credential alone.
type approvalsCommand struct {
	List     approvalsListCommand     `cmd:"" help:"List the approval requests that you may decide about."`
	Show     approvalsShowCommand     `cmd:"" help:"Show one approval request: what is asked, by whom, for whom, and the votes."`
	Approve  approvalsApproveCommand  `cmd:"" help:"Approve an approval request as you have seen it."`
	Deny     approvalsDenyCommand     `cmd:"" help:"Deny an approval request for good."`
	Delegate approvalsDelegateCommand `cmd:"" help:"Name another person who decides in your place."`
	Revoke   approvalsRevokeCommand   `cmd:"" help:"Take back an approval, as far as it is not used."`
	Cancel   approvalsCancelCommand   `cmd:"" help:"Withdraw an approval request, as the caller that filed it."`
	Watch    approvalsWatchCommand    `cmd:"" help:"Print the pending approval requests, and each new one until you interrupt it."`
}

// approvalsAt says which server is meant, and who asks.
type approvalsAt struct {
	Server     string    `required:"" placeholder:"URL" help:"The URL of a running server. It must be https, or http on this machine."`
	Credential cli.Given `placeholder:"FILE" help:"The file with an API key or a token, which tells the server who you are. An approver needs one that has the permission approve. Without the flag, $$POLICY_SERVICE_KEY is used."`
	CA         cli.Given `name:"ca" placeholder:"FILE" help:"The root certificates to trust instead of the system's, in PEM."`
	JSON       bool      `name:"json" help:"Print JSON, for programs: one line for each approval request."`
}

// approvalID is the request that is meant.
type approvalID struct {
	ID string `arg:"" help:"The id of the approval request."`
}

// refusing is how approvals that change something exit.
const refusing = "\n\nExit codes: 0 if it is done, 1 if the server refuses it (the approval request is decided, has changed, or is not yours), 2 if the command is wrong or the server could not be asked."

// open hands the requests of the server to f, and says what failed.
func (a approvalsAt) open(s cli.Streams, what string, f func(context.Context, *inbox.Inbox) error) error {
	options, err := clientOptions(a.Credential, a.CA)
	if err != nil {
		return a.failed(s, what, err)
	}
	box, err := inbox.New(a.Server, options)
	if err != nil {
		return a.failed(s, what, err)
	}
	defer box.Close()
	ctx, stop := untilSignal()
	defer stop()
	if err := f(ctx, box); err != nil {
		return a.failed(s, what, err)
	}
	return nil
}

// failed tells a refusal, which is an answer, from what could not be asked.
func (a approvalsAt) failed(s cli.Streams, what string, err error) error {
	message := fmt.Errorf("cannot %s: %s; %s", what, err, a.try(err))
	switch httpclient.StatusOf(err) {
	case http.StatusForbidden, http.StatusNotFound, http.StatusConflict:
		s.Fail(message)
		return cli.No
	}
	return message
}

func (a approvalsAt) try(err error) string {
	switch httpclient.StatusOf(err) {
	case http.StatusBadRequest:
		return "correct it, and run it again"
	case http.StatusForbidden:
		return "the policies say who may decide, and the operator says who you are (keys add --principal)"
	case http.StatusNotFound:
		return "try policy-service approvals list " + a.where()
	case http.StatusConflict:
		return "try policy-service approvals show ID " + a.where()
	}
	return tryServer(err)
}

// where is the server on a command line, and who asks.
func (a approvalsAt) where() string {
	words := "--server " + cli.Shell(a.Server)
	if a.Credential != "" {
		words += " --credential " + cli.Shell(string(a.Credential))
	}
	if a.CA != "" {
		words += " --ca " + cli.Shell(string(a.CA))
	}
	return words
}

// print shows one request, to programs or to people.
func (a approvalsAt) print(s cli.Streams, r inbox.Request) {
	if a.JSON {
		s.Print("%s", r.JSON)
		return
	}
	approvalPage{Streams: s, at: a}.print(r)
}

type approvalsShowCommand struct {
	approvalsAt
	approvalID
	Wait time.Duration `placeholder:"D" help:"While the approval request is pending, wait up to this long until it is decided, such as 30s."`
}

// Run shows a request.
func (c approvalsShowCommand) Run(s cli.Streams) error {
	return c.open(s, "show the approval request", func(ctx context.Context, box *inbox.Inbox) error {
		r, err := box.Get(ctx, c.ID, c.Wait)
		if err == nil {
			c.print(s, r)
		}
		return err
	})
}

type approvalsWatchCommand struct {
	approvalsAt
}

// Help ends the command's help.
func (approvalsWatchCommand) Help() string {
	return "The command begins with the approval requests that are pending. If the server restarts or is busy, the command asks it again. If the server does not answer at the start, the command ends with exit code 2. After an interrupt the exit code is 0."
}

// Run prints requests until it is interrupted.
func (c approvalsWatchCommand) Run(s cli.Streams) error {
	return c.open(s, "watch", func(ctx context.Context, box *inbox.Inbox) error {
		trouble := func(err error) {
			s.Tell("policy-service: %v; the command asks again until the server answers", err)
		}
		err := box.Watch(ctx, inbox.Filter{}, trouble, func(r inbox.Request) error {
			c.print(s, r)
			if !c.JSON {
				s.Print("")
			}
			return nil
		})
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil
		}
		return err
	})
}
