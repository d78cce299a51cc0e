package operate

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/evaluation"
	"policy-service/pdp/server/auth"
)

// Keys is about the API keys of callers, and about the key that signs tokens. Each command works while a server is
// running. The server notices a change of API keys within a second.
type Keys struct {
	Add    keysAddCommand    `cmd:"" help:"Make an API key and print it. The service does not keep it and cannot show it again."`
	List   keysListCommand   `cmd:"" help:"List all API keys, also revoked ones, without the keys themselves."`
	Revoke keysRevokeCommand `cmd:"" help:"Revoke an API key."`
	Rotate keysRotateCommand `cmd:"" help:"Sign tokens with a new key from now on, and print its id."`
}

type keysAddCommand struct {
	Data       string            `required:"" placeholder:"DIR" help:"The data directory. The command makes it if it does not exist."`
	Name       string            `required:"" placeholder:"N" help:"The name of the caller. Records contain it, so each name can be used only once."`
	Tenant     []string          `sep:"none" placeholder:"T" help:"A tenant that the caller may ask for, or * for all. Without the flag, the tenant default. Repeat for more."`
	Permission []auth.Permission `sep:"none" placeholder:"P" help:"A permission: decide, search, explain, log.read, log.admin, request, approve, relay, capability, capability.admin or backup. Without the flag, decide. Repeat for more."`
	Obligation []string          `sep:"none" placeholder:"TYPE" help:"An obligation type that the caller discharges. Repeat for more."`
	Audience   []string          `sep:"none" placeholder:"A" help:"A name of the caller as a verifier of capabilities, such as https://gateway.example.com, for which proofs are made. Without the flag, a proof is for the server of the tool. Repeat for more."`
	Principal  auth.Principal    `placeholder:"ENTITY" help:"The entity that the caller is to policies, as policies write it: 'User::\"mia\"'. The permission approve needs it."`
	Via        cli.Given         `placeholder:"WAY" help:"console, if the caller is a console for approvers that relays what they say. Without the flag, a caller with the permission relay is a gateway that shows them forms."`
}

// Run prints the key alone, for scripts to keep.
func (c keysAddCommand) Run(s cli.Streams) error {
	keys, err := auth.OpenKeys(c.Data)
	if err != nil {
		return err
	}
	key, err := keys.Add(auth.KeySpec{
		Name:      c.Name,
		Principal: c.Principal,
		Via:       evaluation.Via(c.Via),
		Grant:     auth.Grant{Tenants: c.Tenant, Permissions: c.Permission, Obligations: c.Obligation, Audiences: c.Audience},
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(s.Out, key); err != nil { // the user has no key, or only a part of it
		err = errors.Join(err, keys.Revoke(c.Name))
		return fmt.Errorf("the key could not be printed, and is revoked: %w; try to add one of another name", err)
	}
	return nil
}

type keysListCommand struct {
	Data string `required:"" placeholder:"DIR" help:"The data directory."`
	JSON bool   `name:"json" help:"Print JSON, for programs."`
}

// Run lists keys in the order they were added.
func (c keysListCommand) Run(s cli.Streams) error {
	keys, err := openKeys(c.Data)
	if err != nil {
		return err
	}
	if c.JSON {
		return s.PrintJSON(struct {
			Keys []auth.KeyInfo `json:"keys"`
		}{keys.List()})
	}
	table := s.Table()
	table.Row("NAME", "ID", "TENANTS", "PERMISSIONS", "OBLIGATIONS", "AUDIENCES", "PRINCIPAL", "ADDED", "REVOKED")
	for _, k := range keys.List() {
		principal := cli.Quoted("-")
		if k.Principal != (auth.Principal{}) {
			principal = cli.Quoted(k.Principal.String())
		}
		permissions := joined(k.Permissions)
		if k.Via != "" {
			permissions += ";via=" + string(k.Via)
		}
		table.Row(k.Name, k.ID, strings.Join(k.Tenants, ","), permissions,
			cmp.Or(joined(k.Obligations), "-"), cmp.Or(joined(k.Audiences), "-"), principal, day(k.Created), day(k.Revoked))
	}
	return table.Flush()
}

type keysRevokeCommand struct {
	Data string `required:"" placeholder:"DIR" help:"The data directory."`
	Name string `arg:"" help:"The name of the caller, as given to keys add."`
}

// Run revokes a key.
func (c keysRevokeCommand) Run(cli.Streams) error {
	keys, err := openKeys(c.Data)
	if err != nil {
		return err
	}
	return keys.Revoke(c.Name)
}

// openKeys is for the commands that make no directory: a mistyped directory must not look like a service without keys.
func openKeys(dir string) (*auth.Keys, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("cannot read the data directory: %w; try the one that serve is given", err)
	}
	return auth.OpenKeys(dir)
}

func joined[S ~string](values []S) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ",")
}

func day(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateOnly)
}
