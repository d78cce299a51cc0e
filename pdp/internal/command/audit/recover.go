package audit

import (
	"fmt"
	"strings"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
)

type recoverCommand struct {
	Data       string `required:"" placeholder:"DIR" help:"The data directory of the server, which must not be running."`
	AcceptLoss bool   `required:"" help:"Accept that the records that cannot be read are lost."`
}

// Help ends the command's help.
func (recoverCommand) Help() string {
	return "Use this only if serve says that the journal of the decision log is damaged or missing: the journal holds " +
		"what was answered in the moment before a crash. Put a good disk or the missing files back first, if you can, " +
		"and copy the directory: it is evidence.\n\n" +
		"The command keeps every record that can be read, puts the loss of the others on record (loss_accepted), and " +
		"gives the files of the journal other names (journal.N.lost-TIME). They still hold records, so the next " +
		"redaction or retention removes them. An approval that only a lost record used may be used again: revoke what " +
		"must not be. Without damage, the command changes nothing and exits with 2."
}

// Run accepts the loss.
func (c recoverCommand) Run(s cli.Streams) error {
	log := logFlags{Data: c.Data}
	err := log.exists()
	var loss decisionlog.Loss
	if err == nil {
		loss, err = decisionlog.Recover(c.Data, decisionlog.Options{})
	}
	if err != nil {
		return log.failed("recover the log", err)
	}
	lost := "it is unknown how many records are lost"
	if loss.Lost != nil {
		lost = cli.Plural(int(*loss.Lost), "record") + " lost"
	}
	s.Print("%s at byte %d: %s", loss.File, loss.Offset, loss.Reason)
	s.Print("%s, %d kept; the event loss_accepted says so in the log", lost, loss.Kept)
	if len(loss.Files) > 0 {
		s.Print("moved aside in %s: %s", cli.Shell(c.Data+"/"+format.LogDir), strings.Join(loss.Files, ", "))
	}
	return nil
}

// unfilled names the records that only the journal of a log has, "" if there are none.
func unfilled(u *segment.Unfilled) string {
	if u == nil {
		return ""
	}
	are := "records are"
	if u.Records == 1 {
		are = "record is"
	}
	text := fmt.Sprintf("%d %s in the journal only, left by a crash, and not here: ", u.Records, are)
	if u.Damage != "" {
		return text + u.Damage + "; no server starts, see policy-service log recover --help"
	}
	return text + "the next start of the server puts what is there into the decision log"
}
