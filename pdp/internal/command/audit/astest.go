package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/fstest"
	"time"
	"unicode"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/visible"
)

// asTest prints a recorded question and its answer as a case of a bundle's tests. The case names all that it lacks, and so does
// standard error; then the command ends with 1.
func asTest(s cli.Streams, shown segment.Shown) error {
	text, lacks, err := testOf(&shown.Record, shown.Files)
	if err != nil {
		return fmt.Errorf("cannot make a test of the record: %w; policy-service log show says what is on record", err)
	}
	s.Print("%s", cli.Lines(strings.TrimSuffix(text, "\n")))
	for _, one := range lacks {
		s.Tell("policy-service: %s", cli.Quoted(one))
	}
	if len(lacks) > 0 {
		return cli.No
	}
	return nil
}

// recordedTest is a case that is made of a record.
type recordedTest struct {
	*record.Recorded
	policies *pdp.Bundle // that decided; nil if they are not kept
	request  evaluation.Object
	hidden   []evaluation.Hidden
	comments []string
	lacks    []string
}

// testOf is the case of a record. lacks names all that is to be mended before the case puts the same question.
func testOf(r *record.Recorded, files map[string][]byte) (text string, lacks []string, err error) {
	switch {
	case r.Kind != format.KindDecision && r.Kind != format.KindPossible, r.Answer() == "":
		return "", nil, fmt.Errorf("it is of kind %q, and a test is of a decision", r.Kind)
	case r.Items != nil:
		return "", nil, errors.New("it has the questions of a batch: name one, as ID.N")
	case len(r.Details) > 0:
		return "", nil, errors.New("what was sent was no request")
	}
	t := recordedTest{Recorded: r}
	if t.policies, err = compiledFor(r, files); err != nil {
		return "", nil, err
	}
	if err = t.ask(); err == nil {
		t.try()
	}
	return t.text(), t.lacks, err
}

func (t *recordedTest) comment(format string, args ...any) {
	t.comments = append(t.comments, fmt.Sprintf(format, args...))
}

func (t *recordedTest) lack(format string, args ...any) {
	t.lacks = append(t.lacks, fmt.Sprintf(format, args...))
	t.comments = append(t.comments, fmt.Sprintf(format, args...))
}

// ask makes the request. Where a mask hides something, and the answer depends on it, the request is as it is on record.
func (t *recordedTest) ask() error {
	limits := evaluation.DefaultLimits()
	request, hidden, err := t.Request(limits)
	if err != nil {
		return err
	}
	limits.Body = format.MaxLine
	asked, err := request.MarshalJSON()
	if err != nil {
		return err
	}
	t.hidden = hidden
	if t.masked(limits) {
		asked = t.Asked
	}
	if t.request, err = evaluation.ParseObject(asked, limits); err != nil {
		return err
	}
	if t.Adopted != nil && !*t.Adopted { // by a context of its own, of a batch's item, or by whom it came
		inContext, _ := t.request.Get("context")
		t.request = t.request.With("context", inContext.Object().With(evaluation.ExtensionsMember, evaluation.List()).Value())
		t.comment("supported_mandatory_extensions is empty: the PEP did not adopt the obligations")
	}
	if t.Declared != nil {
		return t.declare()
	}
	return nil
}

// masked says of each hidden place whether the answer depends on it, and reports if it does on any.
func (t *recordedTest) masked(limits evaluation.Limits) bool {
	if len(t.hidden) == 0 {
		return false
	}
	unknown := &pdp.Unknown{}
	depends := func(string) bool { return true }
	if t.policies != nil {
		call, err := recorder.CallOf(t.Recorded, t.policies, limits)
		if err == nil {
			_, err = pdp.Of(t.policies, pdp.Options{}).Evaluate(context.Background(), call)
		}
		if err == nil || errors.As(err, &unknown) {
			depends = func(at string) bool { return slices.Contains(unknown.Paths, at) }
		}
	}
	for _, h := range t.hidden {
		if !depends(h.At) {
			t.comment("%s: a mask hides what was sent, and the answer is the same for every %s", h.At, h.Type)
			continue
		}
		by := ""
		if len(unknown.Policies) > 0 {
			by = ", which these policies read: " + strings.Join(unknown.Policies, ", ")
		}
		t.lack("%s needs a value: a mask hides what was sent, of type %s, and the answer may depend on it%s", h.At, h.Type, by)
	}
	return len(t.lacks) > 0
}

// declare has the request declare the obligations that the registration of the caller did: a test has no registration.
func (t *recordedTest) declare() error {
	const member = evaluation.SupportedMember
	inContext, _ := t.request.Get("context")
	sent, inRequest := inContext.Object().Get(member)
	all, october := slices.Clone(t.Declared), t.Adopted != nil
	if october {
		for _, typ := range t.Declared { // approval_required is declared by its own name as well
			all = append(all, evaluation.October.Type(typ))
		}
	}
	if inRequest || october {
		var both []string
		for _, v := range sent.Elements {
			if slices.Contains(all, v.Text()) {
				both = append(both, v.Text())
			}
		}
		all = both
	}
	list, err := evaluation.Texts(all)
	if err != nil {
		return err
	}
	t.request = t.request.With("context", inContext.Object().With(member, list).Value())
	t.comment("%s are those that count by the registration of the caller", member)
	return nil
}

// try asks the case of the policies that decided. A part that a case cannot hold is only lacking if the answer depends on it.
func (t *recordedTest) try() {
	for _, met := range t.Discharged {
		t.comment("an approval was used, %s, and a test has none", met.Approval)
	}
	if t.Approved && len(t.Discharged) == 0 {
		t.comment("the policies were asked with an approval, and a test has none")
	}
	if c := t.Capability; c != nil && !c.Held {
		t.comment("a capability was shown that did not count (%s), and a test has none such", c.Reason)
	}
	if len(t.lacks) > 0 {
		return
	}
	if t.policies == nil {
		t.lack("the policies that decided are not kept here, so this test was not tried")
		return
	}
	tests, problems := pdp.Examples(pdp.FS(fstest.MapFS{"tests/recorded.yaml": {Data: []byte(t.text())}}))
	if len(tests) != 1 || problems.Refuse() {
		t.lack("this test cannot be read as it stands: %v", problems)
		return
	}
	d, err := pdp.Of(t.policies, pdp.Options{}).Evaluate(context.Background(), tests[0].Call)
	if err != nil {
		t.lack("this test does not pass as it stands, by the policies that decided: %v", err)
	} else if differs := tests[0].Differences(d); len(differs) > 0 {
		t.lack("this test does not pass as it stands, by the policies that decided: %s", strings.Join(differs, "; "))
	}
}

// text is the case in YAML. All texts that are not ours are in double quotes.
func (t *recordedTest) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, one := range t.comments {
		line("# %s", visible.Text(one))
	}
	line("- name: %s", yamlText("recorded decision "+t.ID))
	if t.Shape == "" {
		line("  tenant: %s", yamlText(t.Tenant))
	}
	now := t.Now
	if now.IsZero() {
		now = t.Time
	}
	line("  now: %s", now.UTC().Format(time.RFC3339Nano))
	if t.Caller != "" {
		line("  caller: %s", yamlText(t.Caller))
	}
	if c := t.Capability; c != nil && c.Held {
		line("  capability: {id: %s, depth: %d}", yamlText(c.ID), c.Depth)
	}
	line("  request:")
	for _, one := range t.members() {
		line("    %s: %s", one.Name, yamlValue(one.Value))
	}
	answer := t.Answer()
	if answer == record.Waiting { // an allow that owes an approval
		answer = record.Allow
	}
	line("  decision: %s", answer)
	line("  reason: %s", yamlText(t.Reason))
	if len(t.hidden) == 0 { // else other policies may have been satisfied, too
		line("  determining: [%s]", yamlTexts(t.Determining))
	}
	ids := []string{}
	for _, o := range t.Obligations {
		ids = append(ids, o.ID)
	}
	line("  obligations: [%s]", yamlTexts(ids))
	return b.String()
}

// members are those of the request, in the shape in which it came.
func (t *recordedTest) members() (all []evaluation.Member) {
	get := func(o evaluation.Object, name string) evaluation.Value { v, _ := o.Get(name); return v }
	add := func(name string, v evaluation.Value) {
		if v.Kind() != evaluation.Null {
			all = append(all, evaluation.Member{Name: name, Value: v})
		}
	}
	subject, resource := get(t.request, "subject"), get(t.request, "resource")
	if t.Shape == "" {
		add("subject", subject)
		add("action", get(t.request, "action"))
		add("resource", resource)
	} else {
		tenant, _ := evaluation.Text(t.Tenant)
		add("tenant_id", tenant)
		actor := get(subject.Object(), "properties").Object()
		add("actor", actor.With("actor_type", get(subject.Object(), "type")).With("actor_id", get(subject.Object(), "id")).Value())
		add("action", get(get(t.request, "action").Object(), "name"))
		properties := get(resource.Object(), "properties").Object()
		of := resource.Object().Without(func(name string) bool { return name == "properties" })
		if labels, has := properties.Get("labels"); has {
			of = of.With("labels", labels)
		}
		add("resource", of.Value())
	}
	add("context", get(t.request, "context"))
	if list, err := evaluation.Texts(t.Unknown); err == nil && t.Unknown != nil {
		add("options", evaluation.Object{}.With("unknown", list).Value())
	}
	return all
}

// longestKey is how long a key may be in YAML if no question mark announces it, and less.
const longestKey = 1000

// yamlValue is a value in YAML, in one line.
func yamlValue(v evaluation.Value) string {
	var all []string
	switch v.Kind() {
	case evaluation.String:
		return yamlText(v.Text())
	case evaluation.Map:
		for name, one := range v.Object().All {
			key := yamlText(name)
			if len(key) > longestKey {
				key = "? " + key + " "
			}
			all = append(all, key+": "+yamlValue(one))
		}
		return "{" + strings.Join(all, ", ") + "}"
	case evaluation.Array:
		for _, one := range v.Elements {
			all = append(all, yamlValue(one))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	text, _ := v.MarshalJSON()
	return string(text)
}

func yamlTexts(texts []string) string {
	all := make([]string, len(texts))
	for n, text := range texts {
		all[n] = yamlText(text)
	}
	return strings.Join(all, ", ")
}

// yamlText is a text in double quotes. A character that cannot be seen is escaped, also one that is printed as two escapes otherwise.
func yamlText(text string) string {
	var b strings.Builder
	for _, r := range text {
		one := string(r)
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + one)
		case unicode.IsPrint(r) && visible.Quoted(one) == one && (r <= 0xffff || !unicode.IsMark(r)):
			b.WriteString(one)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return `"` + b.String() + `"`
}
