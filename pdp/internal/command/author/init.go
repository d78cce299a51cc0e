package author

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing/fstest"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/policies"
)

// Init writes a bundle to begin from: one of package policies, in which the first user has the name that is given.
type Init struct {
	Dir      string    `arg:"" optional:"" help:"The directory to write the bundle into, which is made, or is empty. Without it, policies."`
	Template cli.Given `placeholder:"NAME" help:"saas: an application that serves many customers. mcp: people and agents behind the MCP gateway. minimal: one policy to build on. Without the flag, a terminal is asked."`
	User     cli.Given `placeholder:"ID" help:"The id of the first user, in place of alice. Without the flag, a terminal is asked."`
}

// Help ends the command's help.
func (Init) Help() string {
	return "The bundle loads without warnings, and its tests pass. The command writes nothing into a directory that is not empty."
}

// firstUser is the user of every template that a name is put in place of.
var firstUser = regexp.MustCompile(`\balice\b`)

// plainID is an id that policies, entities and YAML all take as it is.
var plainID = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._@-]{0,127}$`)

// Run writes the bundle, and prints the next commands.
func (c Init) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	dir := cmp.Or(c.Dir, "policies")
	if held, err := os.ReadDir(dir); err == nil && len(held) > 0 {
		return fmt.Errorf("%s is not empty, and nothing in it is written over; try another directory", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot look into the directory: %w; try another", err)
	}
	template, user, err := c.answers(ctx, s)
	if err != nil {
		return err
	}
	bundle, err := fill(template, user)
	if err != nil {
		return err
	}
	bundle["README.md"] = &fstest.MapFile{Data: []byte(readme(template, dir, user))}
	if err := os.CopyFS(dir, bundle); err != nil {
		return fmt.Errorf("cannot write the bundle: %w; try another directory", err)
	}
	s.Print("%s holds the template %s. Type next:", dir, template)
	for _, command := range nextCommands(dir) {
		s.Print("  %s", cli.Quoted(command))
	}
	return nil
}

// answers are the template and the first user: from the flags, else from a terminal.
func (c Init) answers(ctx context.Context, s cli.Streams) (template, user string, err error) {
	asked := func(given, question, fallback string) string {
		if given != "" || err != nil || !s.Interactive() {
			return given
		}
		var text string
		text, err = s.Ask(ctx, question)
		return cmp.Or(text, fallback)
	}
	template = asked(string(c.Template), "Template: saas (many customers), mcp (the MCP gateway) or minimal? [minimal]", "minimal")
	user = asked(string(c.User), "Id of the first user? [alice]", "alice")
	switch {
	case err != nil:
		return "", "", err
	case template == "":
		return "", "", errors.New("no template is named, and no terminal can be asked; write --template saas, --template mcp or --template minimal")
	case template != "saas" && template != "mcp" && template != "minimal":
		return "", "", fmt.Errorf("there is no template %q; try saas, mcp or minimal", template)
	}
	if user = cmp.Or(user, "alice"); !plainID.MatchString(user) {
		return "", "", fmt.Errorf("%q is no id that policies and tests can be written with as it is; try a letter first, and then letters, digits, dots, @, _ and -", user)
	}
	return template, user, nil
}

// fill is a template with the name of the first user. That must load and pass its tests; the name of another user of the template does not.
func fill(template, user string) (fstest.MapFS, error) {
	from, err := policies.Named(template)
	if err != nil {
		return nil, err
	}
	bundle, taken := fstest.MapFS{}, regexp.MustCompile(`\b`+regexp.QuoteMeta(user)+`\b`)
	err = fs.WalkDir(from, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		if user != "alice" && taken.Match(text) {
			err = fmt.Errorf("the template %s has the name %q for something else; try another --user", template, user)
		}
		bundle[name] = &fstest.MapFile{Data: firstUser.ReplaceAllLiteral(text, []byte(user)), Mode: 0o644}
		return err
	})
	if err != nil {
		return nil, err
	}
	loaded, problems := pdp.Check(pdp.FS(bundle), time.Now())
	examples, more := pdp.Examples(pdp.FS(bundle))
	r := results{bundle: loaded}
	if problems = append(problems, more...); len(problems) == 0 {
		decider := pdp.Of(loaded, pdp.Options{})
		for _, e := range examples {
			r.run(decider, e)
		}
	}
	if len(problems) > 0 || r.failed() > 0 {
		return nil, fmt.Errorf("with the name %q the template %s does not hold together; try another --user", user, template)
	}
	return bundle, nil
}

// nextCommands are the commands to type after init.
func nextCommands(dir string) []string {
	word := cli.Shell(dir)
	return []string{
		"policy-service check --strict " + word,
		"policy-service test " + word,
		"policy-service serve --policies " + word + " --data data",
	}
}

// readme is ten lines about the bundle.
func readme(template, dir, user string) string {
	first := map[string]string{
		"saas":    "tenants/acme/entities/people.json, then roles.cedar: " + user + " is an admin of the customer acme",
		"mcp":     "bundle.yaml, which says in which order: " + user + " is a person whose agents may use tools",
		"minimal": "pages.cedar, then entities/people.json: " + user + " is an editor",
	}[template]
	return "# Policies\n\nWritten by `policy-service init --template " + template + "`. Read first " + first + ".\n\n```sh\n" +
		strings.Join(nextCommands(filepath.Clean(dir)), "\n") + "\n```\n\nA running server loads an edit by itself. After each edit, run the first two.\n"
}
