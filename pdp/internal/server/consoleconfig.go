package server

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/internal/server/listener"
)

// ConsoleConfig turns the console on, which is pages where people decide about approval requests.
type ConsoleConfig struct {
	// Listen is an address of its own; "" is that of the server.
	Listen string `yaml:"listen" doc:"An address of the console's own, as host:port. The console is then at no other address, and nothing else is at this one. Any address but loopback needs TLS and credentials. Without it the console is at listen."`
	// PublicURL begins every link to the console.
	PublicURL string `yaml:"public_url" doc:"The address by which people reach the console, as https://host[:port]/console. The host should be the console's own. It may be http on loopback. Every link to the console begins with it. A proxy may take off what stands before /console, if anything does. Unless given, it is /console below public_url, or below the console's address if that is loopback."`
	// TrustedProxies say where a request comes from.
	TrustedProxies []string `yaml:"trusted_proxies" doc:"The addresses of proxies before the console, as 10.0.0.5 or 10.0.0.0/24. Of a request of theirs, the last address in X-Forwarded-For that is none of theirs counts as the one that it comes from: failed logins and pages are bounded by address. Without them, all people behind a proxy have one address. With tls.terminated, tls.proxies say it."`
	// OIDC is the issuer by which people log in; nil is none, and then they log in with API keys.
	OIDC *auth.OIDC `yaml:"oidc" reload:"yes" doc:"The OpenID provider by which people log in. Without it they log in with API keys."`
	// Session bounds how long people stay logged in.
	Session SessionConfig `yaml:"session"`
}

// SessionConfig bounds how long people stay logged in.
type SessionConfig struct {
	Max  time.Duration `yaml:"max" default:"8h" min:"5m" max:"24h" doc:"How long a person stays logged in at most. After a login by OIDC it is at most 1h."`
	Idle time.Duration `yaml:"idle" default:"30m" min:"1m" max:"24h" doc:"How long a person who asks for no page stays logged in."`
}

const (
	// consolePath is where the console is on its listener.
	consolePath = "/console"
	// safeConsole is an address for it that needs neither TLS nor credentials.
	safeConsole = "127.0.0.1:8182"
)

// check looks for mistakes in the values of the section; there are none if there is no console.
func (c *ConsoleConfig) check(r *config.Reading, others AuthConfig) {
	if c == nil {
		return
	}
	if c.PublicURL != "" {
		_, err := cleanConsoleURL(c.PublicURL)
		r.Add("console.public_url", err)
	}
	if c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil || isSocket(c.Listen) {
			r.Addf("console.listen", "console.listen is %q, which is no address to listen on; try host:port, such as %s", c.Listen, safeConsole)
		}
	}
	_, err := c.proxies()
	r.Add("console.trusted_proxies", err)
	if c.OIDC == nil {
		return
	}
	if _, err = auth.NewConsole(*c.OIDC, nil, auth.JWTOptions{}); err == nil {
		err = c.OIDC.CheckBeside(others.JWT)
	}
	r.Add("console.oidc", err)
}

// oidc is the issuer by which people log in; nil if there is none.
func (c *Config) oidc() *auth.OIDC {
	if c.Console == nil {
		return nil
	}
	return c.Console.OIDC
}

// proxies are the trusted proxies.
func (c *ConsoleConfig) proxies() (auth.Proxies, error) {
	all, err := auth.ParseProxies(c.TrustedProxies)
	if err != nil {
		err = fmt.Errorf("console.trusted_proxies %w", err)
	}
	return all, err
}

// consoleBeside returns an error if other pages have the host of the console, if its address shows it: a browser keeps them
// apart from the console by nothing but what they may not do elsewhere. It is nil if the console is alone there, or off.
func (c *Config) consoleBeside() error {
	if c.Console == nil {
		return nil
	}
	at := c.Console.PublicURL
	if at == "" && c.Console.Listen == "" && c.PublicURL != "" {
		at = strings.TrimSuffix(c.PublicURL, "/") + consolePath
	}
	if strings.TrimSuffix(urlPath(strings.TrimSuffix(at, "/")), consolePath) == "" {
		return nil
	}
	return fmt.Errorf("the console is at %s, so the host has other pages, too, whose scripts can get between the console and the people who log in there; give it a host of its own, such as https://approve.example.com/console", at)
}

// cleanConsoleURL returns a public_url of the console as links begin with it. A session's cookie would be everybody's on
// the way if people came by plain HTTP.
func cleanConsoleURL(given string) (string, error) {
	clean, err := cleanPublicURL(given)
	if err != nil {
		return "", fmt.Errorf("console.%w", err)
	}
	u, err := url.Parse(clean)
	switch {
	case err != nil || u.Scheme != "https" && !auth.IsLoopbackName(u.Hostname()):
		return "", errors.New("console.public_url is plain HTTP to other machines; try https, of the service itself or of a proxy before it")
	case !strings.HasSuffix(u.Path, consolePath):
		return "", errors.New("console.public_url must end in /console, where the console is; try https://pdp.example.com/console")
	}
	return clean, nil
}

// checkConsole finds why there could be no console, and writes its PublicURL in its one form.
func (c *Config) checkConsole() error {
	if c.Console == nil {
		return nil
	}
	own := *c.Console // which other configurations may share
	c.Console = &own
	switch {
	case c.Program.Authenticator != nil || c.Program.InProcess:
		return errors.New("console needs a server that listens and tells callers apart by itself, and this program does so; leave console out")
	case c.Data == "" || c.Program.PDP.Recorder != nil:
		return errors.New("console shows approval requests, and there are none without a data directory; add --data or data, or leave console out")
	}
	if own.Listen != "" && !listener.IsLoopback(own.Listen) {
		if err := c.exposable(own.Listen, safeConsole); err != nil {
			return err
		}
	}
	switch {
	case own.PublicURL != "":
		own.PublicURL, _ = cleanConsoleURL(own.PublicURL)
	case own.Listen == "" && c.PublicURL != "":
		if _, err := cleanConsoleURL(c.PublicURL + consolePath); err != nil {
			return fmt.Errorf("%w; it is made from public_url, so write console.public_url, or another public_url", err)
		}
	case !c.known(cmp.Or(own.Listen, c.Listen)):
		return errors.New("console.public_url is missing, and links to the console could not be made; write the address by which people reach it, such as https://pdp.example.com/console")
	}
	return nil
}
