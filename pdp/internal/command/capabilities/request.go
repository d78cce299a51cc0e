package capabilities

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/connection"
)

// asked are the flags of what is asked for.
type asked struct {
	serverFlags
	Key      cli.Given     `required:"" placeholder:"FILE" help:"The holder's key: the private one in PEM, as capabilities key makes it. With a public one, in PEM or as a JWK, the capability is for a holder that is away; the credential needs the permission capability.admin beside capability then."`
	Holder   ref           `required:"" placeholder:"TYPE:ID" help:"Who will use the capability, such as agent:agent-a."`
	Audience cli.Given     `required:"" placeholder:"A" help:"The server of the tools."`
	Tool     []string      `required:"" sep:"none" placeholder:"T" help:"A tool of the server, or '*' for all. The flag can be repeated."`
	Argument []argument    `sep:"none" placeholder:"NAME=JSON" help:"What an argument has to be: a value, or a constraint such as {\"constraint_type\":\"prefix\",\"value\":\"/tmp/\"}. The flag can be repeated. An argument that no flag names is refused then, unless '*' is a wildcard."`
	Duration time.Duration `placeholder:"D" help:"How long the capability is to count, such as 1h. The default is the service's."`
	Offline  bool          `help:"Gateways are to take it that do not ask the service. Not with --max-uses."`
	MaxUses  int           `placeholder:"N" help:"How many calls it is to cover. Without the flag, any number."`
	Reason   cli.Given     `placeholder:"R" help:"Why, for the people who decide and the record. Write no secret into it."`
	MaxDepth int           `placeholder:"N" help:"How often in a row it may be handed on, up to 2, counted from the first. Without the flag, never."`
	Session  cli.Given     `placeholder:"ID" help:"The session of the enforcement point in which alone it is to count, by its id there."`
	Wait     time.Duration `placeholder:"D" help:"If people have to approve it, wait for them, up to so long, such as 4h."`
	Approval cli.Given     `placeholder:"ID" help:"The approval request of an earlier answer, which people have approved since."`
	Tenant   cli.Given     `placeholder:"T" help:"The tenant. The default is default."`
}

// ref is an entity as a flag, split at the first colon.
type ref struct{ evaluation.Ref }

// UnmarshalText reads TYPE:ID.
func (r *ref) UnmarshalText(text []byte) error {
	typ, id, ok := strings.Cut(string(text), ":")
	if !ok || typ == "" || id == "" {
		return errors.New("is no TYPE:ID; write it like agent:agent-a")
	}
	r.Type, r.ID = typ, id
	return nil
}

// argument is a constraint on an argument, as a flag.
type argument struct {
	name string
	is   capability.Constraint
}

// UnmarshalText reads NAME=JSON.
func (a *argument) UnmarshalText(text []byte) (err error) {
	name, value, ok := strings.Cut(string(text), "=")
	if !ok || name == "" {
		return errors.New("is no NAME=JSON; write it like 'target=\"staging\"'")
	}
	o, err := evaluation.ParseWithNulls([]byte(`{"value":`+value+`}`), evaluation.DefaultLimits())
	v, there := o.Lookup("value")
	if err != nil || !there || o.Len() != 1 {
		return fmt.Errorf("has no JSON behind the name; write it like '%s=\"staging\"'", name)
	}
	a.name = name
	a.is, err = capability.ParseConstraint(v)
	return err
}

func (c asked) ask(key capability.Key) capability.Ask {
	a := capability.Ask{
		Tenant:     string(c.tenant()),
		Holder:     c.Holder.Ref,
		Audience:   string(c.Audience),
		Tools:      c.Tool,
		Duration:   c.Duration,
		MaxUses:    c.MaxUses,
		Offline:    c.Offline,
		MaxDepth:   c.MaxDepth,
		Reason:     string(c.Reason),
		Key:        key,
		ApprovalID: string(c.Approval),
		Channel:    capability.Channel{Session: string(c.Session)},
	}
	for _, argument := range c.Argument {
		if a.Arguments == nil {
			a.Arguments = capability.Arguments{}
		}
		a.Arguments[argument.name] = argument.is
	}
	return a
}

func (c asked) tenant() cli.Given {
	if c.Tenant == "" {
		return evaluation.DefaultTenant
	}
	return c.Tenant
}

// client asks the server as programs do.
func (c asked) client() (*authzenclient.Client, error) {
	options, err := connection.Options(c.Credential, c.CA)
	if err != nil {
		return nil, err
	}
	of := []authzenclient.Option{
		authzenclient.WithTenant(string(c.tenant())),
		authzenclient.WithTimeout(time.Minute),
	}
	if options.Credential != "" {
		of = append(of, authzenclient.WithKey(options.Credential))
	}
	if options.Roots != nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{RootCAs: options.Roots, MinVersion: tls.VersionTLS12}
		of = append(of, authzenclient.WithHTTPClient(&http.Client{Transport: transport}))
	}
	return authzenclient.New(c.Server, of...)
}

// run asks for a capability, or for a new token of one.
func (c asked) run(s cli.Streams, what, renews string) error {
	holder, key, err := readKey(s, c.Key)
	if err != nil {
		return err
	}
	return c.grant(s, what, renews, holder, key, approvals.AskCapability, approvals.RequestCapability)
}

// The two ways to ask: once, and waiting for people.
type (
	asks  = func(context.Context, *authzenclient.Client, string, *capability.Holder, capability.Ask) (approvals.Grant, error)
	waits = func(context.Context, *authzenclient.Client, string, *capability.Holder, capability.Ask, func(evaluation.Approval)) (approvals.Grant, error)
)

func (c asked) grant(s cli.Streams, what, id string, holder *capability.Holder, key capability.Key, once asks, wait waits) error {
	client, err := c.client()
	if err != nil {
		return c.failed(s, what, err)
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	var g approvals.Grant
	if c.Wait > 0 {
		until, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		g, err = wait(until, client, id, holder, c.ask(key), func(a evaluation.Approval) {
			s.Tell("%s", waiting(a))
		})
	} else {
		g, err = once(ctx, client, id, holder, c.ask(key))
	}
	if err != nil {
		return c.failed(s, what, err)
	}
	return c.print(s, g)
}

// waiting is a line about an approval request that people are to decide about.
func waiting(a evaluation.Approval) cli.Shown {
	line := "people are asked: approval " + a.ID
	if !a.ExpiresAt.IsZero() {
		line += ", until " + cli.Time(a.ExpiresAt)
	}
	return cli.Cut(line, 200)
}

// print prints the token for a file or a pipe, and the rest for people; or all of the answer.
func (c asked) print(s cli.Streams, g approvals.Grant) error {
	if c.JSON {
		s.Print("%s", []byte(g.JSON))
	}
	switch {
	case g.Granted && !c.JSON:
		uses := "any number of uses"
		if g.MaxUses > 0 {
			uses = cli.Plural(g.MaxUses, "use")
		}
		s.Tell("capability %s for %s, until %s, %s", g.ID, strings.Join(g.Tools, ", "), cli.Time(g.Expires), uses)
		if len(g.Narrowed) > 0 {
			s.Tell("less was granted than was asked for: %s", strings.Join(g.Narrowed, ", "))
		}
		s.Print("%s", g.Token)
	case !g.Granted && g.Waits() && !c.JSON:
		s.Tell("%s; run it again with --approval %s, or with --wait", waiting(*g.Approval), g.Approval.ID)
	case !g.Granted && !c.JSON:
		if len(g.Needs) > 0 {
			s.Tell("the policies grant it only to a request with: %s", strings.Join(g.Needs, ", "))
		}
		s.Tell("not granted: %s%s", strings.TrimSpace(g.Reason+" "+strings.Join(g.Refused, ", ")), sentence(g.ReasonUser))
	}
	if !g.Granted {
		return cli.No
	}
	return nil
}

func sentence(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

type requestCommand struct{ asked }

// Help ends the command's help.
func (requestCommand) Help() string {
	return "Without --json, standard output has the token alone. Keep it beside the key: it is of no use without.\n\n" +
		"Exit codes: 0 if it is granted, 1 if it is not, or waits for people, 2 if the command is wrong or the server could not be asked."
}

// Run asks for a capability.
func (c requestCommand) Run(s cli.Streams) error { return c.run(s, "request the capability", "") }

type renewCommand struct {
	asked
	capabilityID
}

// Help ends the command's help.
func (renewCommand) Help() string { return requestCommand{}.Help() }

// Run asks for a new token.
func (c renewCommand) Run(s cli.Streams) error { return c.run(s, "renew the capability", c.ID) }

type delegateCommand struct {
	asked
	To cli.Given `required:"" placeholder:"FILE" help:"The new holder's public key: a JWK, as capabilities key prints it, or PEM."`
	capabilityID
}

// Help ends the command's help.
func (delegateCommand) Help() string {
	return "--holder is who gets it, and --key the private key of who hands it on. What is asked for is within the capability.\n\n" + requestCommand{}.Help()
}

// Run hands a capability on.
func (c delegateCommand) Run(s cli.Streams) error {
	holder, _, err := readKey(s, c.Key)
	if err != nil {
		return err
	}
	if holder == nil {
		return errors.New("--key is a public key, which signs nothing; give the private key of who holds the capability")
	}
	_, key, err := readKey(s, c.To)
	if err != nil {
		return err
	}
	return c.grant(s, "hand the capability on", c.ID, holder, key, approvals.DelegateCapability, approvals.RequestDelegation)
}
