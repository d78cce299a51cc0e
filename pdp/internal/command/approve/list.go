package approve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/visible"
)

type listCommand struct {
	serverFlags
	Status   cli.Given `placeholder:"STATUS" help:"Only approval requests in this state: pending, approved, denied, expired, cancelled, used_up or revoked; or ended for all but pending, or all. The default is pending."`
	Tenant   cli.Given `placeholder:"T" help:"Only approval requests of this tenant."`
	Template cli.Given `placeholder:"NAME" help:"Only approval requests of this template. Policies use the template to say who may decide."`
	Subject  cli.Given `placeholder:"ID" help:"Only approval requests with this subject: an id, or TYPE/ID."`
	Resource cli.Given `placeholder:"ID" help:"Only approval requests with this resource: an id, or TYPE/ID."`
	Action   cli.Given `placeholder:"NAME" help:"Only approval requests with this action."`
	Newest   bool      `help:"List the newest first. Otherwise the oldest comes first."`
}

// Run lists approval requests.
func (c listCommand) Run(s cli.Streams) error {
	return c.open(s, "list the approval requests", func(ctx context.Context, box *inbox.Inbox) error {
		var all []inbox.Request
		_, err := box.Pages(ctx, c.filter(), func(r inbox.Request) error {
			all = append(all, r)
			return nil
		})
		if err != nil {
			return err
		}
		return c.printAll(s, all)
	})
}

func (c listCommand) filter() inbox.Filter {
	return inbox.Filter{
		Status:   string(c.Status),
		Tenant:   string(c.Tenant),
		Template: string(c.Template),
		Subject:  string(c.Subject),
		Resource: string(c.Resource),
		Action:   string(c.Action),
		Newest:   c.Newest,
	}
}

func (c listCommand) printAll(s cli.Streams, all []inbox.Request) error {
	if c.JSON {
		for _, r := range all {
			c.print(s, r)
		}
		return nil
	}
	if len(all) == 0 {
		s.Tell("nothing that you may decide about")
		return nil
	}
	table := s.Table()
	heads := []any{"ID", "STATUS", "APPROVALS", "UNTIL", "TENANT", "SUBJECT", "ACTION", "RESOURCE"}
	tells := tellApart(all)
	if len(tells) > 0 {
		heads = append(heads, "ARGUMENTS")
	}
	table.Row(append(heads, "MESSAGE")...)
	var odd []string
	for n, r := range all {
		cells := []any{
			r.ID, r.Status, fmt.Sprintf("%d/%d", r.Approvals, r.Quorum), cli.TimeOr(r.ExpiresAt, "-"),
			r.Tenant, named(r.Request.Subject), r.Request.Action.Name, named(r.Request.Resource),
		}
		if r.Redacted() {
			cells[5], cells[6], cells[7] = "(redacted)", "-", "-"
		}
		if len(tells) > 0 {
			cells = append(cells, tells[n])
		}
		cells = append(cells, r.Message)
		var about notes
		for n := range cells {
			cells[n] = about.cut(fmt.Sprint(cells[n]), longestCell)
		}
		table.Row(cells...)
		for _, note := range about {
			odd = append(odd, visible.Text(r.ID)+": "+note)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, note := range odd {
		s.Print("note  %s", cli.Shown(note))
	}
	return nil
}

// tellApart returns, for each request, the members in which others for the same subject, action and resource differ. It
// is nil if none do.
func tellApart(all []inbox.Request) (tells []string) {
	for n, apart := range inbox.TellApart(all) {
		var own []string
		for _, m := range apart.Members {
			if len(m.Value) == 0 {
				own = append(own, "no "+m.String())
			} else {
				own = append(own, m.String()+": "+string(m.Value))
			}
		}
		if len(own) > 0 && tells == nil {
			tells = make([]string, len(all))
		}
		if len(own) > 0 {
			tells[n] = strings.Join(own, ", ")
		}
	}
	return tells
}

// longestCell keeps a table readable.
const longestCell = 48

// named is an entity as people read it.
func named(e inbox.Entity) string { return cli.Entity(evaluation.Ref{Type: e.Type, ID: e.ID}) }

type showCommand struct {
	serverFlags
	approvalID
	Wait time.Duration `placeholder:"D" help:"While the approval request is pending, wait up to this long until it is decided, such as 30s."`
}

// Run shows the approval request.
func (c showCommand) Run(s cli.Streams) error {
	return c.open(s, "show the approval request", func(ctx context.Context, box *inbox.Inbox) error {
		r, err := box.Get(ctx, c.ID, c.Wait)
		if err == nil {
			c.print(s, r)
		}
		return err
	})
}

type watchCommand struct {
	serverFlags
}

// Help ends the command's help.
func (watchCommand) Help() string {
	return "The command begins with the approval requests that are pending. " +
		"If the server restarts or is busy, the command asks it again. " +
		"If the server does not answer at the start, the command ends with exit code 2. After an interrupt the exit code is 0."
}

// Run prints approval requests until it is interrupted.
func (c watchCommand) Run(s cli.Streams) error {
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
