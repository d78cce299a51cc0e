// Package cedartext reads the text of Cedar policies as people write it, with comments, white space and mistakes, and lays
// it out.
//
// Begin with [Lex]. It cuts any text into tokens, and never fails: what is no token of Cedar is one of kind [Unknown], and
// what follows is read as if it were not there. Every byte of the text is in one token, so the tokens joined are the text;
// each says where it begins. An editor needs no more to know what stands under the cursor, in a text that is half written.
//
// [Format] lays out the policies of a file, as Cedar's own formatter does with its defaults: 80 columns, an indent of two.
// It goes from words ([Lex] without white space, each with its comments), through a parser that makes a layout of them, to
// lines:
//
//	lex.go         a text becomes tokens
//	word.go        tokens become words
//	policies.go    words become a layout: policies, their heads and their clauses
//	expressions.go and what stands in the clauses
//	layout.go      a layout becomes lines: what fits in one, and where the others break
//	format.go      nothing is lost on the way, or the text is refused
//
// The package refuses to know what a policy means, and what a bundle is: it takes one text, and knows neither files nor
// schemas. What it accepts need not be right; that is for package pdp to say, whose Format compares what both texts mean.
package cedartext
