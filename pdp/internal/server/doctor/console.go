package doctor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/auth"
)

// issuerPatience is how long the doctor waits for the issuer of the console.
const issuerPatience = 5 * time.Second

// console looks whether people could log in, if there is a console.
func (x *exam) console() {
	c := x.Config.Console
	if c == nil {
		return
	}
	if err := x.Config.ConsoleBeside(); err != nil {
		x.Wrong("console", err)
	}
	x.consoleListen(c.Listen)
	if c.OIDC != nil {
		x.consoleIssuer(*c.OIDC)
	} else if !x.credentials() {
		x.Bites("console", `policy-service keys add --data DIR --name NAME --permission approve --principal 'User::"NAME"', or set console.oidc`, "nobody can log in: there are neither API keys nor console.oidc")
	}
}

// consoleListen looks whether the console's own address can be had. If both addresses are in use, [exam.listen] names the
// holder.
func (x *exam) consoleListen(listen string) {
	if listen == "" {
		return
	}
	_, err := x.canListen(listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		if _, other := x.canListen(x.Config.Listen); errors.Is(other, syscall.EADDRINUSE) {
			return
		}
	}
	if err != nil {
		x.Bites("console", "give console.listen an address of this machine that nothing else has", "%s cannot be listened on: %v", listen, err)
	}
}

// consoleIssuer looks for the issuer, and for its secret for the console.
func (x *exam) consoleIssuer(o auth.OIDC) {
	known, err := auth.NewConsole(o, nil, auth.JWTOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return // [exam.configuration] has it
	}
	ctx, cancel := context.WithTimeout(x.ctx, issuerPatience)
	defer cancel()
	if known.HaveKeys(ctx) != nil {
		x.Bites("console", "see that "+strings.TrimSuffix(o.Issuer, "/")+"/.well-known/openid-configuration can be fetched from here", "nobody can log in by %s: its keys cannot be fetched", o.Issuer)
	} else {
		x.OK("console", "the keys of %s are there", o.Issuer)
	}
	if o.ClientSecretFile == "" {
		return
	}
	secret, err := plainfile.Read(o.ClientSecretFile, 64<<10)
	if err == nil && strings.TrimSpace(string(secret)) == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		x.Bites("console", "put the secret that the issuer has given the console there, for the user that serve runs as alone", "nobody can log in by %s: %s cannot be read: %v", o.Issuer, o.ClientSecretFile, err)
	}
}
