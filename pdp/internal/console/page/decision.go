package page

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/visible"
)

// Decisions is the page of the records of the decision log.
type Decisions struct {
	Layout Layout
	Filter RecordFilter
	// All says that the list is not of decisions alone.
	All  bool
	Rows []RecordRow
	// Recent says that only records of the last 90 days are looked through.
	Recent bool
	// Mistake is why there is no list, if the address of the page is no good.
	Mistake Text
	// Older and Newer are the pages beside this one, and Newest the first page if this is another one.
	Older, Newer, Newest Href
	// Export writes out the same records.
	Export Command
}

func (Decisions) template() string { return "decisions" }

// RecordFilter is the filter of the records.
type RecordFilter struct {
	Answers, Kinds []Choice
	// Fields are those that are always in view, and More the others.
	Fields, More []RecordField
	// Clear is the page without a filter. It is empty if there is none.
	Clear Href
}

// RecordField is a filter by a text.
type RecordField struct {
	Name, Label, Hint Label
	Value             Typed
}

// Given reports if a person typed something into one of the fields that are not always in view.
func (f RecordFilter) Given() bool {
	return slices.ContainsFunc(f.More, func(one RecordField) bool { return one.Value != "" })
}

// RecordRow is a record in a list. A record that holds no decision has a Kind, and may have an Event, and the person and the
// words of a step.
type RecordRow struct {
	Link            Href
	At              Moment
	Answer          Status
	Who, Does, With Text
	Reason          Text
	Policies        []Text
	MorePolicies    int
	Caller, Tenant  Text
	Kind, Event     Text
	By, Said        Text
	Questions       int // of a batch with options.unknown
	// Says is why, in the words of the request. Sent is its arguments.
	Says Text
	Sent Differences
}

// Command is a command line that people copy. It is empty if it would not be the one that they see.
type Command struct{ Text Text }

// CommandOf quotes words for sh, and adds an end of ours. A word that is drawn in another way than it is written makes
// no command.
func CommandOf(words []string, end Label) Command {
	line := make([]string, len(words))
	for n, word := range words {
		if strings.Contains(word, `\`) || !Of(word).Plain() {
			return Command{}
		}
		line[n] = shellWord(word)
	}
	if end != "" {
		line = append(line, string(end))
	}
	all := visible.Piece{Text: strings.Join(line, " ")} // whole, however long it is
	return Command{Text{visible.Shown{Lines: [][]visible.Piece{{all}}}}}
}

// shellWord quotes a word for sh, if it needs quotes.
func shellWord(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,:/@%="
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
}

// Decision is the page of one record.
type Decision struct {
	Layout Layout
	ID     ID
	// Gone says that the content was removed. All but the layout and the ID is empty then.
	Gone    bool
	Heading Label
	Answer  Status
	// Said is the steps of the approval request that people made, in their order. Says is why, in the words of the request.
	Said  []SaidStep
	Says  Text
	At    Moment
	Facts []Fact
	// Questions are those of a batch, and MoreQuestions are not shown.
	Questions     []RecordQuestion
	MoreQuestions int
	Sent          []SentTable
	Masked        []MaskedPlace
	MoreMasked    int // that are not shown
	Why           Explained
	Owed          []OwedObligation
	Steps         []RecordStep
	// MoreSteps is set if there are more than are shown, at StepsLink, and NoSteps if they cannot be had.
	MoreSteps bool
	NoSteps   bool
	StepsLink Href
	Proof     Proof
	// Whole is the record as it is stored, or its beginning.
	Whole Stored
}

func (Decision) template() string { return "decision" }

// Fact is one thing that a record says, and the pages that say more about it.
type Fact struct {
	Name  Label
	Value Text
	Note  Label
	Links []FactLink
}

// FactLink is a page about a fact.
type FactLink struct {
	Text Label
	Link Href
}

// RecordQuestion is a question of a batch with options.unknown.
type RecordQuestion struct {
	Name   Text
	Link   Href
	Answer Status
}

// mostStored is how many bytes of a value a page draws: marks make a text some fifty times as long. Of a larger one it draws
// briefStored characters. mostSent is how many members of an object it has.
const (
	mostStored  = 16 << 10
	briefStored = 60
	mostSent    = 100
)

// Stored is a value of a record. Cut says that it is the beginning of one.
type Stored struct {
	Value
	Cut bool
}

// StoredOf is a value of a record, the beginning of a large one.
func StoredOf(v jsontext.Value) Stored { return storedIn(v, mostStored) }

func storedIn(v jsontext.Value, room int) Stored {
	if len(v) <= room {
		return Stored{Value: JSON(v)}
	}
	return Stored{Value{Text: Brief(Line, string(v), briefStored)}, true}
}

// StoredWord is a name in a record, the beginning of a long one.
func StoredWord(name string) Text {
	if len(name) > mostStored/drawnForOne {
		return Brief(Word, name, briefStored)
	}
	return Word(name)
}

// SentTable are the members of an object that was sent. More of them are not shown.
type SentTable struct {
	Caption Label
	Rows    []SentRow
	More    int
}

// SentRow is a member, and says if all or a part of it is masked.
type SentRow struct {
	Name   Text
	Value  Stored
	Masked bool
}

// SentMembers is a table of the members of an object, within the bounds of a page.
func SentMembers(caption Label, object jsontext.Value, masked func(name string) bool) SentTable {
	t := SentTable{Caption: caption}
	all, room := members(object), mostStored
	for _, m := range all[:min(len(all), mostSent)] {
		row := SentRow{Name: StoredWord(m.name), Value: storedIn(m.value, room), Masked: masked(m.name)}
		if len(m.name) <= longPath {
			row.Name = m.shown()
		}
		if !row.Value.Cut {
			room -= len(m.value)
		}
		t.Rows = append(t.Rows, row)
	}
	t.More = len(all) - len(t.Rows)
	return t
}

// MaskedPlace is a place in the request whose value is not on record, or not all of it.
type MaskedPlace struct {
	At, Type Text
	Part     bool
}

// Explained says why a decision came about, by the policies of then. Without an explanation, Not says why there is none,
// and Policies have names alone.
type Explained struct {
	Not       Label
	NotDetail Text
	Known     bool
	// Same says that the policies of then give the answer that is on record; otherwise they say Answer and Reason.
	Same   bool
	Answer Status
	Reason Text
	// DependsOn are masked places on which the answer may depend.
	DependsOn []Text
	Policies  []ExplainedPolicy
	// Others were asked, and had no part.
	Others []ExplainedPolicy
	More   int
}

// ExplainedPolicy is one policy, and its part in the decision.
type ExplainedPolicy struct {
	ID, Effect, Position Text
	Part                 Label
	Text                 Text
	Clauses              []ExplainedClause
	Reads                []ExplainedRead
	Records              Href // those of this policy
}

// ExplainedClause is a clause of a policy. Result is a CSS class, and Says the words for it.
type ExplainedClause struct {
	Text         Text
	Result, Says Label
}

// ExplainedRead is an attribute that a policy reads.
type ExplainedRead struct {
	Path   Text
	Source Label
}

// OwedObligation is an obligation of a decision, and says in words if it is done.
type OwedObligation struct {
	ID, Type   Text
	Done       Label
	Detail     Text
	Discharged Text // the approval that discharged it
}

// RecordStep is a step of an approval request or of a capability.
type RecordStep struct {
	Link    Href
	At      Moment
	Event   Text
	By, Via Text
	To      Text
	Reason  Text
	Answer  Status // of a decision that used it
	Current bool   // it is the record of this page
}

// SaidStep is a step at the top of the page: Words says which one it is, and Name is its name for CSS.
type SaidStep struct {
	RecordStep
	Name, Words Label
}

// Proof is the place of a record in the log.
type Proof struct {
	Sequence, Leaf   Text
	Size, Root       Text
	At               Moment
	Covered          bool
	Prove, Key, Test Command
}
