package author

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/mcp/wire"
)

// AccessImport writes the declaration that a message asks for.
type AccessImport struct {
	Policies      string    `required:"" placeholder:"DIR" help:"The directory of the bundle to write the declaration into."`
	Tenant        cli.Given `placeholder:"T" help:"The tenant that the declaration is for. Without it, the declaration is for all of them."`
	Owner         cli.Given `placeholder:"O" help:"Whose tools the message is about. The envelope of a message says so; what has no envelope needs this."`
	Subjects      []string  `default:"agent,user" placeholder:"TYPE" help:"Which types of subjects the names in the message are of, as requests send them: agent,user unless given, because a message does not tell the two apart."`
	Replace       bool      `help:"Replace the declaration that the owner has, if it differs."`
	WriteManifest bool      `help:"Write the MANIFEST of the bundle again. A bundle that has one does not load otherwise."`
	File          string    `arg:"" help:"The message tool_access_policy: with its envelope, as sent by MCP, its payload, or the policy alone. - is standard input."`
}

// Help ends the command's help.
func (AccessImport) Help() string {
	return "Whoever runs this vouches for the message: nothing in it proves who wrote it. Nothing is written if the bundle would not load with it. A server that runs has it in force within seconds.\n\nExit codes: 0 if the declaration is written or was there already, 1 if it is refused, 2 if it cannot run."
}

// mostMessage is how large a message may be: larger than any declaration that is made of one.
const mostMessage = 1 << 20

// Run writes the declaration, or says why not.
func (c AccessImport) Run(s cli.Streams) error {
	d, err := c.read(s)
	if err != nil {
		return err
	}
	shelf, err := openShelf(c.Policies, string(c.Tenant))
	if err != nil {
		return err
	}
	name, there := shelf.fileOf(d.owner)
	if other := shelf.named(name); there == nil && other != nil {
		return fmt.Errorf("%s is about the tools of %s; rename it, and try again", shelf.at(path.Join(shelf.dir, name)), other.owner)
	}
	file := path.Join(shelf.dir, name)
	if there != nil && bytes.Equal(said(there.text), said(d.text)) {
		s.Print("%s says so already: nothing is written", shelf.at(file))
		return nil
	}
	if err := shelf.fixed(file); err != nil {
		return err
	}
	bundle, problems := pdp.Check(pdp.Dir(shelf.bundle).With(file, d.text), time.Now())
	switch {
	case bundle == nil:
		bundledir.Print(d.inMessage(about(file, file, problems), c.File, file), s)
		s.Print("%s would not load with it: nothing is written", shelf.bundle)
		return cli.No
	case there != nil && !c.Replace:
		s.Print("%s differs: nothing is written; compare it with the message, and add --replace to have the message replace it", shelf.at(file))
		return cli.No
	case shelf.withManifest() && !c.WriteManifest:
		s.Print("%s has a MANIFEST, and does not load until that is written again: nothing is written; add --write-manifest to have both written", shelf.bundle)
		return cli.No
	}
	if err := c.write(shelf, name, d.text, there); err != nil {
		return err
	}
	bundledir.Print(about(file, file, problems), s)
	s.Print("%s is written; %s loads: %s", shelf.at(file), shelf.bundle, bundle.Digest())
	return nil
}

// write writes the declaration, and then the MANIFEST. Until that is written a server keeps its bundle.
func (c AccessImport) write(shelf *shelf, name string, text []byte, there *held) error {
	switch err := shelf.write(name, text, there); {
	case errors.Is(err, errMeanwhile):
		return fmt.Errorf("%s: %w", shelf.at(path.Join(shelf.dir, name)), err)
	case err != nil:
		return fmt.Errorf("cannot write the declaration: %w; try it where %s can be written", err, shelf.at(shelf.dir))
	}
	if !shelf.withManifest() {
		return nil
	}
	if err := pdp.Dir(shelf.bundle).WriteManifest(); err != nil {
		return fmt.Errorf("the declaration is written, and the MANIFEST is not: %w; run %s --write-manifest", err, shelf.command())
	}
	return nil
}

// read reads the message, and makes a declaration of it that is well by itself.
func (c AccessImport) read(s cli.Streams) (*declaration, error) {
	text, err := cli.Read(c.File, s.In, mostMessage)
	if err != nil {
		return nil, fmt.Errorf("cannot read the message: %w; try a file with one message, or - for standard input", err)
	}
	if syntax := (*jsontext.SyntacticError)(nil); errors.As(readJSON(text), &syntax) && !errors.Is(syntax, jsontext.ErrDuplicateName) {
		return nil, c.noJSON(s, text, int(syntax.ByteOffset))
	}
	policy, err := wire.ReadAccessPolicy(text)
	if err != nil {
		return nil, c.refused(s, err)
	}
	owner := string(c.Owner)
	switch from := policy.Envelope.From; {
	case owner == "" && from == "":
		return nil, errors.New("the message does not say whose tools it is about, because it has no envelope; add --owner")
	case from != "" && owner != "" && from != owner:
		return nil, c.refused(s, fmt.Errorf("/from: the message is from somebody else than --owner says; leave --owner out, or name the sender"))
	case owner == "":
		owner = from
	}
	d, err := declared(policy, owner, c.Subjects)
	if err != nil {
		return nil, c.refused(s, err)
	}
	if problems := pdp.ReadAccess(draftName, d.text); problems.Refuse() {
		bundledir.Print(d.inMessage(problems, c.File, draftName), s)
		s.Print("%s is refused: nothing is written", c.File)
		return nil, cli.No
	}
	return d, nil
}

// draftName stands for the file of a declaration whose owner is not known to be a name.
const draftName = "access/new.yaml"

// readJSON is the first fault of a text as JSON.
func readJSON(text []byte) error {
	_, err := jsontext.NewDecoder(bytes.NewBuffer(text)).ReadValue()
	return err
}

// noJSON says from where on the message is none.
func (c AccessImport) noJSON(s cli.Streams, text []byte, offset int) error {
	what := "from here on it is no JSON in UTF-8"
	if rest := text[offset:]; bytes.HasPrefix(rest, []byte("/")) || bytes.HasPrefix(rest, []byte("#")) {
		what = "JSON has no comments; take this one out"
	}
	line, column := cli.Position(text, offset)
	s.Print("%s:%d:%d: %s", c.File, line, column, what)
	s.Print("%s is refused: nothing is written", c.File)
	return cli.No
}

// refused says where the message is wrong.
func (c AccessImport) refused(s cli.Streams, err error) error {
	s.Print("%s: %s", c.File, cli.Quoted(err.Error()))
	s.Print("%s is refused: nothing is written", c.File)
	return cli.No
}

// said is a declaration without the comment that says where it comes from.
func said(text []byte) []byte {
	if first, rest, more := bytes.Cut(text, []byte("\n")); more && bytes.HasPrefix(first, []byte("#")) {
		return rest
	}
	return text
}
