package author

import (
	"context"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/lsp"
)

// LSP is a language server.
type LSP struct {
	Stdio bool `help:"Does nothing: a language server speaks by its standard streams in any case. Some editors send it."`
}

// Help ends the command's help.
func (LSP) Help() string {
	return "An editor starts it, and speaks the Language Server Protocol with it by its standard streams. It says what is wrong " +
		"with a bundle before its files are saved, and knows what its policies can name. It writes no file.\n\n" +
		"Exit codes: 0 if the editor said exit after shutdown, 2 if it ended otherwise."
}

// Run answers an editor.
func (LSP) Run(s cli.Streams) error {
	return lsp.Serve(context.Background(), s.In, s.Out, lsp.Options{})
}
