package requests

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// The counts are right and within their bounds, and an owner without entries is forgotten. Each entry is claimed once at most, and
// comes to an end: with an answer just if its claim has come to one.
func TestTableCounts(t *testing.T) {
	for seed := range uint64(20) {
		random, now := rand.New(rand.NewPCG(seed, 3)), time.Unix(0, 0)
		table := New[int, int](Options{TTL: time.Minute, Most: 12, Each: 4, Bytes: 8 << 10, Now: func() time.Time { return now }})
		var open []*Entry[int, int]
		var claims []Claim[int, int]
		answered := map[*Entry[int, int]]bool{}
		finish := func(n int) {
			claims[n].Finish(2, random.IntN(1200))
			answered[claims[n].of] = true
			claims = slices.Delete(claims, n, n+1)
		}
		for id := range 2000 {
			switch random.IntN(5) {
			case 0:
				now = now.Add(time.Duration(random.IntN(4)) * time.Second)
				table.Sweep()
			case 1, 2:
				if e, err := table.File(strconv.Itoa(id), "owner "+strconv.Itoa(random.IntN(9)), 1, random.IntN(600)); err == nil {
					open, answered[e] = append(open, e), false
				}
			case 3:
				if len(open) == 0 {
					continue
				}
				n := random.IntN(len(open))
				if c, ok := open[n].Claim(); ok {
					claims = append(claims, c)
				}
				if _, again := open[n].Claim(); again {
					t.Fatal("it is claimed twice")
				}
				open = slices.Delete(open, n, n+1)
			default:
				if len(claims) > 0 {
					finish(random.IntN(len(claims)))
				}
			}
			counted(t, table)
		}
		for len(claims) > 0 {
			finish(0)
		}
		now = now.Add(time.Hour)
		table.Sweep()
		for e, want := range answered {
			select {
			case <-e.Over():
			default:
				t.Error("it is not over")
			}
			if _, ok := e.Answer(); ok != want || table.Find(e.ID) != nil {
				t.Errorf("answered: %t, and it should be %t; or it is kept for ever", ok, want)
			}
		}
		if counted(t, table); len(table.all) != 0 {
			t.Errorf("%d entries are left", len(table.all))
		}
	}
}

func counted(t *testing.T, table *Table[int, int]) {
	t.Helper()
	var all account
	owners := map[string]*account{}
	for _, e := range table.all {
		if owners[e.Owner] == nil {
			owners[e.Owner] = &account{}
		}
		for _, a := range []*account{&all, owners[e.Owner]} {
			p := a.of(e.state)
			p.number, p.bytes = p.number+1, p.bytes+e.size
		}
	}
	if all != table.together || len(owners) != len(table.owners) {
		t.Fatalf("there is %v of %d owners, counted is %v of %d", all, len(owners), table.together, len(table.owners))
	}
	for owner, has := range owners {
		if *has != table.owners[owner] {
			t.Fatalf("%s has %v, counted is %v", owner, *has, table.owners[owner])
		}
		if has[pending].number > 4 || has[over].number > 4 || has[pending].bytes > 512 || has[over].bytes > 1024 || has[spent].bytes != 0 {
			t.Fatalf("%s has %v", owner, *has)
		}
	}
	if all[pending].number > 12 || all[over].number > 12 || all[spent].number > 48 || all[pending].bytes > 4096 || all[over].bytes > 4096 {
		t.Fatalf("there is %v", all)
	}
}
