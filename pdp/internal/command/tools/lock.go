package tools

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/server/config"
)

// Lock compares the tools of servers with those that were accepted.
type Lock struct {
	Config    cli.Given `required:"" placeholder:"FILE" env:"MCP_GATEWAY_CONFIG" help:"The configuration file of the gateway. Its lock.file is the lock."`
	Diff      bool      `xor:"what" help:"Say what is not as it is locked, line by line."`
	Accept    bool      `xor:"what" help:"Write the lock, and say what is changed in it."`
	Server    cli.Given `placeholder:"NAME" help:"Look at one upstream alone. What is locked of the others stays."`
	TokenFile cli.Given `placeholder:"FILE" help:"The access token of a client of the gateway, for upstreams whose credentials are exchanged for it. - is standard input."`
}

// Help ends the command's help.
func (Lock) Help() string {
	return "The command connects with each upstream as the gateway does, and lists its tools. Without --diff and --accept it prints the " +
		"lock that --accept would write. Read what you accept: a definition is what a model is told.\n\n" +
		"Exit codes: 0 if nothing has changed, or it is accepted; 1 if --diff finds a change; 2 if it cannot run, or an upstream cannot be " +
		"asked. Of that one nothing is written."
}

// Run asks the servers, and prints or writes their answers.
func (c Lock) Run(s cli.Streams) error {
	settings, token, err := c.read(s)
	if err != nil {
		return err
	}
	locked, mended, err := c.locked(settings)
	if err != nil {
		return err
	}
	found, away, err := survey(s, settings, token)
	if err != nil {
		return err
	}
	now := c.merged(locked, found, settings)
	changed := false
	switch {
	case c.Diff:
		changed = printChanges(s, lock.Compare(locked, now), "nothing has changed")
	case c.Accept:
		if away != nil && (mended || len(found.Servers) == 0) {
			return fmt.Errorf("nothing is written, because what is locked of it is not known: %w", away)
		}
		if err := accept(s, settings.Lock.File, locked, now); err != nil {
			return err
		}
	default:
		s.Print("%s", cli.Lines(strings.TrimSuffix(string(now.Text()), "\n")))
	}
	warnUnjudged(s, settings, now)
	if changed && away == nil {
		return cli.No
	}
	return away
}

// configIn is the configuration in a file.
func configIn(file cli.Given) (settings mcp.Config, err error) {
	_, err = mcp.Form.Read(config.Given{File: string(file)}, &settings)
	mcp.Form.SetDefaults(&settings)
	return settings, err
}

// survey asks the servers. Away is that one could not be asked.
func survey(s cli.Streams, settings mcp.Config, token string) (found lock.File, away, err error) {
	ctx, stop := cli.UntilSignal()
	defer stop()
	if found, away = mcp.Survey(ctx, settings, mcp.Deps{Logger: warnings(s.Err)}, token); away != nil {
		away = fmt.Errorf("%w; see that it runs, and that policy-service mcp-gateway doctor finds nothing", away)
	}
	if ctx.Err() != nil {
		err = errors.New("it was interrupted, and nothing is written; run it again")
	}
	return found, away, err
}

// read is the configuration, of one server alone if only that is asked for, and the token.
func (c Lock) read(s cli.Streams) (settings mcp.Config, token string, err error) {
	if settings, err = configIn(c.Config); err != nil {
		return settings, "", err
	}
	if settings.Lock.File == "" {
		return settings, "", fmt.Errorf("%s has no lock.file; add lock: {file: tools.lock.json}", c.Config)
	}
	if name := string(c.Server); name != "" {
		u, known := settings.Upstreams[name]
		if !known {
			return settings, "", fmt.Errorf("--server: there is no upstream %q; write a name of upstreams in the configuration", name)
		}
		settings.Upstreams = map[string]mcp.UpstreamConfig{name: u}
	}
	token, err = tokenIn(c.TokenFile, s.In)
	return settings, token, err
}

// tokenIn is the access token in a file. There is none if no file is given.
func tokenIn(file cli.Given, in io.Reader) (token string, err error) {
	if file == "" {
		return "", nil
	}
	text, err := cli.ReadSmall(string(file), in)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w; write an access token into a file", err)
	}
	if token = strings.TrimSpace(string(text)); token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", errors.New("--token-file: it holds no token; write the token, and nothing else, on one line")
	}
	return token, nil
}

// locked reads the file; it is empty if there is none yet, or if it is broken and to be mended.
func (c Lock) locked(settings mcp.Config) (f lock.File, mended bool, err error) {
	f, err = lock.Read(settings.Lock.File)
	wrong := (*lock.Error)(nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lock.File{}, false, nil
	case errors.As(err, &wrong) && c.Accept && c.Server == "":
		return lock.File{}, true, nil
	case errors.As(err, &wrong) && c.Accept:
		return f, false, fmt.Errorf("%w; leave --server out: what is locked of other upstreams cannot be kept", err)
	}
	return f, false, err
}

// merged has the servers that were asked, and the locked tools of all others.
func (c Lock) merged(locked, found lock.File, settings mcp.Config) lock.File {
	now := lock.File{Servers: maps.Clone(found.Servers)}
	if now.Servers == nil {
		now.Servers = map[string]lock.Server{}
	}
	for name, server := range locked.Servers {
		_, asked := settings.Upstreams[name]
		if _, answered := found.Servers[name]; !answered && (asked || c.Server != "") {
			now.Servers[name] = server
		}
	}
	return now
}

// warnUnjudged names the tools that the gateway calls with any arguments.
func warnUnjudged(s cli.Streams, settings mcp.Config, now lock.File) {
	for _, server := range slices.Sorted(maps.Keys(now.Servers)) {
		for _, tool := range slices.Sorted(maps.Keys(now.Servers[server].Tools)) {
			if why := mcp.Unjudged(settings, now.Servers[server].Tools[tool]); why != nil {
				warnings(s.Err).Warn("the arguments of a tool are not held against its inputSchema", "server", server, "tool", tool, "why", why)
			}
		}
	}
}

func accept(s cli.Streams, file string, locked, now lock.File) error {
	if err := now.Write(file); err != nil {
		return fmt.Errorf("cannot write the lock: %w; try it where %s can be written", err, file)
	}
	printChanges(s, lock.Compare(locked, now), "nothing has changed")
	s.Print("%s is written", file)
	return nil
}

// warnings logs warnings and errors only.
func warnings(to io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// printChanges prints changes, and reports whether there are any.
func printChanges(s cli.Streams, changes []lock.Change, none string) bool {
	for _, c := range changes {
		s.Print("%s", cli.Shown(c.Title()))
		for _, line := range c.Lines() {
			hue := cli.Red
			if strings.HasPrefix(line, "+") {
				hue = cli.Green
			}
			s.Print("  %s", s.Colour(hue, cli.Shown(line)))
		}
	}
	if len(changes) == 0 {
		s.Print("%s", none)
	}
	return len(changes) > 0
}
