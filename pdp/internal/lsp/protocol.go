package lsp

// The parts of the Language Server Protocol 3.17 that are used, by its own names.

type position struct {
	Line      int `json:"line"`      // from 0
	Character int `json:"character"` // in UTF-16, from 0
}

type textRange struct {
	Start position `json:"start"`
	End   position `json:"end"`
}

type location struct {
	URI   string    `json:"uri"`
	Range textRange `json:"range"`
}

// params are those of all methods that are known. Each method has some of them.
type params struct {
	TextDocument struct {
		URI     string `json:"uri"`
		Version int    `json:"version"`
		Text    string `json:"text"`
	} `json:"textDocument"`
	ContentChanges []struct {
		Text string `json:"text"`
	} `json:"contentChanges"`
	Position position  `json:"position"`
	Range    textRange `json:"range"`
	Context  struct {
		Only               []string `json:"only"`
		IncludeDeclaration bool     `json:"includeDeclaration"`
	} `json:"context"`
}

type diagnosticsParams struct {
	URI         string       `json:"uri"`
	Diagnostics []diagnostic `json:"diagnostics"`
}

type diagnostic struct {
	Range    textRange `json:"range"`
	Severity int       `json:"severity"`
	Code     string    `json:"code"`
	Source   string    `json:"source"`
	Message  string    `json:"message"`

	mend *textEdit // that takes it away, nil if none does
}

// The severities of a diagnostic.
const (
	isError   = 1
	isWarning = 2
)

type hover struct {
	Contents markup    `json:"contents"`
	Range    textRange `json:"range"`
}

type markup struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
}

type completion struct {
	Label    string   `json:"label"`
	Kind     int      `json:"kind"`
	Detail   string   `json:"detail,omitzero"`
	TextEdit textEdit `json:"textEdit"`
}

// The kinds of completions.
const (
	kindField   = 5
	kindClass   = 7
	kindValue   = 12
	kindKeyword = 14
)

type textEdit struct {
	Range   textRange `json:"range"`
	NewText string    `json:"newText"`
}

// codeAction is an edit that takes a problem away.
type codeAction struct {
	Title       string        `json:"title"`
	Kind        string        `json:"kind"`
	Diagnostics []diagnostic  `json:"diagnostics"`
	IsPreferred bool          `json:"isPreferred"`
	Edit        workspaceEdit `json:"edit"`
}

const quickFix = "quickfix"

// workspaceEdit has the changes of one version of a document: an editor refuses them for another one.
type workspaceEdit struct {
	DocumentChanges []documentEdit `json:"documentChanges"`
}

type documentEdit struct {
	TextDocument versioned  `json:"textDocument"`
	Edits        []textEdit `json:"edits"`
}

type versioned struct {
	URI     string `json:"uri"`
	Version int    `json:"version"`
}

// symbol is a definition in a document.
type symbol struct {
	Name           string    `json:"name"`
	Detail         string    `json:"detail,omitzero"`
	Kind           int       `json:"kind"`
	Range          textRange `json:"range"`
	SelectionRange textRange `json:"selectionRange"`
}

// abilities are those of the server.
var abilities = map[string]any{
	"capabilities": map[string]any{
		"positionEncoding":           "utf-16",
		"textDocumentSync":           map[string]any{"openClose": true, "change": 1}, // 1: the whole text
		"hoverProvider":              true,
		"definitionProvider":         true,
		"referencesProvider":         true,
		"documentSymbolProvider":     true,
		"codeActionProvider":         map[string]any{"codeActionKinds": []string{quickFix}},
		"documentFormattingProvider": true,
		"completionProvider":         map[string]any{"triggerCharacters": []string{".", ":", `"`, "@"}},
	},
	"serverInfo": map[string]any{"name": "policy-service"},
}
