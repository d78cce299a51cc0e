// Package conformance judges any AuthZEN PDP by its base URL, from outside. Call
// [Run] with a [Target]; it asks every case of the plans it is given and returns a
// [Report]. [Plans] says which plans there are: those of the specification, which
// any PDP can be held to that gives the answers of this directory's bundle, and
// two of this project's own, which are stricter.
//
// Cases are data, in cases/*.yaml; cases/README.md says how to read them.
// REQUIREMENTS.md says which sentence of the specification each of them shows.
//
// Package pep, below this one, judges PEPs.
//
// The package knows the wire and nothing of how a PDP is built. It follows no
// redirect, sends a credential to no other origin than the one it was given, and
// reads no more of an answer than a bound.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Target is the PDP to judge.
type Target struct {
	// URL is its base: scheme, host, and the path of a tenant where it has one.
	URL string
	// Header is sent with every request, but for those that must do without a
	// credential: Authorization, say.
	Header http.Header
	// Client makes the connections, and has a client certificate where the PDP
	// wants one. The default is [http.DefaultClient].
	Client *http.Client
	// Plans are the names of the plans to ask; none means those of the specification.
	Plans []string
	// Timeout bounds one request; the default is 10 seconds.
	Timeout time.Duration
}

// ErrUnknownPlan is the error for a plan that does not exist.
var ErrUnknownPlan = errors.New("no such plan")

// Run asks the PDP every case of its plans, one request after the other, and
// reports how it did. An error means that there is no report: the PDP cannot be
// reached, a plan does not exist, or ctx has ended.
func Run(ctx context.Context, target Target) (Report, error) {
	cases, err := Cases(target.Plans...)
	if err != nil {
		return Report{}, err
	}
	return judgeAll(ctx, target, cases)
}

// judgeAll asks given cases.
func judgeAll(ctx context.Context, target Target, cases []Case) (Report, error) {
	p, err := newPeer(target)
	if err != nil {
		return Report{}, err
	}
	if err := p.discover(ctx); err != nil {
		return Report{}, fmt.Errorf("%s does not answer: %w", target.URL, err)
	}
	report := Report{URL: target.URL}
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return Report{}, err
		}
		report.Results = append(report.Results, p.judge(ctx, c))
	}
	return report, nil
}

// Cases returns the cases of the named plans, in the order of the plans; none
// named means those of the specification.
func Cases(plans ...string) ([]Case, error) {
	known := planNames()
	for _, name := range plans {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q: %w; try one of %s", name, ErrUnknownPlan, strings.Join(known, ", "))
		}
	}
	all, err := load()
	if err != nil {
		return nil, err
	}
	var chosen []Case
	for _, plan := range Plans() {
		if len(plans) == 0 && !plan.Spec || len(plans) > 0 && !slices.Contains(plans, plan.Name) {
			continue
		}
		for _, c := range all {
			if c.Plan == plan.Name {
				chosen = append(chosen, c)
			}
		}
	}
	return chosen, nil
}

func planNames() []string {
	var names []string
	for _, p := range Plans() {
		names = append(names, p.Name)
	}
	return names
}
