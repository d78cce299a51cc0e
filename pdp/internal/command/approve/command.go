// Package approve has the commands of approvers, policy-service approvals. They list and show approval
// requests, and decide about them. Each asks a running server, which knows the approver by the credential alone.
//
// The server says who may decide: nothing here checks it. Most of an approval request was written by the program that
// wants a yes, so page.go shows it in a way that this program cannot abuse.
package approve

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/connection"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/visible"
)

// Command is policy-service approvals.
type Command struct {
	List     listCommand     `cmd:"" help:"List the approval requests that you may decide about."`
	Show     showCommand     `cmd:"" help:"Show one approval request: what is asked, by whom, for whom, and the votes."`
	Approve  approveCommand  `cmd:"" help:"Approve an approval request as you have seen it."`
	Deny     denyCommand     `cmd:"" help:"Deny an approval request for good."`
	Delegate delegateCommand `cmd:"" help:"Name another person who decides in your place."`
	Revoke   revokeCommand   `cmd:"" help:"Take back an approval, as far as it is not used."`
	Cancel   cancelCommand   `cmd:"" help:"Withdraw an approval request, as the caller that filed it."`
	Watch    watchCommand    `cmd:"" help:"Print the pending approval requests, and each new one until you interrupt it."`
}

// serverFlags are the server and the credential of the caller.
type serverFlags struct {
	connection.Flags `set:"needs=An approver needs one that has the permission approve."`
}

// approvalID says which approval request is meant.
type approvalID struct {
	ID string `arg:"" help:"The id of the approval request."`
}

// refusing ends the help of the commands that change something.
const refusing = "\n\nExit codes: 0 if it is done, " +
	"1 if the server refuses it (the approval request is decided, has changed, or is not yours), " +
	"2 if the command is wrong or the server could not be asked."

// open calls f with the approval requests of the server. what names the failed act in an error.
func (at serverFlags) open(s cli.Streams, what string, f func(context.Context, *inbox.Inbox) error) error {
	options, err := connection.Options(at.Credential, at.CA)
	if err != nil {
		return at.failed(s, what, err)
	}
	box, err := inbox.New(at.Server, options)
	if err != nil {
		return at.failed(s, what, err)
	}
	defer box.Close()
	ctx, stop := cli.UntilSignal()
	defer stop()
	var ended cli.ExitCode
	if err := f(ctx, box); errors.As(err, &ended) {
		return ended // the person has read why
	} else if err != nil {
		return at.failed(s, what, err)
	}
	return nil
}

func (at serverFlags) failed(s cli.Streams, what string, err error) error {
	return connection.Failed(s, httpclient.StatusOf(err), fmt.Errorf("cannot %s: %s; %s", what, err, at.try(err)))
}

func (at serverFlags) try(err error) string {
	switch httpclient.StatusOf(err) {
	case http.StatusBadRequest:
		return "correct it, and run it again"
	case http.StatusForbidden:
		return "the policies say who may decide, and the operator says who you are (keys add --principal)"
	case http.StatusNotFound:
		return "try policy-service approvals list " + at.Where()
	case http.StatusConflict:
		return "try policy-service approvals show ID " + at.Where()
	}
	return connection.Try(err)
}

// print shows one request, to programs or to people.
func (at serverFlags) print(s cli.Streams, r inbox.Request) {
	if at.JSON {
		s.Print("%s", r.JSON)
		return
	}
	(&page{Streams: s, flags: at}).print(r)
}

// rulingReason is why an approver decides so.
type rulingReason struct {
	Reason cli.Given `required:"" placeholder:"R" help:"The reason, for those who read the record. Write no secret into it."`
}

// seen are the flags of a decision: the version that the approver has seen, and the reason. On a terminal the command asks for a missing one.
type seen struct {
	Reason cli.Given `placeholder:"R" help:"The reason, for those who read the record. Write no secret into it. A terminal is asked for it if it is missing."`
	Yes    bool      `help:"Ask nothing: decide about the approval request as it is shown."`
}

// check refuses a decision that needs an answer where there is no terminal.
func (d seen) check(s cli.Streams, command string, version version) error {
	switch {
	case s.Interactive():
		return nil
	case d.Reason == "":
		return fmt.Errorf("missing flags: --reason=R; try policy-service approvals %s --help", command)
	case version == 0 && !d.Yes && command == "approve":
		return errors.New("without a terminal nobody can be asked; write --version N, with the number that policy-service approvals show prints, or --yes to approve unseen what the request says now")
	}
	return nil
}

// withdrawalReason is why something is taken back. It need not be given.
type withdrawalReason struct {
	Reason cli.Given `placeholder:"R" help:"The reason, for those who read the record. Write no secret into it."`
}

// changing is a call that changes an approval request by a ruling, and returns the request as it is after that.
type changing = func(*inbox.Inbox, context.Context, string, inbox.Ruling) (inbox.Request, error)

// change calls f with a ruling about an approval request, and prints the request as it is after that.
func (at serverFlags) change(s cli.Streams, what string, f changing, id string, r inbox.Ruling) error {
	return at.open(s, what, func(ctx context.Context, box *inbox.Inbox) error {
		r, err := f(box, ctx, id, r)
		switch {
		case err != nil:
			return err
		case at.JSON:
			at.print(s, r)
		default:
			s.Print("%s", standing(r))
			for _, one := range r.InFlight {
				s.Print("%s", underWay(r, one))
			}
		}
		return nil
	})
}

// underWay is a use of which it is not known yet if it is on record. What was under way when an approval ended is had.
func underWay(r inbox.Request, one inbox.InFlight) cli.Shown {
	how := "was under way"
	if r.Status == "pending" || r.Status == "approved" {
		how = "is under way"
	}
	return cli.Shown(fmt.Sprintf("one use %s, since %s at %s, by decision %s",
		how, cli.Time(one.Since), cli.Cut(one.Origin, longestCell), cli.Cut(one.Decision, longestCell)))
}

// standing is how an approval request stands, in one line.
func standing(r inbox.Request) cli.Shown {
	line := fmt.Sprintf("approval %s is %s, version %d", visible.Text(r.ID), visible.Text(r.Status), r.Version)
	if r.Pending() {
		line += fmt.Sprintf(": %d of %s", r.Approvals, cli.Plural(r.Quorum, "approval"))
	}
	if !r.ExpiresAt.IsZero() {
		line += ", until " + cli.Time(r.ExpiresAt)
	}
	return cli.Shown(line)
}
