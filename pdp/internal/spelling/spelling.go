// Package spelling says how far apart two names are, for "did you mean".
package spelling

import "strings"

// Distance is Levenshtein's, over bytes: how many are to be changed, added or taken away.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = min(diagonal, row[j], row[j+1]) + 1
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// longest is the length of a name from which on it is not compared: a comparison costs the product of two lengths.
const longest = 64

// Nearest is the name among others that may be meant. It is not ok if none is near. Of several that are equally near it is
// the first in the order of names. Two names that differ only in case are as near as can be.
func Nearest(name string, among []string) (near string, ok bool) {
	if len(name) > longest {
		return "", false
	}
	distance := 1 + max(2, (len(name)+1)/3)
	for _, other := range among {
		if other == name {
			continue // that is written there
		}
		d := 0
		if !strings.EqualFold(name, other) {
			if apart := max(len(other)-len(name), len(name)-len(other)); apart > distance {
				continue // at least as many letters are to be changed
			}
			d = Distance(name, other)
		}
		if d < distance || d == distance && ok && other < near {
			near, distance, ok = other, d, true
		}
	}
	return near, ok
}
