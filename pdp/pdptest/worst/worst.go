// Package worst makes no promise: it is for the tests of this module alone. It writes requests and files of many parts,
// among them texts that an attacker would choose.
package worst

import (
	"fmt"
	"strconv"
	"strings"
)

// fixed are texts that leave cedar-go's hash of strings (FNV-1, unseeded) as it was before them, so that any two
// sequences of them collide. Finding them took twenty seconds with a lattice reduction; an attacker has them too.
var fixed = [...]string{
	`=;0-!-a3af:D`, `%>y U4<$59q4`, `33+J| o)UC:o`, `2VN6-h+739S|`,
	`ks$));3Jk~ux`, `!<-6JXZr.W.o`, `4<rjGODy43t,`, `n77FY3P4,!Nq`,
	`y>,dg70sxehe`, `<}%c),p,A)ZF`, `<kg3e1[>P_D[`, `9%8IsjQ,Kzj:`,
	`~ JW3.q4r)~r`, `*jUQf^Mx(.;f`, `&5j,1;beYWF0`, `*e{dyK8yUbie`,
}

// Colliding returns n different strings of one hash.
func Colliding(n int) []string {
	all := make([]string, n)
	for i := range all {
		for k := i + len(fixed); k > 0; k /= len(fixed) {
			all[i] += fixed[k%len(fixed)]
		}
	}
	return all
}

// Request is the body of an evaluation; its subject and resource are members of objects without their type.
func Request(subject, resource, context string) string {
	return `{"subject":{"type":` + subject + `},"action":{"name":"a"},"resource":{"type":` + resource + `},"context":` + context + `}`
}

// Numbers returns 0, 1 and so on, n of them.
func Numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Each is what f makes of each.
func Each[T any](of []T, f func(T) string) []string {
	all := make([]string, len(of))
	for i := range of {
		all[i] = f(of[i])
	}
	return all
}

// Times returns a text n times.
func Times(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

// List writes an array.
func List[T any](of []T, f func(T) string) string {
	return "[" + strings.Join(Each(of, f), ",") + "]"
}

// Object writes an object of n members, each by a format of two numbers.
func Object(n int, member string) string {
	return "{" + strings.Join(Each(Numbers(n), func(i int) string { return fmt.Sprintf(member, n-i+1000, i+1) }), ",") + "}"
}

// Sums returns n arrays of k numbers with one sum, which is cedar-go's hash of a set.
func Sums(n, k int) string {
	return List(Numbers(n), func(i int) string {
		return List(append(Numbers(k-2), 10_000+i, 20_000-i), strconv.Itoa)
	})
}
