package bundle

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"policy-service/evaluation"
	"policy-service/pdp/internal/document"
)

// This file and the others of a schema are the only ones that know cedar-go's schema packages.

// Schema is a bundle's schema: cedar-go's validator, and the declared types as plain values
// for the converter.
type Schema struct {
	validator *validate.Validator
	// unstored validates entities that are in no store. With unknown_entities: evaluate they
	// may lack what the schema requires.
	unstored *validate.Validator
	// lean validates requests whose context.pdp has the first members alone.
	lean     *validate.Validator
	entities map[types.EntityType]entityShape
	Actions  map[types.EntityUID]*actionShape
	// actionEntities are the actions as entities, with the groups that they are in.
	actionEntities types.EntityMap
	sizes          schemaNumbers
	narrow         *narrowed
}

// entityShape is what a schema declares of an entity type.
type entityShape struct {
	attributes map[string]AttributeShape
	parents    []types.EntityType
	enum       map[types.EntityUID]struct{} // nil: any id
	tags       *Shape
}

// actionShape is what a schema declares of an action.
type actionShape struct {
	Up                    Lineage // of the action itself
	size                  int     // size of its context
	Principals, Resources []types.EntityType
	Context               map[string]AttributeShape
}

// AttributeShape is what a schema declares of one attribute.
type AttributeShape struct {
	Shape    *Shape
	Optional bool
}

// Shape is a declared type.
type Shape struct {
	Form    shapeForm
	Element *Shape                    // of a set
	Members map[string]AttributeShape // of a record
	Entity  types.EntityType          // of a reference
	Enum    map[types.EntityUID]struct{}
}

type shapeForm uint8

// The forms of types. Those from shapeIP on are extension types.
const (
	ShapeBool shapeForm = iota
	ShapeLong
	ShapeString
	ShapeSet
	ShapeRecord
	ShapeEntity
	shapeIP
	ShapeDecimal
	ShapeDatetime
	shapeDuration
)

// ParseSchema reads the files of a schema, each in either form. It adds the members that the PDP puts into every
// context. It refuses a schema with which it could not keep its promises.
func ParseSchema(files []SchemaFile, c *Config, problems *Problems) *Schema {
	all := schemaFiles(slices.SortedFunc(slices.Values(files), func(a, b SchemaFile) int { return cmp.Compare(a.Name, b.Name) }))
	if !all.parse(problems) {
		return nil
	}
	tree := all.joined(problems)
	if problems.Refuse() || !checkSchemaSize(all, tree, problems) {
		return nil
	}
	r, err := schema.NewSchemaFromAST(tree).Resolve()
	if err != nil {
		if !all.refuseUndeclared(tree, problems) {
			file, line, column := all.namedIn(err)
			problems.Add(file, line, column, "schema_reference", "the schema does not hold together: "+err.Error(),
				"declare every type and action once, and refer only to declared ones")
		}
		return nil
	}
	for _, uid := range slices.SortedFunc(maps.Keys(r.Actions), compareUIDs) {
		action := r.Actions[uid]
		if action.AppliesTo == nil {
			continue
		}
		var wrong *valueError
		if action.AppliesTo.Context, wrong = contextWithPDP(action.AppliesTo.Context, c.reviews(uid)); wrong != nil {
			var line, column int
			file, _ := all.declaring(string(uid.ID))
			if len(*problems) < maxPlaced {
				line, column = declaredAt(string(file.Text), string(uid.ID), wrong.at)
			}
			problems.Add(file.Name, line, column, "schema_context",
				fmt.Sprintf("the context of action %q: %s", string(uid.ID), wrong.what), wrong.try)
		}
	}
	if problems.Refuse() {
		return nil
	}
	compiled := compileSchema(r, c)
	if compiled.measure(all, problems) {
		compiled.narrow = narrowing(r)
	}
	return compiled
}

// maxPlaced is how many problems may have their places looked up in a schema. Each lookup
// takes as long as the schema is.
const maxPlaced = 20

// Members of context.pdp that are not among the first four.
const (
	subjectMember    = "subject"
	resourceMember   = "resource"
	capabilityMember = "capability"
)

// firstPDPMembers are the members that context.pdp had at first. A schema may declare these alone.
var firstPDPMembers = resolved.RecordType{
	"now":      {Type: resolved.ExtensionType("datetime")},
	"tenant":   {Type: resolved.StringType{}},
	"caller":   {Type: resolved.StringType{}},
	"approved": {Type: resolved.BoolType{}},
}

// FirstPDPMembers is how many members context.pdp had at first.
const FirstPDPMembers = 4

// whoMembers are the type and the id of an entity as requests name it.
var whoMembers = resolved.RecordType{"type": {Type: resolved.StringType{}}, "id": {Type: resolved.StringType{}}}

// pdpMembers are the members of context.pdp, which the PDP supplies.
var pdpMembers = func() resolved.RecordType {
	all := maps.Clone(firstPDPMembers)
	all[subjectMember], all[resourceMember] = resolved.Attribute{Type: whoMembers}, resolved.Attribute{Type: whoMembers}
	all[capabilityMember] = resolved.Attribute{Type: resolved.RecordType{
		"held":  {Type: resolved.BoolType{}},
		"id":    {Type: resolved.StringType{}},
		"depth": {Type: resolved.LongType{}},
	}}
	return all
}()

// What the PDP supplies, as a schema declares it.
const (
	whoDeclared        = "{type: String, id: String}"
	capabilityDeclared = "{held: Bool, id: String, depth: Long}"
	pdpDeclared        = "{now: datetime, tenant: String, caller: String, approved: Bool, " +
		"subject: " + whoDeclared + ", resource: " + whoDeclared + ", capability: " + capabilityDeclared + "}"
)

// declaresSame reports if a record is declared as the PDP supplies it, with nothing optional.
func declaresSame(declared, supplied resolved.RecordType) bool {
	return maps.EqualFunc(declared, supplied, func(a, b resolved.Attribute) bool {
		return !a.Optional && sameType(a.Type, b.Type)
	})
}

// sameType reports if a declared type is a supplied one: a String, or a record of which nothing is optional.
func sameType(declared, supplied resolved.IsType) bool {
	if inner, ok := supplied.(resolved.RecordType); ok {
		own, ok := declared.(resolved.RecordType)
		return ok && declaresSame(own, inner)
	}
	return declared == supplied
}

// supplies reports if names lead to something in a record.
func supplies(record resolved.RecordType, names []string) bool {
	for n, name := range names {
		a, ok := record[types.String(name)]
		if !ok {
			return false
		}
		inner, isRecord := a.Type.(resolved.RecordType)
		if !isRecord {
			return n == len(names)-1
		}
		record = inner
	}
	return true
}

// wayMembers are the members of the context of approval.decide, which the PDP supplies.
var wayMembers = resolved.RecordType{
	evaluation.ViaMember:     {Type: resolved.StringType{}},
	evaluation.GatewayMember: {Type: resolved.StringType{}, Optional: true},
	evaluation.ClientMember:  {Type: whoMembers, Optional: true},
}

// SuppliedContext are the members that the PDP puts into every context.
func SuppliedContext() map[string]AttributeShape {
	context, _ := contextWithPDP(nil, false)
	return compileRecord(context, nil)
}

// addWay adds the members that say how a vote comes. An author may declare each as what it is.
func addWay(context resolved.RecordType) *valueError {
	for _, name := range slices.Sorted(maps.Keys(wayMembers)) {
		own, declared := context[name]
		supplied := wayMembers[name]
		if !declared {
			context[name] = supplied
		} else if supplied.Optional && !own.Optional || !sameType(own.Type, supplied.Type) {
			return &valueError{
				at:   string(name),
				what: string(name) + " is declared otherwise than the PDP supplies it to approval.decide",
				try:  "declare via: String, gateway?: String and client?: " + whoDeclared + ", or leave them out: they are added",
			}
		}
	}
	return nil
}

// contextWithPDP adds the members that the PDP supplies to the type of a context. review says that
// it is the context of approval.decide. The error says which member of the declared context is wrong.
func contextWithPDP(declared resolved.RecordType, review bool) (resolved.RecordType, *valueError) {
	context := maps.Clone(declared)
	if context == nil {
		context = resolved.RecordType{}
	}
	pdp := pdpMembers
	if own, ok := context["pdp"]; ok {
		record, isRecord := own.Type.(resolved.RecordType)
		if declaresSame(record, firstPDPMembers) {
			pdp = firstPDPMembers
		}
		if !isRecord || own.Optional || !declaresSame(record, pdp) {
			return nil, &valueError{
				at:   "pdp",
				what: "pdp is declared otherwise than the PDP supplies it",
				try:  "declare pdp as " + pdpDeclared + ", all of them required, or leave it out: it is added",
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if evaluation.Protocol(string(name)) && !declared[name].Optional {
			return nil, &valueError{
				at:   string(name),
				what: string(name) + " is required, but as a member of the protocol it is taken out before a policy could see it",
				try:  "leave it out",
			}
		}
	}
	context["pdp"] = resolved.Attribute{Type: pdp}
	if review {
		if wrong := addWay(context); wrong != nil {
			return nil, wrong
		}
	}
	action, ok := context["action"]
	if _, isRecord := action.Type.(resolved.RecordType); ok && !isRecord {
		return nil, &valueError{
			at:   "action",
			what: "action is declared as something else than a record",
			try:  "declare it as a record of the action's properties, or leave it out",
		}
	} else if !ok {
		context["action"] = resolved.Attribute{Type: resolved.RecordType{}}
	}
	return context, nil
}

// compileSchema makes plain values from a resolved schema.
func compileSchema(r *resolved.Schema, c *Config) *Schema {
	s := &Schema{
		validator: dataValidator(r),
		unstored:  dataValidator(unstored(r, c)),
		lean:      dataValidator(withFirstPDP(r)),
		entities:  map[types.EntityType]entityShape{},
		Actions:   map[types.EntityUID]*actionShape{},

		actionEntities: types.EntityMap{},
	}
	enums := enumerated{}
	for name, e := range r.Enums {
		enums[name] = map[types.EntityUID]struct{}{}
		for _, uid := range e.Values {
			enums[name][uid] = struct{}{}
		}
		s.entities[name] = entityShape{attributes: map[string]AttributeShape{}, enum: enums[name]}
	}
	for name, e := range r.Entities {
		s.entities[name] = entityShape{
			attributes: compileRecord(e.Shape, enums),
			parents:    e.ParentTypes,
			tags:       compileType(e.Tags, enums),
		}
	}
	for uid, a := range r.Actions {
		shape := &actionShape{}
		if a.AppliesTo != nil {
			shape.Principals, shape.Resources = a.AppliesTo.Principals, a.AppliesTo.Resources
			shape.Context = compileRecord(a.AppliesTo.Context, enums)
		}
		s.Actions[uid], s.actionEntities[uid] = shape, a.Entity
	}
	return s
}

// dataValidator returns a validator of entities and requests. It must not check policies: for these cedar-go lists all
// combinations of action, principal and resource when a validator is made, and a small schema can have billions.
func dataValidator(r *resolved.Schema) *validate.Validator {
	seen := resolved.Schema{} // without an action while the validator is made
	v := validate.New(&seen)
	seen = *r
	return v
}

// withFirstPDP is the schema for requests of which no policy sees more. To make the other members, and to look at them,
// would cost every decision some percent.
func withFirstPDP(r *resolved.Schema) *resolved.Schema {
	lean := *r
	lean.Actions = make(map[types.EntityUID]resolved.Action, len(r.Actions))
	for uid, a := range r.Actions {
		if a.AppliesTo != nil {
			to := *a.AppliesTo
			to.Context = maps.Clone(to.Context)
			to.Context["pdp"] = resolved.Attribute{Type: firstPDPMembers}
			a.AppliesTo = &to
		}
		lean.Actions[uid] = a
	}
	return &lean
}

// unstored is the schema for entities that are in no store. It still requires attributes that
// give parents. A missing parent makes no policy err, so a forbid on everything below that
// parent would be skipped silently.
func unstored(r *resolved.Schema, c *Config) *resolved.Schema {
	if !c.EvaluateUnknown {
		return r
	}
	lenient := *r
	lenient.Entities = maps.Clone(r.Entities)
	for typ, e := range r.Entities {
		e.Shape = maps.Clone(e.Shape)
		for name, a := range e.Shape {
			a.Optional = a.Optional || !c.ParentsFrom(typ, string(name))
			e.Shape[name] = a
		}
		lenient.Entities[typ] = e
	}
	return &lenient
}

// enumerated are the ids that enumerated types have.
type enumerated map[types.EntityType]map[types.EntityUID]struct{}

func compileRecord(r resolved.RecordType, enums enumerated) map[string]AttributeShape {
	m := make(map[string]AttributeShape, len(r))
	for name, a := range r {
		m[string(name)] = AttributeShape{Shape: compileType(a.Type, enums), Optional: a.Optional}
	}
	return m
}

func compileType(t resolved.IsType, enums enumerated) *Shape {
	switch t := t.(type) {
	case resolved.BoolType:
		return &Shape{Form: ShapeBool}
	case resolved.LongType:
		return &Shape{Form: ShapeLong}
	case resolved.StringType:
		return &Shape{Form: ShapeString}
	case resolved.SetType:
		return &Shape{Form: ShapeSet, Element: compileType(t.Element, enums)}
	case resolved.RecordType:
		return &Shape{Form: ShapeRecord, Members: compileRecord(t, enums)}
	case resolved.EntityType:
		return &Shape{Form: ShapeEntity, Entity: types.EntityType(t), Enum: enums[types.EntityType(t)]}
	case resolved.ExtensionType:
		forms := map[resolved.ExtensionType]shapeForm{
			"ipaddr":   shapeIP,
			"decimal":  ShapeDecimal,
			"datetime": ShapeDatetime,
			"duration": shapeDuration,
		}
		return &Shape{Form: forms[t]}
	}
	return nil
}

// FitsRequest reports if the action takes these types and this context. lean is for a context whose pdp has the first
// members alone, whatever the action declares.
func (s *Schema) FitsRequest(r cedar.Request, lean bool) bool {
	if lean {
		return s.lean.Request(r) == nil
	}
	return s.validator.Request(r) == nil
}

// Declares reports if the schema declares an entity type.
func (s *Schema) Declares(typ types.EntityType) bool {
	_, ok := s.entities[typ]
	return ok
}

// LikeType suggests a declared type in the place of one that is not.
func (s *Schema) LikeType(typ types.EntityType) document.Near {
	return DidYouMean(string(typ), slices.Values(textsOf(slices.Collect(maps.Keys(s.entities)))))
}

// Allows reports if the type of an entity has an entity with that id.
func (s *Schema) Allows(uid types.EntityUID) bool {
	enum := s.entities[uid.Type].enum
	_, ok := enum[uid]
	return ok || enum == nil
}

// IDs are the ids that an enumerated type has. Any other type has none here.
func (s *Schema) IDs(typ types.EntityType) iter.Seq[string] {
	return (&Shape{Enum: s.entities[typ].enum}).IDs()
}

// AllowsAny reports if a type is not enumerated.
func (s *Schema) AllowsAny(typ types.EntityType) bool { return s == nil || s.entities[typ].enum == nil }

// AnID is the first id that an enumerated type has.
func (s *Schema) AnID(typ types.EntityType) (id string) {
	for uid := range s.entities[typ].enum {
		if text := string(uid.ID); id == "" || text < id {
			id = text
		}
	}
	return id
}

// FitsSent reports if an entity fits the schema, as a request sees the entity.
func (s *Schema) FitsSent(e types.Entity, stored bool) bool {
	validator := s.unstored
	if stored {
		validator = s.validator
	}
	for parent := range e.Parents.All() {
		if !s.Allows(parent) {
			return false
		}
	}
	return validator.Entity(e) == nil
}

// fitsEntity says why an entity of a file does not fit the schema. The validator decides. Of
// several misfits it names another one each time, so misfit and misplaced name the first.
func (s *Schema) fitsEntity(e types.Entity) error {
	shape := s.entities[e.UID.Type]
	hasContent := e.Attributes.Len() > 0 || e.Tags.Len() > 0 || e.Parents.Len() > 0
	if shape.enum != nil && hasContent {
		return fmt.Errorf("type %s is enumerated: its entities have no attributes, tags or parents", e.UID.Type)
	}
	if err := s.validator.Entity(e); err != nil {
		return cmp.Or(s.misfit(e), s.misplaced(e), err)
	}
	uids := slices.AppendSeq([]types.EntityUID{e.UID}, e.Parents.All())
	for _, v := range e.Attributes.All() {
		uids = appendUIDs(uids, v)
	}
	for _, v := range e.Tags.All() {
		uids = appendUIDs(uids, v)
	}
	for _, uid := range uids {
		if !s.Allows(uid) {
			return fmt.Errorf("type %s is enumerated and has no such id", uid.Type)
		}
	}
	return nil
}

// misplaced says which parent of an entity has a type that the schema does not let it have. It returns nil if all may be.
func (s *Schema) misplaced(e types.Entity) error {
	of, declared := s.entities[e.UID.Type]
	if !declared {
		return nil
	}
	for _, parent := range slices.SortedFunc(e.Parents.All(), compareUIDs) {
		if slices.Contains(of.parents, parent.Type) {
			continue
		}
		what := fmt.Sprintf("have one of the type %s, and the schema lets %s have none of it", parent.Type, e.UID.Type)
		if may := textsOf(of.parents); len(may) > 0 {
			what += ", only of " + strings.Join(may, ", ") + DidYouMean(string(parent.Type), slices.Values(may)).String()
		}
		return &valueError{at: "parents", what: what, parent: parent.Type}
	}
	return nil
}

// textsOf are names as plain texts.
func textsOf[S ~string](names []S) []string {
	texts := make([]string, len(names))
	for n, name := range names {
		texts[n] = string(name)
	}
	return texts
}

// misfit says which attribute or tag of an entity does not fit the schema. It returns nil if
// all fit.
func (s *Schema) misfit(e types.Entity) error {
	of, declared := s.entities[e.UID.Type]
	if !declared {
		return nil
	}
	if err := misfitIn(e.Attributes, of.attributes); err != nil {
		return belowPlace("attrs", err)
	}
	for name, v := range ByName(e.Tags.Map()) {
		if of.tags == nil {
			return nil
		}
		if err := of.tags.misfit(v); err != nil {
			return belowPlace("tags"+memberOf(string(name)), err)
		}
	}
	return nil
}

// misfitIn looks into a record, first for a member of a wrong type, then for a missing one.
func misfitIn(members types.Record, declared map[string]AttributeShape) error {
	for name, v := range ByName(members.Map()) {
		a, ok := declared[string(name)]
		if !ok {
			near := DidYouMean(string(name), maps.Keys(declared))
			return &valueError{at: memberOf(string(name)), what: "is not declared" + near.String(), mend: near.For(string(name))}
		}
		if err := a.Shape.misfit(v); err != nil {
			return belowPlace(memberOf(string(name)), err)
		}
	}
	if name, missing := MissingFrom(members.Map(), declared); missing {
		return &valueError{at: memberOf(name), what: "is required, and missing"}
	}
	return nil
}

// misfit says why a value is not of the declared type.
func (s *Shape) misfit(v types.Value) error {
	ok := formOf(v) == s.Form
	switch v := v.(type) {
	case types.Set:
		if !ok {
			break
		}
		var first error // the first by its text, because a set has no order
		for e := range v.All() {
			if err := s.Element.misfit(e); err != nil && (first == nil || err.Error() < first.Error()) {
				first = err
			}
		}
		return belowPlace("[]", first)
	case types.Record:
		if ok {
			return misfitIn(v, s.Members)
		}
	case types.EntityUID:
		ok = ok && (s.Entity == AnyEntity || v.Type == s.Entity)
	}
	if ok {
		return nil
	}
	what := "is declared as " + s.String()
	if s.Form >= shapeIP {
		what += `, and is none: write a text in its form, or {"fn": …, "arg": …}`
	}
	return &valueError{what: what}
}

// appendUIDs appends the entities that a value refers to.
func appendUIDs(uids []types.EntityUID, v types.Value) []types.EntityUID {
	switch v := v.(type) {
	case types.EntityUID:
		return append(uids, v)
	case types.Set:
		for e := range v.All() {
			uids = appendUIDs(uids, e)
		}
	case types.Record:
		for _, m := range v.All() {
			uids = appendUIDs(uids, m)
		}
	}
	return uids
}

// misfits are the texts of what keeps a policy from fitting the schema, and how often each comes. The tree is that of the
// policy or of one with the same scope.
func (s *Schema) misfits(p, tree *Policy) map[string]int {
	found := map[string]int{}
	for _, err := range flattened(s.narrow.validatorFor(s, p).Policy("", tree.tree())) {
		found[err.Error()]++
	}
	return found
}

// membersAt are the names of what the schema declares where a path of a policy leads to.
func (s *Schema) membersAt(p *Policy, variable string, names []string) (members []string) {
	for env := range s.Environments(p) {
		owners := []owner{env.owner(variable)}
		for _, name := range names {
			if len(owners) > 0 {
				owners = ownerOf(s.attributesOf(owners[0])[name].Shape)
			}
		}
		for _, o := range owners {
			members = slices.AppendSeq(members, maps.Keys(s.attributesOf(o)))
		}
	}
	slices.Sort(members)
	return slices.Compact(members)
}

// addToPDP is what to do where a schema declares the first members of pdp alone.
const addToPDP = "the schema declares pdp without it: add subject: " + whoDeclared + ", resource: " + whoDeclared +
	" and capability: " + capabilityDeclared + " to pdp there, or leave pdp out of the context: it is added"

// lacksOfPDP reports if a policy reads a member of context.pdp that the PDP supplies, and an action of the policy
// declares pdp with the first members alone. Its callers ask only about a member that the schema lacks.
func (s *Schema) lacksOfPDP(p *Policy, member string) bool {
	if !supplies(pdpMembers, []string{member}) || !p.Facts.sees(member) {
		return false
	}
	for a := range s.actionsOf(p) {
		if of, ok := a.Context["pdp"]; ok && len(of.Shape.Members) == FirstPDPMembers {
			return true
		}
	}
	return false
}

// flattened lists the errors that are joined in one.
func flattened(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, flattened(e)...)
	}
	return all
}

// undeclared lists the attributes that the policy tests for with has and that the schema
// declares in no combination of types for which the test is evaluated.
func (s *Schema) undeclared(p *Policy) (paths []string) {
	tests := p.hasTests()
	if len(tests.has) == 0 {
		return nil
	}
	asked, declared := make([]bool, len(tests.has)), make([]bool, len(tests.has))
	holds := make([]bool, len(tests.guards))
	for env := range s.Environments(p) {
		for i, g := range tests.guards {
			holds[i] = i == 0 || holds[g.outer] && env.admits(&g.test)
		}
		for i, h := range tests.has {
			if declared[i] || !holds[h.guard] {
				continue
			}
			for _, o := range s.owners(h.of, env) {
				asked[i] = true
				declared[i] = declared[i] || s.declares(o, h.name)
			}
		}
	}
	for i, h := range tests.has {
		if asked[i] && !declared[i] {
			paths = append(paths, h.path())
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// ownerOf is a list of one, the owner of attributes that a value of a declared type is. It is empty unless the type is
// an entity or a record.
func ownerOf(of *Shape) []owner {
	switch {
	case of != nil && of.Form == ShapeRecord:
		return []owner{{record: of}}
	case of != nil && of.Form == ShapeEntity:
		return []owner{{entity: of.Entity}}
	}
	return nil
}

// attributesOf are the declared attributes of an owner that is no record in the policy itself.
// Actions have none, and neither have entities of an undeclared type.
func (s *Schema) attributesOf(o owner) map[string]AttributeShape {
	switch {
	case o.record != nil:
		return o.record.Members
	case o.context != nil:
		return o.context.Context
	}
	return s.Attributes(o.entity)
}

// Environment is one combination of types that a policy can be evaluated for.
type Environment struct {
	Principal, Resource types.EntityType
	Action              *actionShape
}

// owner is the owner that a variable stands for.
func (e Environment) owner(variable string) owner {
	switch variable {
	case "principal":
		return owner{entity: e.Principal}
	case "resource":
		return owner{entity: e.Resource}
	case "action":
		return owner{entity: e.Action.Up.Uid.Type}
	}
	return owner{context: e.Action}
}

// admits reports if a test could hold. A test with in that names only ids could always hold
// for a principal and a resource, because their ancestors may have any type.
func (e Environment) admits(t *ScopeTest) bool {
	typ := e.Principal
	switch t.Of {
	case ActionVar:
		return e.Action.Up.Holds(t)
	case ResourceVar:
		typ = e.Resource
	}
	return (t.Is == "" || t.Is == typ) && (!t.Eq || t.Uids[0].Type == typ)
}

// Environments yields the combinations that the policy's scope admits.
func (s *Schema) Environments(p *Policy) func(func(Environment) bool) {
	return func(yield func(Environment) bool) {
		for action := range s.actionsOf(p) {
			env := Environment{Action: action}
			for _, env.Principal = range action.Principals {
				if !s.Declares(env.Principal) || !env.admitsAll(p, PrincipalVar) {
					continue
				}
				for _, env.Resource = range action.Resources {
					if !s.Declares(env.Resource) || !env.admitsAll(p, ResourceVar) {
						continue
					}
					if !yield(env) {
						return
					}
				}
			}
		}
	}
}

// actionsOf yields the actions that the policy's scope admits.
func (s *Schema) actionsOf(p *Policy) func(func(*actionShape) bool) {
	return func(yield func(*actionShape) bool) {
		for _, t := range p.Facts.Scope {
			if t.Of == ActionVar && t.Eq {
				if a := s.Actions[t.Uids[0]]; a != nil {
					yield(a)
				}
				return
			}
		}
		for _, a := range s.Actions {
			if env := (Environment{Action: a}); env.admitsAll(p, ActionVar) && !yield(a) {
				return
			}
		}
	}
}

// narrowed is the schema that the validator sees for one policy. An action applies to
// something there only if the policy's scope admits the action. With the full schema the
// validator would write out the contexts of all actions for every policy.
type narrowed struct {
	sync.Mutex                                     // locked while a policy is checked
	applies    map[types.EntityUID]resolved.Action // the actions as they are declared
	shown      resolved.Schema                     // with the actions as the validator sees them
	applied    []types.EntityUID                   // the actions that apply there now
}

// narrowing makes a narrowed schema in which no action applies yet.
func narrowing(r *resolved.Schema) *narrowed {
	n := &narrowed{applies: r.Actions, shown: *r}
	n.shown.Actions = make(map[types.EntityUID]resolved.Action, len(r.Actions))
	for uid, a := range r.Actions {
		a.AppliesTo = nil
		n.shown.Actions[uid] = a
	}
	return n
}

// validatorFor returns the validator for a policy. It is valid until the next call.
func (n *narrowed) validatorFor(s *Schema, p *Policy) *validate.Validator {
	for _, uid := range n.applied {
		a := n.applies[uid]
		a.AppliesTo = nil
		n.shown.Actions[uid] = a
	}
	n.applied = n.applied[:0]
	for a := range s.actionsOf(p) {
		uid := a.Up.Uid
		n.shown.Actions[uid] = n.applies[uid]
		n.applied = append(n.applied, uid)
	}
	return validate.New(&n.shown) // which lists the combinations of the actions that apply now
}

// admitsAll reports if all tests of a variable in the policy's scope could hold.
func (e Environment) admitsAll(p *Policy, of Variable) bool {
	return !slices.ContainsFunc(p.Facts.Scope, func(t ScopeTest) bool { return t.Of == of && !e.admits(&t) })
}

// Attributes are the declared attributes of an entity type. There are none without a schema,
// or if the schema does not declare the type.
func (s *Schema) Attributes(typ types.EntityType) map[string]AttributeShape {
	if s == nil {
		return nil
	}
	return s.entities[typ].attributes
}

// ContextOf is what the schema declares of the context of an action; nil if there is no schema.
func (s *Schema) ContextOf(action types.EntityUID) map[string]AttributeShape {
	if s == nil || s.Actions[action] == nil {
		return nil
	}
	return s.Actions[action].Context
}

// LeavesOut reports if the schema lets a request leave out the value at a path below
// attributes, and if the schema declares that path at all. A request cannot leave out what
// stands beyond a reference to an entity.
func (s *Schema) LeavesOut(attributes map[string]AttributeShape, names []string) (optional, declared bool) {
	for i, name := range names {
		a, ok := attributes[name]
		if !ok {
			return false, false
		}
		optional = optional || a.Optional
		if i == len(names)-1 {
			break
		}
		if a.Shape.Form != ShapeRecord {
			return false, true
		}
		attributes = a.Shape.Members
	}
	return optional, true
}
