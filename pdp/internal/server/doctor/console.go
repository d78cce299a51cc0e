package doctor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
)

// issuerPatience is how long the doctor waits for the issuer of the console.
const issuerPatience = 5 * time.Second

// console is the console, if there is one.
type console struct {
	*server.Config
	keys keyList
	said finding.List // of the configuration
}

// Findings looks whether people could log in.
func (c console) Findings(ctx context.Context) (found finding.List) {
	if c.Console == nil {
		return nil
	}
	found = of("console", c.said)
	if err := c.canListen(ctx); err != nil {
		found.Bites("console", "give console.listen an address of this machine that nothing else has", "%s cannot be listened on: %v", c.Console.Listen, err)
	}
	if c.Console.OIDC != nil {
		c.issuer(ctx, *c.Console.OIDC, &found)
	} else if !c.keys.credentials(c.Config) {
		found.Bites("console", `policy-service keys add --data DIR --name NAME --permission approve --principal 'User::"NAME"', or set console.oidc`, "nobody can log in: there are neither API keys nor console.oidc")
	}
	return found
}

// canListen returns why the console's own address cannot be had. If both addresses are in use, [address] names the holder.
func (c console) canListen(ctx context.Context) error {
	if c.Console.Listen == "" {
		return nil
	}
	_, err := canListen(ctx, c.Config, c.Console.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		if _, other := canListen(ctx, c.Config, c.Listen); errors.Is(other, syscall.EADDRINUSE) {
			return nil
		}
	}
	return err
}

// issuer looks for the issuer, and for its secret for the console.
func (c console) issuer(ctx context.Context, o auth.OIDC, found *finding.List) {
	known, err := auth.NewConsole(o, nil, auth.JWTOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return // [configuration] says so
	}
	asked, cancel := context.WithTimeout(ctx, issuerPatience)
	defer cancel()
	if known.HaveKeys(asked) != nil {
		found.Bites("console", "see that "+strings.TrimSuffix(o.Issuer, "/")+"/.well-known/openid-configuration can be fetched from here", "nobody can log in by %s: its keys cannot be fetched", o.Issuer)
	} else {
		found.OK("console", "the keys of %s are there", o.Issuer)
	}
	if o.ClientSecretFile == "" {
		return
	}
	secret, err := plainfile.Read(o.ClientSecretFile, 64<<10)
	if err == nil && strings.TrimSpace(string(secret)) == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		found.Bites("console", "put the secret that the issuer has given the console there, for the user that serve runs as alone", "nobody can log in by %s: %s cannot be read: %v", o.Issuer, o.ClientSecretFile, err)
	}
}
