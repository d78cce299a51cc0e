// Package filter makes the condition by which an application's own query selects the rows that a decision allows.
//
// A row is selected exactly if the decision about it allows, or the filter is refused with its reason. Begin at [Make]. What a
// question knows is evaluated as a decision evaluates it (translate.go, operand.go, compare.go). What only a row has becomes SQL
// (column.go, set.go), of which each part is TRUE exactly where it is so (condition.go). A row that does not fit the schema is
// denied, whatever policies read (fit.go).
package filter

import (
	"context"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// Dialect is the SQL that a condition is written in.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// Options say how a condition is written.
type Options struct {
	Dialect Dialect
	Alias   string // of the table in the application's query; "" is the table's own name
	First   int    // the number of the first parameter, 1 unless given
	Explain bool   // the filter says what became of each policy
}

// Rows says which rows a condition selects.
type Rows string

// The conditions by what they select.
const (
	All  Rows = "all"
	Some Rows = "some"
	None Rows = "none"
)

// Filter is a condition that can stand behind WHERE, with its parameters.
type Filter struct {
	Rows       Rows              `json:"rows"`
	SQL        string            `json:"sql"`
	Parts      []any             `json:"parts"` // the condition as texts, and indexes into Parameters
	Parameters []any             `json:"-"`     // each a string, or a []string
	Clock      bool              `json:"-"`     // a policy read the time
	Reason     evaluation.Reason `json:"reason,omitzero"`
	Required   []string          `json:"required_obligations,omitzero"` // the types of obligations that rows would owe which are not selected for it
	Policies   []Outcome         `json:"policies,omitzero"`             // with Options.Explain
}

// Outcome is what became of one policy in a filter.
type Outcome struct {
	Policy     string   `json:"policy"`
	Effect     string   `json:"effect"`
	Position   string   `json:"position"`
	Condition  string   `json:"condition,omitzero"` // when it holds, as SQL
	Parameters []any    `json:"parameters,omitzero"`
	Refused    *Refusal `json:"refused,omitzero"`
}

// Refusal is why there is no filter. It is an error.
type Refusal struct {
	Reason     string               `json:"reason"`
	Policy     string               `json:"policy,omitzero"`
	Position   string               `json:"position,omitzero"`
	Expression string               `json:"expression,omitzero"`
	Detail     string               `json:"detail"`
	Try        string               `json:"try"`
	reads      bundle.AttributePath // the first attribute in the expression that only a row has
}

// The reasons of refusals.
const (
	Unmapped    = "filter_unmapped"
	Unsupported = "filter_unsupported"
	Stored      = "filter_stored"
	SubjectType = "filter_subject_type"
	Action      = "filter_action"
	TooLarge    = "filter_too_large"
)

func (r *Refusal) Error() string {
	text := r.Detail + "; " + r.Try
	if r.Policy != "" {
		text = "policy " + bundle.Quote(r.Policy) + " at " + r.Position + ": " + r.Expression + ": " + text
	}
	return text
}

// Make makes the filter of a question whose resource has only a type. The error is a [*Refusal], an [*evaluation.Error], or one
// of the engine. With a refusal the filter has only what became of policies, if it could be said.
func Make(ctx context.Context, in *engine.Inquiry, o Options) (*Filter, error) {
	t, err := newTranslator(in, o)
	if err != nil {
		return nil, err
	}
	open, err := in.Open()
	if err != nil {
		return nil, err
	}
	f := &Filter{Reason: open.Reason}
	if open.Reason != "" {
		return f, asError(f.write(no, o))
	}
	if err := t.ask(open); err != nil {
		return nil, err
	}
	var permits, rest []*condition // a row is selected if one of the permits holds, and all of the rest
	if t.mapping.Tenant.Name != "" {
		rest = append(rest, t.column(t.mapping.Tenant).is(in.Request.Tenant).is)
	}
	rest = append(rest, t.fit())
	for _, p := range open.Policies {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		is, owes := t.policyTruth(p), owed(p)
		f.Clock = f.Clock || p.Facts.SeesNow()
		if o.Explain {
			f.Policies = append(f.Policies, outcome(p, is.is, o))
		}
		switch {
		case len(owes) > 0 && is.is.kind != never && open.AllowsUndeclared:
			return nil, &Refusal{
				Reason: Unsupported, Policy: p.Id, Position: p.Position, Expression: "@obligation",
				Detail: "rows would be allowed with obligations that nobody has declared", Try: "set undeclared_obligations: deny in bundle.yaml",
			}
		case p.Forbids(), len(owes) > 0:
			rest = append(rest, t.fails(is))
			if is.is.kind != never {
				f.Required = append(f.Required, owes...)
			}
		default:
			permits = append(permits, is.is)
		}
	}
	slices.Sort(f.Required)
	f.Required = slices.Compact(f.Required)
	permitted := some(permits...)
	if permitted.kind == never {
		rest = nil
	}
	if refusal := f.write(all(append(rest, permitted)...), o); refusal != nil {
		return &Filter{Policies: f.Policies}, refusal
	}
	return f, nil
}

// fails returns the condition that a policy does not deny: an errored one denies, too.
func (t *translator) fails(is truth) *condition {
	if t.bundle.Config.IgnoreForbidErrors {
		return isNotTrue(is.is)
	}
	return is.not
}

func asError(r *Refusal) error {
	if r == nil {
		return nil
	}
	return r
}

// owed returns the types of the obligations that an allow owes if a permit determines it.
func owed(p *bundle.Policy) (types []string) {
	for _, o := range p.Obliges {
		if !p.Forbids() && o.On.With(true) {
			types = append(types, o.Type.Name)
		}
	}
	return types
}

// newTranslator returns a translator for the type of the question's resource.
func newTranslator(in *engine.Inquiry, o Options) (*translator, error) {
	if in.Bundle == nil {
		return nil, engine.ErrNoBundle
	}
	wire, action := in.Request.Resource.Type, in.Request.Action.Name
	typ, _ := in.Bundle.Config.EntityType(wire)
	m := in.Bundle.Mappings[typ]
	if m == nil {
		return nil, &Refusal{Reason: Unmapped, Detail: "filters.yaml maps no type " + bundle.Quote(wire), Try: "map it there, or ask about each resource"}
	}
	if bundle.Unfiltered(action) {
		return nil, &Refusal{Reason: Action, Detail: "no filter is made for " + action, Try: "ask about each resource"}
	}
	if subject, ok := in.Bundle.Config.EntityType(in.Request.Subject.Type); ok && subject == typ {
		return nil, &Refusal{Reason: SubjectType, Detail: "the subject is of type " + wire + ", as the rows are", Try: "ask about each resource"}
	}
	t := translatorOf(in.Bundle, m, o)
	return t, t.checkDialect()
}

func translatorOf(b *bundle.Bundle, m *bundle.Mapping, o Options) *translator {
	t := &translator{
		bundle: b, mapping: m, dialect: o.Dialect, alias: table(m.Table),
		columns: map[string]string{}, members: map[string][]string{}, values: map[types.EntityUID][]storedValue{},
	}
	if o.Alias != "" {
		t.alias = quote(o.Alias)
	}
	t.id = t.column(m.ID)
	return t
}

// checkDialect refuses a mapping with columns that the dialect does not have.
func (t *translator) checkDialect() error {
	if t.dialect != SQLite {
		return nil
	}
	var walk func(map[string]*bundle.Mapped) error
	walk = func(members map[string]*bundle.Mapped) error {
		for name, m := range bundle.ByName(members) {
			switch m.Column.Type {
			case bundle.TimestamptzColumn, bundle.TextsColumn, bundle.UUIDsColumn:
				return &Refusal{Reason: Unsupported, Detail: "column " + m.Column.Name + " of attribute " + name + " is a " + string(m.Column.Type) + ", and SQLite has none",
					Try: "map datetimes as millis, and sets as rows of another table"}
			}
			if err := walk(m.Members); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(t.mapping.Attributes)
}

// ask gives the translator a question.
func (t *translator) ask(open *engine.Open) error {
	t.open, t.action = open, open.Up[bundle.ActionVar]
	t.known = reader{entities: open.Entities, mapped: t.mapping.Type}
	subject := bundle.LineageOf(open.Request.Principal, open.Entities)
	for s := open.View.Store; s != nil; s = s.Root {
		if len(s.Ids[t.mapping.Type]) > 0 {
			return &Refusal{Reason: Stored, Detail: "the bundle stores entities of type " + t.mapping.Wire + ", which are rows of a table",
				Try: "take them out of entities/, or take the type out of filters.yaml"}
		}
		t.known.climbs = t.known.climbs || s.ParentTypes[t.mapping.Type]
	}
	if t.known.reaches(subject) {
		return &Refusal{Reason: Unsupported, Detail: "the subject is below an entity of type " + t.mapping.Wire + ", which is a row of a table",
			Try: "have subjects below stored entities alone"}
	}
	return nil
}

// outcome returns what became of a policy.
func outcome(p *bundle.Policy, is *condition, o Options) Outcome {
	made := Outcome{Policy: p.Id, Effect: "permit", Position: p.Position}
	if p.Forbids() {
		made.Effect = "forbid"
	}
	var alone Filter
	o.First = 1 // its parameters are its own
	made.Refused = alone.write(is, o)
	made.Condition, made.Parameters = alone.SQL, alone.Parameters
	return made
}
