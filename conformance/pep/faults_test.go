package pep

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"policy-service/conformance"
)

// fault is a PEP that is wrong in one way, or in two that need each other, and the cases that must each say so.
type fault struct {
	wrong, caught string
	as            shape // gateway if it is empty
}

var faults = []fault{
	// How questions are made.
	{wrong: "ignores declared mappings", caught: "figure-single"},
	{wrong: "learns the first page alone", caught: "literals"},
	{wrong: "takes the first envelope", caught: "envelope-two_envelopes"},
	{wrong: "passes over unknown envelopes", caught: "envelope-unknown_envelope"},
	{wrong: "takes no entries for a permit", caught: "batch-of-nothing"},
	{wrong: "takes subjects in entries", caught: "subject-in-entry-same"},
	{wrong: "takes subjects in entries + does not anchor the subject", caught: "subject-in-entry"},
	{wrong: "does not anchor the subject", caught: "subject-asserted-subject_from_arguments"},
	{wrong: "does not anchor the subject", caught: "subject-asserted-literal", as: server},
	{wrong: "does not anchor the subject + adds the arguments", caught: "subject-asserted-asked"},
	{wrong: "supplies no subject", caught: "subject-supplied"},
	{wrong: "supplies no subject type", caught: "subject-type-supplied"},
	{wrong: "asks completions about the server", caught: "default-completion-of-prompt"},
	{wrong: "asks everything at evaluations", caught: "figure-single"},
	{wrong: "fans out over lists", caught: "resource_id-list"},
	{wrong: "adds a member", caught: "default-tools-call figure-multi"},
	{wrong: "asks twice", caught: "default-tools-call figure-multi"},
	{wrong: "adds the arguments", caught: "default-tools-call"},
	{wrong: "leaves the context out", caught: "default-tools-list"},
	{wrong: "asks about an agent that is the user", caught: "figure-single"},
	{wrong: "asks whatever comes out", caught: "resource_id-number optional_resource-null"},
	{wrong: "takes siblings of id", caught: "template-sibling_of_resource"},
	{wrong: "writes null for absent", caught: "absent-is-left-out"},
	{wrong: "does not know $$", caught: "literals"},
	{wrong: "takes a failed expression for absent", caught: "context_of-missing bomb"},
	{wrong: "asks the default where a mapping fails", caught: "region-missing"},
	{wrong: "sends aud as a list", caught: "default-aud-array-resource"},
	{wrong: "does not check expressions", caught: "unknown-variable-not-reached"},
	{wrong: "makes strings of times", caught: "expression-timestamp-value"},
	{wrong: "does not know the old dialect", caught: "sep-figure"},
	{wrong: "takes mappings without the token + does not anchor the subject", caught: "sep-malformed-sep_without_token"},
	{wrong: "takes the first of several values", caught: "sep-path-sep_wildcard"},
	{wrong: "remembers who called first", caught: "subject-of-this-token subject-in-another-session"},
	{wrong: "reads numbers as floats", caught: "number-as-sent"},

	// What is done with the decision.
	{wrong: "asks nobody", caught: "denied-tools-list", as: server},
	{wrong: "asks nobody + hides that it has tasks", caught: "denied-tasks-get default-tasks-cancel"},
	{wrong: "asks nobody", caught: "denied-tools-call default-rs256 subject-in-another-session number-as-sent default-completion-of-prompt"},
	{wrong: "permits everything", caught: "denied-tools-call"},
	{wrong: "lets unknown methods through", caught: "unmapped-resource-templates-list-denied unknown-x-conformance-do-refused unmapped-server-discover-asked"},
	{wrong: "asks the first of a batch only", caught: "denied-write-of-two"},
	{wrong: "asks one by one + asks the first of a batch only", caught: "denied-write-of-two"},
	{wrong: "remembers permits", caught: "denied-again"},
	{wrong: "executes before it decides", caught: "denied-tools-call"},
	{wrong: "executes before it decides", caught: "denied-declared", as: server},
	{wrong: "asks about pings and notifications", caught: "ping-passes notification-initialized-passes"},
	{wrong: "denies with -32401", caught: "denied-tools-call"},
	{wrong: "denies with -32001 in the old dialect", caught: "sep-denied"},
	{wrong: "denies with 403 and no body", caught: "denied-tools-call"},
	{wrong: "reports every failure as a denial", caught: "region-missing pdp-reset"},
	{wrong: "says nothing of mapping errors", caught: "mapping-error-described"},
	{wrong: "quotes values", caught: "mapping-error-hides-values"},
	{wrong: "hides mappings from clients", caught: "mappings-listed"},
	{wrong: "shows clients other mappings", caught: "mappings-listed"},
	{wrong: "subscribes for unsubscribe", caught: "default-resources-unsubscribe"},
	{wrong: "swallows what it refuses", caught: "unknown-x-conformance-do-refused"},
	{wrong: "rebuilds numbers as floats", caught: "numbers-exact"},
	{wrong: "errors without an id", caught: "id-text"},
	{wrong: "answers text ids with numbers", caught: "id-digits id-text-of-result id-digits-of-result"},
	{wrong: "takes 0 for no id", caught: "id-zero-of-result"},
	{wrong: "opens sessions unasked", caught: "unmapped-initialize-denied unmapped-initialize-asked"},
	{wrong: "changes params after the decision", caught: "rewritten-unknown-param rewritten-meta"},
	{wrong: "opens streams unasked", caught: "unmapped-subscriptions-listen-denied"},
	{wrong: "reads ids as floats", caught: "id-beyond-float"},
	{wrong: "executes twice", caught: "default-tools-call name-in-other-case"},
	{wrong: "refuses in another JSON-RPC", caught: "denied-tools-call"},
	{wrong: "swallows pings", caught: "ping-passes"},
	{wrong: "rewrites completions", caught: "default-completion-of-prompt"},
	{wrong: "looks for true anywhere", caught: "denied-with-true-inside"},
	{wrong: "takes a context for a deny", caught: "permitted-with-reason"},
	{wrong: "passes over obligations", caught: "permitted-with-obligation"},
	{wrong: "wants the first permit alone + does not count decisions", caught: "denied-write-of-two"},

	// How messages are read.
	{wrong: "takes a call without id for a notification", caught: "call-without-id call-with-null-id"},
	{wrong: "takes a call without id for a notification", caught: "call-without-id", as: server},
	{wrong: "reads JSON laxly", caught: "name-doubled-other-way params-doubled argument-doubled"},
	{wrong: "takes names in any case + does not look at headers", caught: "name-in-other-case-other-way method-in-other-case"},
	{wrong: "reads JSON laxly + executes the first of two", caught: "argument-doubled"},
	{wrong: "decides on headers", caught: "name-header-differs"},
	{wrong: "forwards what it does not recognise", caught: "content-type-text-plain content-type-Application-JSON"},

	// Who calls.
	{wrong: "knows nobody", caught: "token-missing"},
	{wrong: "knows one algorithm", caught: "default-rs256"},
	{wrong: "asks before it authenticates", caught: "token-missing"},
	{wrong: "takes bad tokens for bad parameters", caught: "token-missing token-expired-for-list"},
	{wrong: "takes tokens from the query", caught: "token-in-query"},
	{wrong: "takes unsigned tokens", caught: "token-none token-unsigned"},
	{wrong: "does not verify signatures", caught: "token-altered token-other-key token-unknown-critical"},
	{wrong: "takes the algorithm from the token", caught: "token-hs256"},
	{wrong: "compares audiences by prefix", caught: "token-longer-audience"},
	{wrong: "takes any audience", caught: "token-foreign-audience token-foreign-audiences"},
	{wrong: "takes any issuer", caught: "token-foreign-issuer"},
	{wrong: "passes the token on", caught: "token-not-forwarded"},
	{wrong: "takes expired tokens", caught: "token-expired token-without-exp"},
	{wrong: "takes tokens of tomorrow", caught: "token-not-yet"},
	{wrong: "calls nobody somebody", caught: "subject-gone"},
	{wrong: "lists with the client's token", caught: "token-not-forwarded"},
	{wrong: "shows the token to the PDP", caught: "token-not-shown-to-pdp"},
	{wrong: "shows the token to the PDP", caught: "token-not-shown-to-pdp", as: server},

	// What the PDP gets wrong.
	{wrong: "permits if the PDP is down", caught: "pdp-reset pdp-hang"},
	{wrong: "permits if the PDP fails", caught: "pdp-status-500 pdp-status-400"},
	{wrong: "permits if the PDP fails", caught: "pdp-status-204", as: server},
	{wrong: "follows redirects", caught: "pdp-redirect-302 pdp-redirect-307"},
	{wrong: "takes any content type of the PDP", caught: "pdp-html"},
	{wrong: "reads the PDP's JSON laxly", caught: "pdp-doubled pdp-two-values pdp-batch-doubled-batch"},
	{wrong: "permits what it cannot read", caught: "pdp-not-json pdp-empty pdp-cut pdp-stops"},
	{wrong: "takes what is not false for true", caught: "pdp-string pdp-number"},
	{wrong: "takes decisions in any case", caught: "pdp-other-case"},
	{wrong: "denies without a decision", caught: "pdp-object"},
	{wrong: "passes over odd decisions", caught: "pdp-null pdp-batch-item-undecided pdp-batch-item-null"},
	{wrong: "takes one decision for all", caught: "pdp-batch-single"},
	{wrong: "does not count decisions", caught: "pdp-batch-short pdp-batch-long"},
	{wrong: "takes no entries for a permit", caught: "pdp-batch-none"},
	{wrong: "empty list instead of an error", caught: "pdp-status-500-for-list"},
	{wrong: "permits while it keeps away from the PDP", caught: "pdp-down-for-long pdp-reset"},
	{wrong: "asks the first alone without batches", caught: "pdp-no-batches"},
}

// cases are those that must fail.
func (f fault) cases(t *testing.T) []Case {
	t.Helper()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(f.caught)
	for _, name := range names {
		if !slices.ContainsFunc(all, func(c Case) bool { return c.ID == name }) {
			t.Errorf("no case is called %s", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(c Case) bool { return !slices.Contains(names, c.ID) })
}

// A suite that has never failed proves nothing.
func TestFaultsAreCaught(t *testing.T) {
	for _, f := range faults {
		t.Run(f.wrong, func(t *testing.T) {
			t.Parallel()
			for _, c := range f.cases(t) { // each before a PEP that has met no other
				f.mustFail(t, c)
			}
		})
	}
}

// mustFail holds a case to finding the fault, in each era in which it is asked.
func (f fault) mustFail(t *testing.T, c Case) {
	t.Helper()
	r, err := judgeStub(t, cmp.Or(f.as, gateway), []Case{c}, strings.Split(f.wrong, " + ")...)
	if err != nil {
		t.Fatal(err)
	}
	want := conformance.Failed
	if c.Advisory {
		want = conformance.Advised
	}
	if len(r.Results) == 0 {
		t.Errorf("%s was asked in no era", c.ID)
	}
	for _, got := range r.Results {
		if got.Outcome != want || got.Failure == "" || strings.HasPrefix(got.Failure, errSilent.Error()) {
			t.Errorf("case %s (%s) %s, want %s: %s: %s", got.ID, got.Plan, got.Outcome, want, got.Title, got.Failure)
		}
	}
}
