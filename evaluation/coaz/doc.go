// Package coaz turns an MCP request and a mapping into the questions that a PDP is asked about it. It is the library
// behind OpenID's COAZ framework and its binding for MCP ("compatible with OpenID AuthZEN", both Draft 1: of 2026-07
// and at commit ca92c756 of openid/authzen, 2026-09-10), and it also reads the dialect they grew out of. Start with [New]; then, for each request:
//
//	mapping, verdict := binding.Default(method) // of the method
//	mapping, err := binding.Parse(tool)         // or the one that the tool declares; nil if it declares none
//	questions, err := mapping.Questions(coaz.Operation{Method: method, Params: params, Token: claims})
//
// The request may have its effect only if the PDP permits each of questions.Requests. If there is no mapping, or err is
// not nil, it may not: there is nothing to ask, and nothing to fall back on. [Kind.Code] is the code of each refusal.
//
// # A mapping
//
// A mapping is the body of an AuthZEN request in which some strings are expressions. In the dialect of the binding
// ([AuthZEN]) a string that begins with $ is an expression in CEL over params, the request's own, and token, the claims
// of the access token; $$ stands for a $ that is meant as one. In the older dialect ([SEP]) such a string is a JSONPath
// that selects one place. All else is literal. README.md beside this file goes from a tool's definition to a question.
//
// # Three authors
//
// Who wrote a mapping decides what it may do. The binding wrote the defaults. A server declares mappings with its tools,
// and is the party whose requests are decided: its mappings can name only the token's own subject ([Options.Override]),
// and set nothing in the context that is between PEP and PDP. An operator writes mappings into a configuration
// ([Binding.Compile]): they are trusted, nothing is added to them, and they may use further variables.
//
// # What it refuses to do
//
// It knows no HTTP, no MCP library and no PDP: it neither validates the token nor asks nor enforces. It makes no two
// answers of one input: same mapping, same operation, same bytes. It quotes no argument and no claim in an error. And
// it does no unbounded work, whoever wrote the mapping and whatever it is given: see [Limits].
package coaz
