// Package cedartext reads the text of Cedar policies as people write it, with comments, white space and mistakes, and lays
// it out.
//
// Begin with [Lex]. It cuts any text into tokens, and never fails: characters that are no token of Cedar are one of kind
// [Unknown], and the rest is read as if they were not there. Every byte of the text is in one token, so the tokens joined
// are the text; each says where it begins. An editor needs no more to find the token under the cursor, in a text that is
// half written.
//
// [Format] lays out the policies of a file, as Cedar's own formatter does with its defaults: 80 columns, an indent of two.
// It goes from words ([Lex] without white space, each with its comments), through a parser that makes a layout of them, to
// lines:
//
//	lex.go         a text becomes tokens
//	word.go        tokens become words
//	policies.go    words become a layout: policies, their heads and their clauses
//	expressions.go and the expressions in the clauses
//	layout.go      a layout becomes lines: a part that fits in one, or breaks
//	format.go      nothing is lost on the way, or the text is refused
//
// The package refuses to know the meaning of a policy, or a bundle: it takes one text, and knows neither files nor
// schemas. A text that it accepts need not be right; Format of package pdp decides that, and compares the meaning of both.
package cedartext
