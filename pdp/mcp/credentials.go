package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/plainfile"
)

// CheckCredential returns the error with which each request to a server would refuse a file with a credential.
func CheckCredential(file string) error { return upstream.CheckSecret(file) }

// credentials are the gateway's credentials for an upstream; nil is none.
func (a UpstreamAuth) credentials(now func() time.Time) (upstream.Credentials, error) {
	switch {
	case a.HeaderFile != "":
		return upstream.NewHeaderFile(upstream.HeaderFile{Path: a.HeaderFile, Header: a.Header}), nil
	case a.TokenExchange != nil:
		return upstream.NewTokenExchange(a.TokenExchange.endpoint(now))
	case a.ClientCredentials != nil:
		return upstream.NewClientCredentials(a.ClientCredentials.endpoint(now))
	}
	return nil, nil
}

func (t *TokenEndpoint) endpoint(now func() time.Time) upstream.TokenEndpoint {
	return upstream.TokenEndpoint{
		TokenURL: t.TokenURL, ClientID: t.ClientID, ClientSecretFile: t.ClientSecretFile,
		Audience: t.Audience, Resource: t.Resource, Scopes: t.Scopes,
		AllowNetworks: prefixes(t.AllowNetworks), RootsFile: t.CAFile, Now: now,
	}
}

// prefixes are networks that were checked.
func prefixes(texts []string) (all []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// mostVariable bounds the value of an environment variable that stands in a file.
const mostVariable = 64 << 10

// environment is all that the program of an upstream gets. A line end at the end of a file does not count.
func (u UpstreamConfig) environment() (map[string]string, error) {
	env := maps.Clone(u.Env)
	if env == nil {
		env = map[string]string{}
	}
	for _, name := range sortedNames(u.EnvFiles) {
		text, err := plainfile.ReadPrivate(u.EnvFiles[name], mostVariable)
		if err != nil {
			return nil, fmt.Errorf("env_files.%s cannot be had: %w; correct the file's name or permissions", name, err)
		}
		value := strings.TrimRight(string(text), "\r\n")
		if value == "" || strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("env_files.%s: the file is empty, or has a NUL in it, which no variable has; write the value there", name)
		}
		env[name] = value
	}
	return env, nil
}

// secrets are the values of env that are masked in messages of the program.
func (u UpstreamConfig) secrets(env map[string]string) (values []string) {
	for name := range u.EnvFiles {
		if evaluation.SecretName(name) || slices.Contains(u.Secret, name) {
			values = append(values, env[name])
		}
	}
	return values
}

// keyFile is a secret in a file, read again now and then: a change needs no signal.
type keyFile struct {
	path   string
	now    func() time.Time
	logger *slog.Logger // gets the reason why the file is of no use: callers do not log it

	mu    sync.Mutex
	value string
	until time.Time
	wrong string // why the file was of no use when it was last read
}

// fresh is for how long a file is believed to be as it was.
const fresh = time.Second

// token is the secret. A file that cannot be read is an error, and never no secret.
func (f *keyFile) token(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now().Before(f.until) {
		return f.value, nil
	}
	value, err := f.read()
	f.tell(err)
	if err != nil {
		return "", err
	}
	f.value, f.until = value, f.now().Add(fresh)
	return value, nil
}

// read reads the file. Its errors have nothing of the secret.
func (f *keyFile) read() (string, error) {
	text, err := plainfile.ReadPrivate(f.path, 4096)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" || strings.ContainsAny(value, " \t\r\n") {
		return "", fmt.Errorf("%s holds no key: write the key, and nothing else, on one line", f.path)
	}
	return value, nil
}

// tell logs a mistake once, and not with each request, until it is mended or there is another.
func (f *keyFile) tell(err error) {
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	switch {
	case wrong == f.wrong:
	case wrong != "":
		f.logger.Error("every request is refused: pdp.key_file cannot be used: " + wrong)
	default:
		f.logger.Info("pdp.key_file can be used again")
	}
	f.wrong = wrong
}
