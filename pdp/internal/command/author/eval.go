package author

import (
	"context"
	"errors"
	"fmt"
	"io"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/bundledir"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/spelling"
	"policy-service/pdp/internal/when"
)

// Eval answers one request from a file.
type Eval struct {
	Policies string      `required:"" placeholder:"DIR" help:"The directory of the bundle to answer from."`
	Tenant   string      `placeholder:"T" help:"The tenant of the request. A native request names its own."`
	Now      when.Moment `placeholder:"TIME" help:"Decide as if it were this time: 2026-11-20T15:04:05Z, or 2026-11-20 (midnight UTC)."`
	Held     bool        `help:"Decide as if the request showed a capability that is good for it, as a test with capability: held does."`
	Explain  bool        `help:"Explain the decision policy by policy."`
	JSON     bool        `name:"json" help:"Print JSON, for programs."`
	Record   cli.Given   `placeholder:"ID" help:"Decide the request of this decision record again. FILE is then an export of the decision log, or lines of log tail --json. The tenant, the caller, the obligations that its registration declares and the time are those of the record."`
	File     string      `arg:"" help:"The file with one request in either shape. - is standard input."`
}

// Help ends the command's help.
func (Eval) Help() string {
	return "With --record, a value that is masked in the record is not known. If the decision depends on such a value, the " +
		"command says on which one, and does not decide. The command checks no proof: policy-service log verify does.\n\nExit codes: 0 allow, 1 deny, 2 if it could not decide, 3 allow with obligations, 4 possible and 5 impossible (options.unknown), which permit nothing."
}

// Run answers one request.
func (c Eval) Run(s cli.Streams) error {
	call, recorded, bundle, err := c.call(s)
	if err != nil {
		return err
	}
	call.Explain = true // only then are names suggested
	if !c.Now.IsZero() {
		call.Now = c.Now.Time
	}
	if c.Held {
		call.Capability = pdp.HeldInTest
	}
	decision, err := pdp.Of(bundle, pdp.Options{}).Evaluate(context.Background(), call)
	if errors.Is(err, pdp.ErrUnknownTenant) {
		return noTenant(call.Request.Tenant, bundle.Tenants())
	}
	if err != nil {
		return undecided(err, call.Request)
	}
	if !c.Explain {
		decision.Explain = nil
	}
	if c.JSON {
		err = s.PrintJSON(evalOutput(&call.Request, decision))
	} else {
		printDecision(s, bundle, decision)
	}
	if recorded != nil {
		tellRecorded(s, recorded, decision)
	}
	switch {
	case err != nil:
		return err
	case decision.Possible == evaluation.Possible:
		return cli.Possible
	case decision.Possible == evaluation.Impossible:
		return cli.Impossible
	case !decision.Allow:
		return cli.No
	case len(decision.Obligations) > 0:
		return cli.Owing
	}
	return nil
}

// call is a request and its bundle, and the record that it comes from, nil if it comes from none.
func (c Eval) call(s cli.Streams) (call pdp.Call, recorded *record.Recorded, bundle *pdp.Bundle, err error) {
	limits := evaluation.DefaultLimits()
	if c.Record != "" {
		return c.recordedCall(s, limits)
	}
	body, err := readRequest(c.File, s.In, limits.Body)
	if err == nil {
		call.Request, err = c.decode(body, limits)
	}
	if err == nil {
		bundle, err = bundledir.Load(c.Policies, s)
	}
	return call, nil, bundle, err
}

func (c Eval) decode(body []byte, limits evaluation.Limits) (evaluation.Request, error) {
	request, err := evaluation.Decode(body, c.Tenant, limits)
	if err != nil {
		return request, fmt.Errorf("the request in %s is malformed: %w; nothing was decided, mend it and try again",
			c.File, err)
	}
	if !evaluation.IsTenantName(request.Tenant) { // "" must not come to mean default
		return request, undecided(pdp.ErrUnknownTenant, request)
	}
	return request, nil
}

// readRequest reads one byte more than a request may have, so that decoding refuses a request that is too large.
func readRequest(file string, stdin io.Reader, limit int) ([]byte, error) {
	in, err := cli.Open(file, stdin)
	var body []byte
	if err == nil {
		defer func() { _ = in.Close() }()
		body, err = io.ReadAll(io.LimitReader(in, int64(limit)+1))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the request: %w; try a file with one request, or - for standard input", err)
	}
	return body, nil
}

// undecided says why there is no answer.
func undecided(err error, request evaluation.Request) error {
	var bad *evaluation.Error
	var unknown *pdp.Unknown
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("could not decide: %w; the record does not have what was sent there, so ask who sent it", err)
	case errors.As(err, &bad):
		at := *bad
		at.Pointer = request.Shape.Pointer(bad.Pointer)
		return fmt.Errorf("the request is malformed: %w; nothing was decided, mend it and try again", &at)
	case errors.Is(err, pdp.ErrUnknownTenant):
		return noTenant(request.Tenant, nil)
	}
	return fmt.Errorf("could not decide: %w; try policy-service check on the bundle", err)
}

// noTenant says that a tenant is not among those of the bundle.
func noTenant(name string, tenants []string) error {
	if near, ok := spelling.Nearest(name, tenants); ok {
		return fmt.Errorf("there is no tenant %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("there is no tenant %q; try default, or a directory below tenants/", name)
}

// evalJSON is the output of eval --json. Programs read it: members may be added,
// never renamed.
type evalJSON struct {
	Decision    any                            `json:"decision"` // true or false, or a word if the request has unknown values
	Reason      evaluation.Reason              `json:"reason,omitzero"`
	Determining []string                       `json:"determining"`
	Overruled   []string                       `json:"overruled,omitzero"`
	Errors      []evaluation.PolicyError       `json:"errors"`
	Obligations []evaluation.Obligation        `json:"obligations"`
	Bundle      string                         `json:"bundle"`
	Required    []string                       `json:"required_obligations,omitzero"`
	Mismatch    []evaluation.Mismatch          `json:"mismatch,omitzero"`
	Refused     *evaluation.Mismatch           `json:"refused,omitzero"` // why no person can be asked for an approval
	Policies    []evaluation.PolicyExplanation `json:"policies,omitzero"`
	Dropped     []evaluation.Mismatch          `json:"dropped,omitzero"`
	Unknown     []string                       `json:"unknown,omitzero"`
}

func answered(d evaluation.Decision) any {
	switch d.Possible {
	case evaluation.Possible:
		return "possible"
	case evaluation.Impossible:
		return "impossible"
	}
	return d.Allow
}

func evalOutput(request *evaluation.Request, d evaluation.Decision) evalJSON {
	out := evalJSON{
		Unknown:     request.Unknown.Pointers(),
		Decision:    answered(d),
		Reason:      d.Reason,
		Determining: d.Determining,
		Overruled:   d.Overruled,
		Errors:      d.Errors,
		Obligations: d.Obligations,
		Bundle:      d.Bundle,
		Required:    d.Required,
		Mismatch:    d.Mismatch,
		Refused:     d.Refused,
	}
	if d.Explain != nil {
		out.Dropped = d.Explain.Dropped
		out.Policies = append([]evaluation.PolicyExplanation{}, d.Explain.Policies...)
	}
	return out
}
