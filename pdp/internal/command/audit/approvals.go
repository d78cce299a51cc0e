package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/visible"
)

type approvalsCommand struct {
	sourceFlags
	Span     spanFlags `embed:""`
	Tenant   cli.Given `placeholder:"T" help:"Only approval requests of this tenant."`
	By       cli.Given `placeholder:"PERSON" help:"Only approval requests about which this person said something: an id, TYPE/ID, or as policies write it."`
	Subject  cli.Given `placeholder:"ID" help:"Only approval requests with this subject: an id, or TYPE/ID."`
	Resource cli.Given `placeholder:"ID" help:"Only approval requests with this resource: an id, or TYPE/ID."`
	Action   cli.Given `placeholder:"NAME" help:"Only approval requests with this action."`
	Approval cli.Given `placeholder:"ID" help:"Only the approval request with this id, as log show prints it."`
	Text     cli.Given `placeholder:"WORD" help:"Only approval requests with this text in what was asked or said, whatever the case of its letters. Without --from or --since, only those with such a step in the last 90 days."`
	Status   status    `placeholder:"STATUS" help:"Only approval requests that are in this state now: pending, approved, denied, expired, cancelled, used_up or revoked."`
	JSON     bool      `name:"json" help:"Print JSON, one line for each approval request."`
}

// Help ends the command's help.
func (approvalsCommand) Help() string {
	return "The oldest comes first. An approval request is shown if one of its steps is of the time that the flags say, " +
		"and then with all its steps, also those of another time. Each step has the id of its record, for log show and " +
		"log prove. The command checks neither signatures nor seals: policy-service log verify checks signatures, and " +
		"only the server has what a seal is checked with."
}

// status is a state of an approval request, or "" for all.
type status approval.Status

// UnmarshalText refuses every other word.
func (s *status) UnmarshalText(text []byte) error {
	if *s = status(text); !slices.Contains(approval.Statuses(), approval.Status(text)) {
		return fmt.Errorf("%q is no state; write pending, approved, denied, expired, cancelled, used_up or revoked", text)
	}
	return nil
}

// Run prints approval requests with their steps.
func (c approvalsCommand) Run(s cli.Streams) error {
	only, err := filterFlags{
		Span: c.Span, Tenant: c.Tenant, Subject: c.Subject, Resource: c.Resource, Action: c.Action, Approval: c.Approval, Text: c.Text,
	}.filter(s)
	if err != nil {
		return err
	}
	only.Kind = format.KindApproval
	if err := c.sayPartial(s); err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	var all []*story
	read := func(log tailed) (err error) { all, err = stories(stepsOf(ctx, log), only, true); return err }
	const what = "read the approval requests"
	switch {
	case c.Server != "":
		err = c.remote(func(log *remote.Log) error { return read(log) })
	case c.Data != "":
		err = read(tailedHere(c.Data))
	default:
		if all, err = stories(c.inFile(what), only, false); err == nil {
			err = settled(c.inFile(what), all)
		}
		if err != nil {
			return err
		}
	}
	if err != nil {
		return c.failed(what, err)
	}
	all = slices.DeleteFunc(all, func(one *story) bool {
		return c.By != "" && !one.hasWordOf(string(c.By)) || c.Status != "" && one.Status != approval.Status(c.Status)
	})
	if len(all) == 0 {
		s.Tell("no approval request in the log is like that")
		if strings.Contains(string(c.By), "::") && !strings.Contains(string(c.By), `::"`) {
			s.Tell(`--by: as policies write a person, the id has quotes: 'User::"mia"'`)
		}
	}
	for n, one := range all {
		if c.JSON {
			err = s.PrintJSON(one)
		} else {
			if n > 0 {
				s.Print("")
			}
			err = one.print(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// story is an approval request, by its records.
type story struct {
	Approval  string          `json:"approval"`
	Status    approval.Status `json:"status"`
	Version   int             `json:"version"`
	Tenant    string          `json:"tenant"`
	FiledAt   time.Time       `json:"filed_at,omitzero"`
	Decision  string          `json:"decision"` // that waited
	Requester string          `json:"requester,omitzero"`
	Person    string          `json:"person,omitzero"`
	Template  string          `json:"template,omitzero"`
	Quorum    int             `json:"quorum,omitzero"`
	Message   string          `json:"message,omitzero"`
	// Justification is the reason that came beside the request.
	Justification jsontext.Value `json:"justification,omitzero"`
	// Request is not there if no record that is left has it, and Redacted says that it was removed.
	Request  jsontext.Value `json:"request,omitzero"`
	Redacted bool           `json:"redacted,omitzero"`
	// Incomplete says that the record of the filing is not there.
	Incomplete bool        `json:"incomplete,omitzero"`
	Steps      []storyStep `json:"steps"`

	names record.RequestNames
	read  []readStep
}

// storyStep is one record of a story.
type storyStep struct {
	Record             string    `json:"record"`
	Origin             string    `json:"origin,omitzero"` // of the log, if it was read from a file
	Sequence           uint64    `json:"sequence"`
	At                 time.Time `json:"time"`
	Event              string    `json:"event"`
	Caller             string    `json:"caller,omitzero"`
	approval.Statement `json:",inline"`
	UsedBy             string                  `json:"used_by,omitzero"`
	Continues          evaluation.Continuation `json:"continues,omitzero"`
	Unsealed           bool                    `json:"unsealed,omitzero"`
	// LostOrigin had reserved the use, which was counted when its log was lost. Made says that the file has that log,
	// with the decision.
	LostOrigin string `json:"lost_origin,omitzero"`
	Made       bool   `json:"made,omitzero"`
}

// stepRecord has the members of a record of kind approval that a story shows.
type stepRecord struct {
	Request jsontext.Value `json:"request"`
	Details struct {
		story              `json:",inline"`
		approval.Statement `json:",inline"`
		UsedBy             string                  `json:"used_by"`
		Continues          evaluation.Continuation `json:"continues"`
		LostOrigin         string                  `json:"lost_origin"`
		Seal               string                  `json:"seal"`
	} `json:"details"`
}

// records hands out the records that pass a filter, with the origin of their log if there may be several.
type records func(record.Filter, func(origin string, line []byte) error) error

func stepsOf(ctx context.Context, log tailed) records {
	return func(only record.Filter, f func(string, []byte) error) error {
		_, err := log.Tail(ctx, export.TailOptions{After: -1, Filter: only}, func(_ int64, line []byte) error { return f("", line) })
		return err
	}
}

// inFile are the records of a file, each once.
func (a sourceFlags) inFile(what string) records {
	return func(only record.Filter, f func(string, []byte) error) error {
		return a.readFile(what, func(r *export.Reader) error {
			for l, err := range r.Leaves() {
				passes := err == nil && l.Line != nil && !l.Again
				if passes {
					passes, err = only.Matches(l.Line)
				}
				if passes && err == nil {
					err = f(r.Parts[l.Part].Origin, slices.Clone(l.Line))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// settled looks in a file for the uses that were counted because a log was lost: the log may be there.
func settled(read records, all []*story) error {
	counted := map[string][]*storyStep{}
	for _, one := range all {
		for n := range one.Steps {
			if step := &one.Steps[n]; step.LostOrigin != "" {
				counted[step.UsedBy] = append(counted[step.UsedBy], step)
			}
		}
	}
	if len(counted) == 0 {
		return nil
	}
	return read(record.Filter{Kind: format.KindDecision}, func(origin string, line []byte) error {
		r, err := record.Parse(line)
		for _, step := range counted[r.ID] {
			step.Made = step.Made || step.LostOrigin == origin
		}
		return err
	})
}

// stories reads the approval requests of which a step passes a filter, in the order in which they began: first their
// ids, then all their steps. Others than the one that passes may be earlier or later, or say less. If all are of one
// clock, none is read of before the first was filed.
func stories(read records, only record.Filter, oneClock bool) (all []*story, err error) {
	byID, from, begins := map[string]*story{}, time.Now(), oneClock
	each := func(only record.Filter, f func(string, *record.Recorded, *stepRecord)) error {
		return read(only, func(origin string, line []byte) error {
			var step stepRecord
			r, err := record.Parse(line)
			if err == nil {
				err = json.Unmarshal(line, &step)
			}
			if err != nil {
				return fmt.Errorf("record %d: its details are not those of an approval request: %w", r.Sequence, err)
			}
			f(origin, r, &step)
			return nil
		})
	}
	err = each(only, func(_ string, _ *record.Recorded, step *stepRecord) {
		filed := step.Details.FiledAt
		if byID[step.Details.Approval] = nil; filed.Before(from) {
			from = filed
		}
		begins = begins && !filed.IsZero()
	})
	if err != nil || len(byID) == 0 {
		return nil, err
	}
	if from = from.Add(-time.Minute); !begins { // the record is made after the moment that it says
		from = time.Time{}
	}
	err = each(record.Filter{Kind: format.KindApproval, From: from}, func(origin string, r *record.Recorded, step *stepRecord) {
		one, wanted := byID[step.Details.Approval]
		if !wanted {
			return
		}
		if one == nil {
			one = &story{}
			byID[step.Details.Approval], all = one, append(all, one)
		}
		one.read = append(one.read, readStep{origin, r, step})
	})
	for _, one := range all {
		one.tell()
	}
	if err != nil {
		return nil, err
	}
	return all, withdrawn(read, byID, from)
}

// withdrawn adds the decisions that were never answered, because others had their uses, to the stories of their approvals.
func withdrawn(read records, byID map[string]*story, from time.Time) error {
	only := record.Filter{Kind: format.KindAdmin, Event: format.EventWithdrawn, From: from}
	return read(only, func(origin string, line []byte) error {
		var of struct {
			Details record.Withdrawn `json:"details"`
		}
		r, err := record.Parse(line)
		if err == nil {
			err = json.Unmarshal(line, &of)
		}
		if one := byID[of.Details.Approval]; one != nil && err == nil {
			step := storyStep{Record: r.ID, Origin: origin, Sequence: r.Sequence, At: r.Time, Event: r.Event, UsedBy: of.Details.Decision}
			step.Reason = of.Details.Reason
			one.Steps = append(one.Steps, step)
		}
		return err
	})
}

// readStep is a step as it stands in a log.
type readStep struct {
	origin string
	*record.Recorded
	step *stepRecord
}

// tell takes in the steps that were read, in the order of the versions that they brought about: by the clocks of two
// replicas, one may be dated before the one that it follows.
func (one *story) tell() {
	read := one.read
	slices.SortStableFunc(read, func(a, b readStep) int { return a.step.Details.Version - b.step.Details.Version })
	one.Incomplete = read[0].Event != approval.StepFiled
	for _, step := range read {
		one.add(step)
	}
}

// add takes in the next step.
func (one *story) add(r readStep) {
	d := &r.step.Details
	next := d.story
	next.Tenant, next.Request, next.names = r.Tenant, one.Request, one.names
	next.Steps, next.Incomplete, next.Redacted = one.Steps, one.Incomplete, one.Redacted || r.Event == approval.StepRedacted
	next.Message = cmp.Or(next.Message, one.Message)
	if next.Justification == nil {
		next.Justification = one.Justification
	}
	if next.Request == nil && r.step.Request != nil {
		next.Request, next.names = r.step.Request, r.Names
	}
	next.Steps = append(next.Steps, storyStep{
		Record: r.ID, Origin: r.origin, Sequence: r.Sequence, At: r.Time, Event: r.Event, Caller: r.Caller,
		Statement: d.Statement, UsedBy: d.UsedBy, Continues: d.Continues, LostOrigin: d.LostOrigin,
		Unsealed: d.Seal == "" && !slices.Contains(unsealedSteps, r.Event),
	})
	*one = next
}

// unsealedSteps change nothing, and need no seal.
var unsealedSteps = []string{approval.StepOffered, approval.StepRedacted, approval.StepCaughtUp}

// hasWordOf reports whether a person said something.
func (one *story) hasWordOf(person string) bool {
	return slices.ContainsFunc(one.Steps, func(s storyStep) bool {
		return s.Event != approval.StepOffered && s.By != "" && isPerson(s.By, person)
	})
}

// isPerson reports whether an entity, as policies write it, is that of an id, or TYPE/ID, or is written so.
func isPerson(entity, name string) bool {
	typ, quoted, _ := strings.Cut(entity, `::"`)
	id, err := strconv.Unquote(`"` + quoted)
	return name == entity || err == nil && (name == id || name == typ+"/"+id)
}

// The lengths at which texts of a question, and of a step, are cut for people. JSON has all of them.
const (
	longestAsked = 200
	longestSaid  = 500
)

func (one *story) print(s cli.Streams) error {
	about := fmt.Sprintf("%s %s %s", cli.Entity(one.names.Subject), cmp.Or(one.names.Action.Name, "*"), cli.Entity(one.names.Resource))
	switch {
	case one.Redacted:
		about = "(redacted)"
	case one.Request == nil:
		about = "(the record of what was asked is gone, or not here)"
	}
	s.Print("%s  %s  %s  %s  %s", cli.TimeOr(one.FiledAt, "-"), one.Approval, string(one.Status), cmp.Or(one.Tenant, "-"), cli.Cut(about, longestAsked))
	var asked struct {
		Context map[string]jsontext.Value `json:"context"`
	}
	_ = json.Unmarshal(one.Request, &asked) // a request without a context has none to show
	if purpose, ok := asked.Context["purpose"]; ok {
		var text string
		if json.Unmarshal(purpose, &text) != nil {
			text = string(purpose)
		}
		s.Print("    purpose    %s", cli.Cut(text, longestAsked))
	}
	if said := one.justified(); said != "" {
		s.Print("    says why   %s", cli.Cut(said, longestAsked))
	}
	if one.Message != "" {
		s.Print("    message    %s", cli.Cut(one.Message, longestAsked))
	}
	if arguments, ok := asked.Context["arguments"]; ok {
		s.Print("    arguments  %s", cutJSON(arguments))
	}
	if one.Incomplete && !one.Redacted {
		s.Print("    (the steps before these are gone, or not here)")
	}
	t := s.Table()
	for _, step := range one.Steps {
		t.Row(cli.Shown("    "+visible.Text(step.Event)), cli.Time(step.At), step.Record, cli.Cut(step.says(one), longestSaid))
	}
	return t.Flush()
}

// justified is the justification: its text, or JSON if there is more than a text.
func (one *story) justified() (text string) {
	var said map[string]jsontext.Value
	if json.Unmarshal(one.Justification, &said) == nil && len(said) == 1 && json.Unmarshal(said["justification"], &text) == nil {
		return text
	}
	return string(one.Justification)
}

// cutJSON is JSON, in which a backslash stays one.
func cutJSON(text []byte) cli.Shown {
	short, left := cli.Shorten(string(text), longestAsked)
	if left == 0 {
		return cli.Shown(visible.Quoted(short))
	}
	return cli.Shown(visible.Quoted(short) + cli.More(left))
}

// says names the person, the way by which the word came, and the reason; or the decision that the step is about.
func (step *storyStep) says(of *story) string {
	var words []string
	add := func(before, text string) {
		if text != "" {
			words = append(words, before+text)
		}
	}
	if step.Event == approval.StepFiled {
		add("", of.Requester)
		add("for ", of.Person)
	}
	if step.By != "" {
		way := step.Way()
		add("", step.By)
		add("in place of ", step.From)
		add("names ", step.To)
		add("by ", string(way.Via))
		add("through ", way.Gateway)
	} else if step.Event == approval.StepCancelled || step.Event == approval.StepRedacted {
		add("", step.Caller)
	}
	add("by decision ", step.UsedBy)
	if c := step.Continues; c.Decision != "" {
		words = append(words, fmt.Sprintf("as round %d of %s", c.Round, c.Decision))
	}
	if !step.ValidUntil.IsZero() {
		add("until ", cli.Time(step.ValidUntil))
	}
	if step.Unsealed {
		add("", "(without a seal: it gives nothing)")
	}
	switch lost := "(counted, because the log of " + step.LostOrigin; {
	case step.Made:
		add("", lost+" was lost; it has the decision)")
	case step.LostOrigin != "":
		add("", lost+" was lost; nothing here shows the decision)")
	}
	add("at ", step.Origin)
	text := strings.Join(words, " ")
	if step.Reason != "" {
		text += ": " + step.Reason
	}
	return text
}
