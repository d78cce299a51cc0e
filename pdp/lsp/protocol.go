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

type documentID struct {
	URI string `json:"uri"`
}

type openParams struct {
	TextDocument struct {
		URI  string `json:"uri"`
		Text string `json:"text"`
	} `json:"textDocument"`
}

type changeParams struct {
	TextDocument   documentID `json:"textDocument"`
	ContentChanges []struct {
		Text string `json:"text"`
	} `json:"contentChanges"`
}

type documentParams struct {
	TextDocument documentID `json:"textDocument"`
}

type cursorParams struct {
	TextDocument documentID `json:"textDocument"`
	Position     position   `json:"position"`
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

type initializeResult struct {
	Capabilities struct {
		PositionEncoding string `json:"positionEncoding"`
		TextDocumentSync struct {
			OpenClose bool `json:"openClose"`
			Change    int  `json:"change"` // 1: the whole text
		} `json:"textDocumentSync"`
		HoverProvider              bool `json:"hoverProvider"`
		DefinitionProvider         bool `json:"definitionProvider"`
		DocumentFormattingProvider bool `json:"documentFormattingProvider"`
		CompletionProvider         struct {
			TriggerCharacters []string `json:"triggerCharacters"`
		} `json:"completionProvider"`
	} `json:"capabilities"`
	ServerInfo struct {
		Name string `json:"name"`
	} `json:"serverInfo"`
}
