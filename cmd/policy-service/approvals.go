package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"policy-service/pdp/approval/inbox"
	"policy-service/pdp/httpclient"
)

// approvalsCommand is for approvers: what programs want to do, and wait for a person to agree to. All of it asks a running
// server, which knows who somebody is by the credential alone.
type approvalsCommand struct {
	List     approvalsListCommand     `cmd:"" help:"List the requests that you may decide about."`
	Show     approvalsShowCommand     `cmd:"" help:"Show one request: what is asked, by whom, for whom, and who said what."`
	Approve  approvalsApproveCommand  `cmd:"" help:"Agree to a request, as it was shown."`
	Deny     approvalsDenyCommand     `cmd:"" help:"Refuse a request, for good."`
	Delegate approvalsDelegateCommand `cmd:"" help:"Name another person to decide in your place."`
	Revoke   approvalsRevokeCommand   `cmd:"" help:"Take back what was approved, as far as it is not used."`
	Cancel   approvalsCancelCommand   `cmd:"" help:"Give up waiting, as the program that asked."`
	Watch    approvalsWatchCommand    `cmd:"" help:"Print each new request as it comes, until interrupted."`
}

// approvalsAt says which server is meant, and who asks.
type approvalsAt struct {
	Server     string `required:"" placeholder:"URL" help:"A running server, https or on this machine also http."`
	Credential given  `placeholder:"FILE" help:"Holds an API key or a token, by which the server knows who you are; to decide takes the permission approve. Without it the key is taken from $$POLICY_SERVICE_KEY."`
	CA         given  `name:"ca" placeholder:"FILE" help:"The authorities to trust, in PEM, instead of the system's."`
	JSON       bool   `name:"json" help:"For programs: what the server answers, a request a line."`
}

// approvalID is the request that is meant.
type approvalID struct {
	ID string `arg:"" help:"The id of the request for approval."`
}

// refusing is how approvals that change something exit.
const refusing = "Exits 0 where it is done, 1 where the server refuses it (it is decided, changed, not yours), 2 where it could not be asked. "

// open hands the requests of the server to f, and says what failed.
func (a approvalsAt) open(s streams, what string, f func(context.Context, *inbox.Inbox) error) error {
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
func (a approvalsAt) failed(s streams, what string, err error) error {
	message := fmt.Errorf("cannot %s: %s; %s", what, err, a.try(err))
	switch httpclient.StatusOf(err) {
	case http.StatusForbidden, http.StatusNotFound, http.StatusConflict:
		s.failed(message)
		return exitCode(exitNo)
	}
	return message
}

func (a approvalsAt) try(err error) string {
	switch httpclient.StatusOf(err) {
	case http.StatusBadRequest:
		return "correct it, and run it again"
	case http.StatusForbidden:
		return "who may decide is for the policies to say, and who you are for the operator (keys add --principal)"
	case http.StatusNotFound:
		return "try policy-service approvals list " + a.where()
	case http.StatusConflict:
		return "try policy-service approvals show ID " + a.where()
	}
	return tryServer(err)
}

// where is the server on a command line, and who asks.
func (a approvalsAt) where() string {
	words := "--server " + shell(a.Server)
	if a.Credential != "" {
		words += " --credential " + shell(string(a.Credential))
	}
	if a.CA != "" {
		words += " --ca " + shell(string(a.CA))
	}
	return words
}

// print shows one request, to programs or to people.
func (a approvalsAt) print(s streams, r inbox.Request) {
	if a.JSON {
		s.print("%s", r.JSON)
		return
	}
	approvalPage{streams: s, at: a}.print(r)
}

type approvalsShowCommand struct {
	approvalsAt
	approvalID
	Wait time.Duration `placeholder:"D" help:"While it is pending wait so long for a decision, like 30s."`
}

// Run shows a request.
func (c approvalsShowCommand) Run(s streams) error {
	return c.open(s, "show the request", func(ctx context.Context, box *inbox.Inbox) error {
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
	return "It begins with what is pending. A server that restarts or has no time is asked again; where it does not answer the first time, the command ends. An interrupt is how it ends well."
}

// Run prints requests until it is interrupted.
func (c approvalsWatchCommand) Run(s streams) error {
	return c.open(s, "watch", func(ctx context.Context, box *inbox.Inbox) error {
		trouble := func(err error) {
			s.tell("policy-service: %v; it is asked again until it answers", err)
		}
		err := box.Watch(ctx, inbox.Filter{}, trouble, func(r inbox.Request) error {
			c.print(s, r)
			if !c.JSON {
				s.print("")
			}
			return nil
		})
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil
		}
		return err
	})
}
