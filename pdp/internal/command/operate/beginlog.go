package operate

import (
	"fmt"
	"path/filepath"
	"strings"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/server"
)

// BeginLog is policy-service log begin.
type BeginLog struct {
	Data       string `required:"" placeholder:"DIR" help:"The data directory of the server, which must not be running."`
	AcceptLoss bool   `required:"" help:"Accept that nobody knows what the old decision log had on record."`
}

// Help ends the command's help.
func (BeginLog) Help() string {
	return "Use this only if serve says that the decision log is damaged, or does not go on where it ended, and what is " +
		"missing cannot be put back. Copy the directory first: it is evidence.\n\n" +
		"What there is of the old log is in DIR/restored from then on, and the next start begins a new one, with a new key. " +
		"The old log may have had revocations and uses that nobody sees now. So all API keys are revoked: make others, under other names. " +
		"Approval requests and capabilities have ended. The first records of the new log say so (log_begun)."
}

// Run puts the old log aside.
func (c BeginLog) Run(s cli.Streams) error {
	ended, err := server.BeginLog(c.Data)
	if err != nil {
		return fmt.Errorf("cannot begin another log: %w", err)
	}
	s.Print("the next start begins a new decision log; what there is of the old one is in %s", cli.Shell(filepath.Join(c.Data, server.RestoredDir)))
	if len(ended) > 0 {
		s.Print("revoked: the API keys %s; policy-service keys add --data %s makes others", strings.Join(ended, ", "), cli.Shell(c.Data))
	}
	s.Print("approval requests and capabilities of the old log have ended, and new keys sign metadata and tokens")
	return nil
}
