package capabilities

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/when"
)

type verifyCommand struct {
	JWKS      string      `name:"jwks" required:"" placeholder:"FILE" help:"The public keys of the service: a file, or their URL, https://…/.well-known/jwks.json."`
	Issuer    []string    `required:"" sep:"none" placeholder:"ISS" help:"The issuer whose tokens count, which is the service's URL, with /tenants/T for a tenant. The flag can be repeated."`
	Proof     cli.Given   `placeholder:"P" help:"The proof of a call. Then --tool and --arguments say which call."`
	Tool      cli.Given   `placeholder:"T" help:"The id of the tool that is called, such as agent-b:restart."`
	Arguments cli.Given   `placeholder:"JSON" help:"The arguments of the call as the tool gets them: a JSON object. The default is {}."`
	Audience  cli.Given   `placeholder:"A" help:"The name of the verifier, for which the proof has to be. The default is the audience of the token."`
	Holder    ref         `placeholder:"TYPE:ID" help:"Who calls. The default is the holder that the token names."`
	Now       when.Moment `placeholder:"TIME" help:"Check as if it were this time: 2026-11-20T15:04:05Z."`
	JSON      bool        `name:"json" help:"Print JSON, for programs."`
	Token     string      `arg:"" help:"The token. - is standard input."`
}

// Help ends the command's help.
func (verifyCommand) Help() string {
	return "Whether the token was revoked or used up, and the proof was seen before, only the service knows.\n\n" +
		"Exit codes: 0 good, 1 refused, 2 if it could not be checked."
}

// Run checks a token, or a call.
func (c verifyCommand) Run(s cli.Streams) (err error) {
	if c.Token == "-" {
		if c.Token, err = readToken(s, "-"); err != nil {
			return err
		}
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	keys, err := readJWKS(ctx, s, c.JWKS)
	if err != nil {
		return fmt.Errorf("cannot read the keys of the service: %w; give --jwks their file or URL", err)
	}
	said, _ := capability.ParseToken(c.Token) // nothing of which is believed yet
	v, err := c.verifier(keys, said.Issuer)
	if err != nil {
		return err
	}
	arguments, err := parseArguments(c.Arguments)
	if err != nil {
		return err
	}
	token, err := v.CheckToken(ctx, c.Token)
	if err == nil && (c.Proof != "" || c.Tool != "") {
		_, err = v.Check(ctx, capability.Call{
			Token: c.Token, Proof: string(c.Proof), Holder: cmp.Or(c.Holder.Ref, token.Holder), Tool: string(c.Tool), Arguments: arguments,
		})
	}
	var refusal *capability.Refusal
	if err != nil && !errors.As(err, &refusal) {
		return fmt.Errorf("cannot verify: %w; try again", err)
	}
	return s.Answer(c.JSON, verified(token, refusal), func() error { return printVerified(s, token, refusal) }, refusal != nil)
}

func (c verifyCommand) verifier(keys capability.Keys, issuer string) (*capability.Verifier, error) {
	o := capability.Options{Issuer: c.Issuer[0], Keys: keys}
	if slices.Contains(c.Issuer, issuer) {
		o.Issuer = issuer
	}
	if c.Audience != "" {
		o.Audience = []string{string(c.Audience)}
	}
	if !c.Now.IsZero() {
		o.Now = func() time.Time { return c.Now.Time }
	}
	return capability.NewVerifier(o)
}

// verifiedJSON is the output of verify --json.
type verifiedJSON struct {
	Active   bool            `json:"active"`
	Reason   capability.Code `json:"reason,omitzero"`
	Argument string          `json:"argument,omitzero"`
	ID       string          `json:"id,omitzero"`
	Holder   evaluation.Ref  `json:"holder,omitzero"`
	JKT      string          `json:"jkt,omitzero"`
	Audience string          `json:"audience,omitzero"`
	Tools    []string        `json:"tools,omitzero"`
	Expires  time.Time       `json:"expires,omitzero"`
	MaxUses  int             `json:"max_uses,omitzero"`
}

func verified(t capability.Token, refusal *capability.Refusal) verifiedJSON {
	if refusal != nil {
		return verifiedJSON{Reason: refusal.Code, Argument: refusal.Argument}
	}
	return verifiedJSON{
		Active: true, ID: t.ID, Holder: t.Holder, JKT: t.Key.Thumbprint(), Audience: t.Audience, Tools: t.Layers[0].Tools,
		Expires: t.Expires, MaxUses: t.MaxUses,
	}
}

func printVerified(s cli.Streams, t capability.Token, refusal *capability.Refusal) error {
	if refusal != nil {
		argument := ""
		if refusal.Argument != "" {
			argument = ", argument " + refusal.Argument
		}
		s.Print("refused: %s (%s%s)", cli.Quoted(refusal.Text()), refusal.Code, argument)
		return nil
	}
	s.Print("good: capability %s of %s, for %s, until %s", t.ID, cli.Entity(t.Holder), strings.Join(t.Layers[0].Tools, ", "), cli.Time(t.Expires))
	return nil
}

// jwks are the keys of the service.
type jwks struct{ jose.JSONWebKeySet }

func (k jwks) Key(_ context.Context, kid string) (key ed25519.PublicKey, found bool, err error) {
	for _, one := range k.JSONWebKeySet.Key(kid) {
		if key, found = one.Key.(ed25519.PublicKey); found {
			return key, true, nil
		}
	}
	return nil, false, nil
}

func readJWKS(ctx context.Context, s cli.Streams, from string) (keys jwks, err error) {
	var text []byte
	if strings.Contains(from, "://") {
		var server *httpclient.Server
		if server, err = httpclient.New(from, httpclient.Options{}); err == nil {
			defer server.Close()
			text, err = server.Get(ctx, "", nil, 64<<10)
		}
	} else {
		text, err = cli.ReadSmall(from, s.In)
	}
	if err == nil {
		err = json.Unmarshal(text, &keys.JSONWebKeySet)
	}
	if err == nil && len(keys.Keys) == 0 {
		err = errors.New("there is no key in it")
	}
	return keys, err
}
