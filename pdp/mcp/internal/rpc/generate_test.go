package rpc_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// value writes any JSON value that a message may hold, in any of the ways it can be written.
func value(r *rand.Rand, depth int) string {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch r.IntN(kinds) {
	case 0:
		return "null"
	case 1:
		return []string{"true", "false"}[r.IntN(2)]
	case 2:
		return text(r)
	case 3:
		return strconv.FormatInt(r.Int64()-r.Int64(), 10)
	case 4:
		return []string{"0", "1.0", "1e2", "-1E-3", "0.10", "9007199254740993", "18446744073709551616", "1e308"}[r.IntN(8)]
	case 5:
		items := make([]string, r.IntN(4))
		for i := range items {
			items[i] = value(r, depth-1)
		}
		return "[" + space(r) + strings.Join(items, space(r)+",") + "]"
	}
	return object(r, depth-1)
}

// object writes an object, with names that nobody knows.
func object(r *rand.Rand, depth int) string {
	items := make([]string, r.IntN(5))
	for i := range items {
		name := text(r)
		items[i] = `"` + strconv.Itoa(i) + name[1:] + space(r) + ":" + space(r) + value(r, depth)
	}
	return "{" + space(r) + strings.Join(items, space(r)+","+space(r)) + "}"
}

func text(r *rand.Rand) string {
	parts := []string{"a", "é", "e\u0301", "\\u0061", "\\n", "\\\"", "\\/", "/", "\u2028", "😀", "\\ud83d\\ude00", "data: ", " ", "<"}
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return `"` + b.String() + `"`
}

func space(r *rand.Rand) string { return []string{"", "", " ", "\n", "\t", "\r\n"}[r.IntN(6)] }
