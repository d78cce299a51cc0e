package operate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/internal/when"
)

// Keys is about the API keys of callers. Each command works while a server is running. The server notices a change within
// a second.
type Keys struct {
	Add    keysAddCommand       `cmd:"" help:"Make an API key and print it. The service does not keep it and cannot show it again."`
	Renew  keysRenewCommand     `cmd:"" help:"Make a second secret of an API key, and print it. The one before ends a day later."`
	List   keysListCommand      `cmd:"" help:"List all API keys, also revoked ones, without the keys themselves, and say which the decision log keeps out."`
	Revoke keysRevokeCommand    `cmd:"" help:"Revoke an API key, with all its secrets."`
	Rotate signingRotateCommand `cmd:"" hidden:"" help:"The name of before for signing rotate."`
}

// days is a duration as people write it: 90d, 24h.
type days time.Duration

// UnmarshalText reads a duration of at least a second, or 0.
func (d *days) UnmarshalText(text []byte) error {
	read, err := when.ParseDuration(string(text))
	if string(text) == "0" {
		read, err = 0, nil
	}
	if *d = days(read); err != nil || read < 0 || 0 < read && read < time.Second {
		return fmt.Errorf("%q is no duration; write it like 90d, 24h or 90m", text)
	}
	return nil
}

type keysAddCommand struct {
	Data       string            `xor:"keys" required:"" placeholder:"DIR" help:"The data directory. The command makes it if it does not exist."`
	Config     string            `xor:"keys" required:"" placeholder:"FILE" help:"The configuration of a replica, if the API keys are those of a cluster."`
	Name       string            `required:"" placeholder:"N" help:"The name of the caller. Records contain it, so each name can be used only once."`
	Tenant     []string          `sep:"none" placeholder:"T" help:"A tenant that the caller may ask for, or * for all. Without the flag, the tenant default. Repeat for more."`
	Permission []auth.Permission `sep:"none" placeholder:"P" help:"A permission: decide, search, explain, log.read, log.admin, request, approve, relay, capability, capability.admin or backup. Without the flag, decide. Repeat for more."`
	Obligation []string          `sep:"none" placeholder:"TYPE" help:"An obligation type that the caller discharges. Repeat for more."`
	Audience   []string          `sep:"none" placeholder:"A" help:"A name of the caller as a verifier of capabilities, such as https://gateway.example.com, for which proofs are made. Without the flag, a proof is for the server of the tool. Repeat for more."`
	Principal  auth.Principal    `placeholder:"ENTITY" help:"The entity that the caller is to policies, as policies write it: 'User::\"mia\"'. The permission approve needs it."`
	Relays     bool              `help:"The caller sends requests of other PEPs, and does not enforce the answers itself. Such a caller cannot adopt obligations."`
	Expires    days              `placeholder:"AGE" help:"After this time the key is refused: 90d, 12h. Without the flag, the key counts until it is revoked."`
	Via        cli.Given         `placeholder:"WAY" help:"console, if the caller is a console for approvers that relays what they say. Without the flag, a caller with the permission relay is a gateway that shows them forms."`
}

// Run prints the key alone, for scripts to keep.
func (c keysAddCommand) Run(s cli.Streams) error {
	apiKeys, done, err := openKeys(c.Data, c.Config, true)
	if err != nil {
		return err
	}
	defer done()
	key, err := apiKeys.Add(keys.Spec{
		Name:      c.Name,
		Principal: c.Principal,
		Via:       evaluation.Via(c.Via),
		Lifetime:  time.Duration(c.Expires),
		Grant: auth.Grant{
			Tenants: c.Tenant, Permissions: c.Permission, Obligations: c.Obligation, Audiences: c.Audience, Forwards: c.Relays,
		},
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(s.Out, key); err != nil { // the user has no key, or only a part of it
		err = errors.Join(err, apiKeys.Revoke(c.Name))
		return fmt.Errorf("the key could not be printed, and is revoked: %w; try to add one of another name", err)
	}
	return nil
}

type keysRenewCommand struct {
	Data    string `xor:"keys" required:"" placeholder:"DIR" help:"The data directory."`
	Config  string `xor:"keys" required:"" placeholder:"FILE" help:"The configuration of a replica, if the API keys are those of a cluster."`
	Overlap days   `default:"24h" placeholder:"AGE" help:"How long the secret before counts beside the new one: 24h, 7d, or 0 to end it at once. The default is ${default}."`
	Expires days   `placeholder:"AGE" help:"After this time the new secret is refused: 90d, 12h. Without the flag, it counts as long as the one before did."`
	Name    string `arg:"" help:"The name of the caller, as given to keys add."`
}

// Help ends the command's help.
func (keysRenewCommand) Help() string {
	return "The name, and what the caller may do, stay. Approvals, rate limits and callbacks go by the name, and go on."
}

// Run prints the new key alone. One that could not be printed is lost, and the one before still counts for the
// overlap: a second renewal makes another.
func (c keysRenewCommand) Run(s cli.Streams) error {
	apiKeys, done, err := openKeys(c.Data, c.Config, false)
	if err != nil {
		return err
	}
	defer done()
	key, err := apiKeys.Renew(keys.Renewal{Name: c.Name, Overlap: time.Duration(c.Overlap), Lifetime: time.Duration(c.Expires)})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(s.Out, key); err != nil {
		return fmt.Errorf("the key could not be printed: %w; try keys renew again", err)
	}
	return nil
}

type keysListCommand struct {
	Data   string `xor:"keys" required:"" placeholder:"DIR" help:"The data directory."`
	Config string `xor:"keys" required:"" placeholder:"FILE" help:"The configuration of a replica, if the API keys are those of a cluster."`
	JSON   bool   `name:"json" help:"Print JSON, for programs."`
}

// Run lists keys in the order they were added.
func (c keysListCommand) Run(s cli.Streams) error {
	apiKeys, done, err := openKeys(c.Data, c.Config, false)
	if err != nil {
		return err
	}
	defer done()
	var damage error
	wrong := map[string]string{}
	if c.Config == "" {
		ctx, stop := cli.UntilSignal()
		defer stop()
		if damage, wrong, err = keys.Compare(ctx, c.Data, apiKeys); err != nil {
			damage = errors.Join(damage, err)
		}
	}
	if damage != nil {
		s.Tell("%s; see policy-service doctor", strings.ReplaceAll(damage.Error(), "\n", "; "))
	}
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		s.Tell("%q is not in force: %s", name, wrong[name])
	}
	if c.JSON {
		return s.PrintJSON(struct {
			Keys  []keys.Info       `json:"keys"`
			Wrong map[string]string `json:"not_in_force,omitempty"`
		}{apiKeys.List(), wrong})
	}
	table := s.Table()
	table.Row("NAME", "ID", "TENANTS", "PERMISSIONS", "OBLIGATIONS", "AUDIENCES", "PRINCIPAL", "ADDED", "EXPIRES", "REVOKED")
	now := time.Now()
	for _, k := range apiKeys.List() {
		principal := cli.Quoted("-")
		if k.Principal != (auth.Principal{}) {
			principal = cli.Quoted(k.Principal.String())
		}
		permissions := joined(k.Permissions)
		if k.Via != "" {
			permissions += ";via=" + string(k.Via)
		}
		if k.Forwards {
			permissions += ";relays"
		}
		expires, revoked := k.Expires, k.Revoked
		if k.Renewed(now) {
			expires, revoked = k.End(), time.Time{}
		}
		table.Row(k.Name, k.ID, strings.Join(k.Tenants, ","), permissions,
			cmp.Or(joined(k.Obligations), "-"), cmp.Or(joined(k.Audiences), "-"), principal, day(k.Created), cli.TimeOr(expires, "-"), day(revoked))
	}
	return table.Flush()
}

type keysRevokeCommand struct {
	Data   string `xor:"keys" required:"" placeholder:"DIR" help:"The data directory."`
	Config string `xor:"keys" required:"" placeholder:"FILE" help:"The configuration of a replica, if the API keys are those of a cluster."`
	Name   string `arg:"" help:"The name of the caller, as given to keys add."`
}

// Run revokes a key.
func (c keysRevokeCommand) Run(cli.Streams) error {
	keys, done, err := openKeys(c.Data, c.Config, false)
	if err != nil {
		return err
	}
	defer done()
	return keys.Revoke(c.Name)
}

// openKeys opens the keys of a directory or of a cluster. Only adding makes a directory: a mistyped one must not look like a
// service without keys.
func openKeys(dir, file string, adding bool) (apiKeys *keys.Keys, done func(), err error) {
	if file != "" {
		told, err := readConfig(file)
		if err != nil {
			return nil, nil, err
		}
		ctx, stop := cli.UntilSignal()
		defer stop()
		return server.OpenSharedKeys(ctx, told)
	}
	if _, err := os.Stat(dir); err != nil && !adding {
		return nil, nil, fmt.Errorf("cannot read the data directory: %w; try the one that serve is given", err)
	}
	if server.IsReplica(dir) { // a key that was revoked there would go on to count
		return nil, nil, fmt.Errorf("%s is the directory of a replica, whose API keys are in etcd; give its configuration with --config in place of --data", dir)
	}
	apiKeys, err = keys.Open(dir)
	return apiKeys, func() {}, err
}

// readConfig reads the configuration of a server, as serve would with the same file and environment.
func readConfig(file string) (told server.Config, err error) {
	_, err = server.ConfigForm.Read(config.Given{File: file, Environ: os.Environ()}, &told)
	return told, err
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
