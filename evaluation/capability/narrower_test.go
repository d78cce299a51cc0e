package capability_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"policy-service/evaluation/capability"
)

// TestNarrower makes random lines of three tokens. What is taken for narrower admits no call that an ancestor does not, ends no
// later, and has no more uses; and what has more than its parent is not taken.
func TestNarrower(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	tools := []string{"agent-b:a", "agent-b:b", "agent-b:c", "agent-b:*"}
	values := []string{`1`, `"x"`, `{"constraint_type":"range","min":1,"max":3}`, `{"constraint_type":"one_of","values":[1,2,"x"]}`, `{"constraint_type":"prefix","value":"x"}`, `{"constraint_type":"wildcard"}`}
	layer := func() (l capability.Layer) {
		for _, n := range random.Perm(len(tools))[:1+random.IntN(3)] {
			l.Tools = append(l.Tools, tools[n])
		}
		if random.IntN(4) == 0 {
			return l
		}
		l.Arguments = capability.Arguments{}
		for _, name := range []string{"m", "n"} {
			if random.IntN(2) == 0 {
				l.Arguments[name] = constraint(values[random.IntN(len(values))])
			}
		}
		if random.IntN(2) == 0 {
			l.Arguments["*"] = constraint(`{"constraint_type":"wildcard"}`)
		}
		return l
	}
	child := func(of capability.Token) capability.Token {
		c := of
		c.Parent, c.Depth, c.ID = of.ID, of.Depth+1, fmt.Sprint("cap_child", of.Depth+1)
		c.Layers = append(append([]capability.Layer{}, of.Layers...), layer())
		c.Expires = of.Expires.Add(time.Duration(random.IntN(4)-2) * time.Minute)
		c.MaxUses = random.IntN(4)
		return c
	}
	taken, refused := 0, map[string]int{}
	for range 4000 {
		line := []capability.Token{granted(func(t *capability.Token) {
			t.MaxDepth, t.MaxUses, t.Layers = 2, random.IntN(4), []capability.Layer{layer()}
		})}
		for range 2 {
			parent := line[len(line)-1]
			one := child(parent)
			err := parent.Narrower(one)
			if wider := (*capability.NotNarrower)(nil); errors.As(err, &wider) {
				refused[wider.Member]++
				break
			}
			taken++
			line = append(line, one)
		}
		last := line[len(line)-1]
		for _, arguments := range []string{`{}`, `{"n":1}`, `{"n":2,"m":"x"}`, `{"m":"xy","n":null}`, `{"m":1,"n":"x","o":1}`} {
			for _, called := range []string{"agent-b:a", "agent-b:b", "agent-b:d"} {
				c := capability.Call{Holder: last.Holder, Tool: called, Arguments: parsed(arguments)}
				admits := func(t capability.Token) bool {
					_, refusal := t.CheckCall(c, nil, now, time.Minute, 0)
					return refusal.Code == capability.ProofMissing // all before that is good
				}
				for n := range line[:len(line)-1] {
					if admits(last) && !admits(line[n]) {
						t.Fatalf("%s %s: %+v admits it, and its ancestor %+v does not", called, arguments, last.Layers, line[n].Layers)
					}
				}
			}
		}
		for n := 1; n < len(line); n++ {
			a, c := line[n-1], line[n]
			if c.Expires.After(a.Expires) || a.MaxUses > 0 && (c.MaxUses == 0 || c.MaxUses > a.MaxUses) || c.Depth > a.MaxDepth {
				t.Fatalf("%+v is made from %+v", c, a)
			}
		}
	}
	if taken < 100 || refused["tools"] < 100 || refused["duration"] < 100 || refused["max_uses"] < 100 {
		t.Errorf("taken are %d, and refused %v", taken, refused)
	}
	good := granted(func(t *capability.Token) { t.MaxDepth, t.NotBefore = 1, t.NotBefore.Add(time.Minute) })
	for member, change := range map[string]func(*capability.Token){
		"":           func(*capability.Token) {},
		"audience":   func(t *capability.Token) { t.Audience = "agent-c" },
		"max_depth":  func(t *capability.Token) { t.MaxDepth = 2 },
		"tools":      func(t *capability.Token) { t.Layers = t.Layers[1:] },
		"valid_from": func(t *capability.Token) { t.NotBefore = t.NotBefore.Add(-time.Second) },
		"duration":   func(t *capability.Token) { t.Expires = t.Expires.Add(time.Second) },
		"offline":    func(t *capability.Token) { t.Verify = capability.Offline },
		"channel":    func(t *capability.Token) { t.Session = "x" },
	} {
		c := good
		c.Parent, c.Depth, c.Layers = good.ID, 1, append(append([]capability.Layer{}, good.Layers...), capability.Layer{Tools: []string{tool}})
		change(&c)
		wider := (*capability.NotNarrower)(nil)
		if err := good.Narrower(c); errors.As(err, &wider) && wider.Member != member || (err == nil) != (member == "") {
			t.Errorf("%s: %v", member, err)
		}
	}
}
