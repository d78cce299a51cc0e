package author

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/when"
)

// Filter makes conditions for queries.
type Filter struct {
	Policies string      `required:"" placeholder:"DIR" help:"The directory of the bundle."`
	Tenant   string      `placeholder:"T" help:"The tenant of the request."`
	Now      when.Moment `placeholder:"TIME" help:"Make the conditions as if it were this time: 2026-11-20T15:04:05Z, or 2026-11-20 (midnight UTC)."`
	Dialect  cli.Given   `placeholder:"D" help:"The SQL of the conditions, postgres or sqlite, if FILE does not say it."`
	Explain  bool        `help:"Say policy by policy what became of it."`
	JSON     bool        `name:"json" help:"Print JSON, for programs."`
	Verify   bool        `help:"Print one SELECT on the catalog of the database. It names each column that is not as filters.yaml maps it. There is no FILE then."`
	File     string      `arg:"" optional:"" help:"The file with the request. - is standard input."`
}

// Help ends the command's help.
func (Filter) Help() string {
	return "The request has subject, action, the type of a resource and perhaps a context; or filters, a list of such requests that share what stands beside it. " +
		"alias names the table in the query, and first_parameter numbers the first parameter.\n\nThe SELECT of --verify cannot see whether an element of an array is NULL." +
		"\n\nExit codes: 0 made, 1 if there is no such filter, 2 if it cannot run."
}

// Run prints the conditions of one request, or the SELECT.
func (c Filter) Run(s cli.Streams) error {
	switch {
	case c.Verify && (c.File != "" || c.Dialect != "postgres" && c.Dialect != "sqlite"):
		return errors.New("--verify takes --dialect postgres or --dialect sqlite, and no FILE; it prints a SELECT for psql or sqlite3")
	case !c.Verify && c.File == "":
		return errors.New("there is no FILE; name one with a request, or - for standard input")
	case c.Verify:
		b, err := bundledir.Load(c.Policies, s)
		if err != nil {
			return err
		}
		sql, ok := pdp.VerifyFilters(b, string(c.Dialect))
		if !ok {
			return fmt.Errorf("%s maps no type in filters.yaml, so there is nothing to verify", c.Policies)
		}
		_, err = s.Out.Write([]byte(sql))
		return err
	}
	limits := evaluation.DefaultLimits()
	body, err := readRequest(c.File, s.In, limits.Body)
	if err != nil {
		return err
	}
	call := pdp.FilterCall{Now: c.Now.Time, Explain: c.Explain}
	if call.Filters, err = evaluation.DecodeFilter(body, c.Tenant, string(c.Dialect), limits); err != nil {
		return fmt.Errorf("the request in %s is malformed: %w; no filter was made, mend it and try again", c.File, err)
	}
	b, err := bundledir.Load(c.Policies, s)
	if err != nil {
		return err
	}
	answer, err := pdp.Of(b, pdp.Options{}).Filter(context.Background(), call)
	var unmade *pdp.UnmadeFilter
	switch {
	case errors.As(err, &unmade):
		return s.Answer(c.JSON, struct {
			Refused *pdp.UnmadeFilter `json:"refused"`
			Bundle  string            `json:"bundle"`
		}{unmade, b.Digest()}, func() error { return printRefusal(s, call.Filters.Questions[unmade.Question], unmade) }, true)
	case errors.Is(err, pdp.ErrUnknownTenant):
		return noTenant(c.Tenant, b.Tenants())
	case err != nil:
		return undecided(err, evaluation.Request{})
	}
	return s.Answer(c.JSON, struct {
		pdp.FilterAnswer
		Bundle string `json:"bundle"`
	}{answer, b.Digest()}, func() error { return printFilters(s, call.Filters, answer) }, false)
}

func printRefusal(s cli.Streams, q evaluation.FilterQuestion, unmade *pdp.UnmadeFilter) error {
	s.Print("%s %s: %s", q.Request.Action.Name, q.Request.Resource.Type, s.Colour(cli.Red, "refused"))
	s.Print("  reason       %s", unmade.Reason)
	if unmade.Policy != "" {
		s.Print("  policy       %s (%s)", unmade.Policy, unmade.Position)
		s.Print("  expression   %s", cli.Quoted(unmade.Expression))
	}
	s.Print("  detail       %s", cli.Quoted(unmade.Detail))
	s.Print("  try          %s", cli.Quoted(unmade.Try))
	return printOutcomes(s, unmade.Policies)
}

// printFilters shows the conditions to a person, then the parameters of all.
func printFilters(s cli.Streams, asked evaluation.Filters, answer pdp.FilterAnswer) error {
	for n, f := range answer.Filters {
		q := asked.Questions[n].Request
		s.Print("%s %s: %s", q.Action.Name, q.Resource.Type, f.Rows)
		if f.Reason != "" {
			s.Print("  reason       %s", f.Reason)
		}
		s.Print("  where        %s", f.SQL)
		for _, typ := range f.Required {
			s.Print("  required     %s: rows for which it would be owed are not selected", typ)
		}
		if err := printOutcomes(s, f.Policies); err != nil {
			return err
		}
	}
	for n, p := range answer.Parameters {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		s.Print("parameter %d: %s", asked.FirstParameter+n, text)
	}
	if answer.Clock {
		s.Print("a policy reads the time: make a filter for each query")
	}
	return nil
}

// printOutcomes says what became of policies.
func printOutcomes(s cli.Streams, all []pdp.FilterOutcome) error {
	for _, o := range all {
		s.Print("%s %s (%s)", o.Effect, o.Policy, o.Position)
		if o.Refused != nil {
			s.Print("  refused      %s: %s; %s", cli.Quoted(o.Refused.Expression), cli.Quoted(o.Refused.Detail), cli.Quoted(o.Refused.Try))
			continue
		}
		s.Print("  holds where  %s", o.Condition)
		if len(o.Parameters) > 0 {
			text, err := json.Marshal(o.Parameters)
			if err != nil {
				return err
			}
			s.Print("  parameters   %s", text)
		}
	}
	return nil
}
