package capabilities

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/httpclient"
)

// held is a capability as the server shows it. The token is not in it. JSON is all of it.
type held struct {
	ID       string                `json:"id"`
	Tenant   string                `json:"tenant_id"`
	State    string                `json:"state"`
	Holder   evaluation.Ref        `json:"holder"`
	Person   string                `json:"person"`
	JKT      string                `json:"jkt"`
	Audience string                `json:"audience"`
	Tools    []string              `json:"tools"`
	Expires  time.Time             `json:"expires"`
	MaxUses  int                   `json:"max_uses"`
	Used     int                   `json:"used"`
	Parent   string                `json:"parent"`
	InFlight []evaluation.InFlight `json:"in_flight"`
}

const (
	path     = "/v1/capabilities"
	mostBody = 64 << 20
	aHeld    = "capability"
	pageSize = "200"
)

func pathOf(id string) string { return path + "/" + url.PathEscape(id) }

// capabilityID says which capability is meant.
type capabilityID struct {
	ID string `arg:"" help:"The id of the capability."`
}

// filter picks capabilities.
type filter struct {
	Tenant   cli.Given `placeholder:"T" help:"Only capabilities of this tenant."`
	Holder   ref       `placeholder:"TYPE:ID" help:"Only capabilities of this holder, such as agent:agent-a."`
	Person   cli.Given `placeholder:"P" help:"Only capabilities that were granted for this person, as the member context.person of questions names them."`
	Key      cli.Given `placeholder:"JKT" help:"Only capabilities that are bound to the key with this thumbprint."`
	Audience cli.Given `placeholder:"A" help:"Only capabilities for the tools of this server."`
}

// holder is TYPE:ID, or "" if the flag is not given.
func (f filter) holder() string {
	if f.Holder.Ref == (evaluation.Ref{}) {
		return ""
	}
	return f.Holder.Type + ":" + f.Holder.ID
}

type listCommand struct {
	serverFlags
	filter
	State    cli.Given `placeholder:"STATE" help:"Only capabilities in this state, such as active."`
	Ancestor cli.Given `placeholder:"ID" help:"Only capabilities that were made from this one by handing on."`
}

// Help ends the command's help.
func (listCommand) Help() string { return exits }

// Run lists capabilities, the oldest first.
func (c listCommand) Run(s cli.Streams) error {
	return c.open(s, "list the capabilities", func(ctx context.Context, server *httpclient.Server) error {
		query := url.Values{"limit": {pageSize}}
		for name, value := range map[string]string{
			"tenant": string(c.Tenant), "holder": c.holder(), "person": string(c.Person), "jkt": string(c.Key), "audience": string(c.Audience),
			"state": string(c.State), "ancestor": string(c.Ancestor),
		} {
			if value != "" {
				query.Set(name, value)
			}
		}
		table := s.Table()
		table.Row("ID", "STATE", "TENANT", "HOLDER", "UNTIL", "USES", "TOOLS", "KEY")
		for {
			page, err := httpclient.GetJSON[struct {
				Items []jsontext.Value `json:"items"`
				Next  string           `json:"next"`
			}](ctx, server, path, query, mostBody, "page of capabilities")
			if err != nil {
				return err
			}
			for _, item := range page.Items {
				if c.JSON {
					s.Print("%s", []byte(item))
					continue
				}
				var h held
				if err := json.Unmarshal(item, &h); err != nil {
					return errors.New("the server's answer is no page of capabilities")
				}
				table.Row(h.ID, h.State, h.Tenant, cli.Entity(h.Holder), cli.Time(h.Expires), h.uses(), strings.Join(h.Tools, ", "), h.JKT)
			}
			if page.Next == "" || page.Next == query.Get("cursor") {
				break
			}
			query.Set("cursor", page.Next)
		}
		if c.JSON {
			return nil
		}
		return table.Flush()
	})
}

func (h held) uses() cli.Shown {
	if h.MaxUses == 0 {
		return "any"
	}
	return cli.Shown(fmt.Sprintf("%d of %d", h.Used, h.MaxUses))
}

// print shows one capability.
func (at serverFlags) print(s cli.Streams, text jsontext.Value) error {
	var h held
	if err := json.Unmarshal(text, &h); err != nil {
		return errors.New("the server's answer is no capability")
	}
	if at.JSON {
		s.Print("%s", []byte(text))
		return nil
	}
	table := s.Table()
	for _, row := range [][2]any{
		{"capability", h.ID}, {"state", h.State}, {"tenant", h.Tenant}, {"holder", cli.Entity(h.Holder)}, {"person", h.Person}, {"key", h.JKT},
		{"audience", h.Audience}, {"tools", strings.Join(h.Tools, ", ")}, {"until", cli.Time(h.Expires)}, {"uses", h.uses()}, {"made from", h.Parent},
	} {
		if row[1] == "" {
			continue
		}
		table.Row(row[0], row[1])
	}
	for _, one := range h.InFlight {
		was := " was under way"
		if h.State == "active" || h.State == "suspended" || h.State == "asked" {
			was = ""
		}
		table.Row("under way", "one use"+was+", since "+cli.Time(one.Since)+" at "+one.Origin+", by decision "+one.Decision)
	}
	return table.Flush()
}

type showCommand struct {
	serverFlags
	capabilityID
}

// Help ends the command's help.
func (showCommand) Help() string { return exits }

// Run shows one capability.
func (c showCommand) Run(s cli.Streams) error {
	return c.open(s, "show the capability", func(ctx context.Context, server *httpclient.Server) error {
		text, err := httpclient.GetJSON[jsontext.Value](ctx, server, pathOf(c.ID), nil, mostBody, aHeld)
		if err != nil {
			return err
		}
		return c.print(s, text)
	})
}

// end ends one capability.
func (at serverFlags) end(s cli.Streams, what, id, how string, reason cli.Given) error {
	return at.open(s, what, func(ctx context.Context, server *httpclient.Server) error {
		body := map[string]string{}
		if reason != "" {
			body["reason"] = string(reason)
		}
		text, err := httpclient.PostJSON[jsontext.Value](ctx, server, pathOf(id)+how, body, mostBody, aHeld)
		if err != nil {
			return err
		}
		return at.print(s, text)
	})
}

type returnCommand struct {
	serverFlags
	capabilityID
	Reason cli.Given `placeholder:"R" help:"The reason, for those who read the record. Write no secret into it."`
}

// Help ends the command's help.
func (returnCommand) Help() string { return exits }

// Run gives a capability back.
func (c returnCommand) Run(s cli.Streams) error {
	return c.end(s, "return the capability", c.ID, "/return", c.Reason)
}

type revokeCommand struct {
	serverFlags
	filter
	All    bool      `help:"Take back all capabilities of the tenant."`
	Yes    bool      `help:"Ask nothing. Without the flag, a terminal is asked before --all."`
	Reason cli.Given `required:"" placeholder:"R" help:"The reason, for those who read the record. Write no secret into it."`
	ID     string    `arg:"" optional:"" help:"The id of the capability. Without it, --holder, --person, --key, --audience or --all says which ones."`
}

// Help ends the command's help.
func (revokeCommand) Help() string {
	return "The next call that shows a revoked capability is refused. What was done with it before stays done.\n\n" + exits
}

// Run takes capabilities back.
func (c revokeCommand) Run(s cli.Streams) error {
	some := c.holder() != "" || c.Person != "" || c.Key != "" || c.Audience != ""
	switch {
	case c.ID != "" && (some || c.All || c.Tenant != ""):
		return errors.New("an id is one capability; leave --holder, --person, --key, --audience, --tenant and --all out, or the id")
	case c.ID != "":
		return c.end(s, "revoke the capability", c.ID, "/revoke", c.Reason)
	case some == c.All:
		return errors.New("it is not clear which capabilities are meant; give an id, or some of --holder, --person, --key and --audience, or --all alone")
	}
	body := struct {
		Tenant   string          `json:"tenant_id"`
		Holder   *evaluation.Ref `json:"holder,omitzero"`
		Person   string          `json:"person,omitzero"`
		JKT      string          `json:"jkt,omitzero"`
		Audience string          `json:"audience,omitzero"`
		All      bool            `json:"all,omitzero"`
		Reason   string          `json:"reason"`
	}{string(c.tenant()), nil, string(c.Person), string(c.Key), string(c.Audience), c.All, string(c.Reason)}
	if c.holder() != "" {
		body.Holder = &c.Holder.Ref
	}
	return c.open(s, "revoke the capabilities", func(ctx context.Context, server *httpclient.Server) error {
		if c.All && !c.Yes && s.Interactive() {
			if err := s.Confirm(ctx, "Take back all capabilities of the tenant "+body.Tenant+"?"); err != nil {
				return err
			}
		}
		done, err := httpclient.PostJSON[struct {
			Revoked int `json:"revoked"`
		}](ctx, server, path+"/revoke", body, mostBody, "number of capabilities")
		if err != nil {
			return err
		}
		return s.Answer(c.JSON, done, func() error {
			s.Print("revoked %d", done.Revoked)
			return nil
		}, false)
	})
}

func (f filter) tenant() cli.Given {
	if f.Tenant == "" {
		return evaluation.DefaultTenant
	}
	return f.Tenant
}
