// Package spelling says how far apart two names are, for "did you mean".
package spelling

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

// Nearest is the name that somebody may have meant: the first of those that are nearest. It is not ok if none is near. Names
// that are long are not compared: each comparison costs the product of their lengths.
func Nearest(name string, among []string) (near string, ok bool) {
	const most = 256
	least := 1 + max(2, len(name)/3)
	for _, other := range among {
		if len(name) > most || len(other) > most || other == name {
			continue
		}
		if d := Distance(name, other); d < least {
			near, least, ok = other, d, true
		}
	}
	return near, ok
}
