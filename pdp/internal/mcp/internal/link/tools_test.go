package link

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/mcp/internal/upstream/upstreamtest"
	"policy-service/pdp/internal/rpc"
)

// listing is a server of the modern era with one tool, and much beside it. It notes the text of its last list.
type listing struct {
	noting
	text *weak.Pointer[byte]
}

func (s listing) Send(ctx context.Context, _ upstream.Request) (upstream.Stream, error) {
	text := jsontext.Value(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"look","inputSchema":{"type":"object"}}` +
		strings.Repeat(" ", 1<<20) + `],"_meta":{"of":"the server"},"nextCursor":""}`)
	*s.text = weak.Make(&text[0])
	says := make(chan rpc.Message, 1)
	says <- rpc.Answer(rpc.ID{}, text)
	return said{ctx, says}, nil
}

// A client for which tools were listed once does not keep the server's text of them, and the tools only for a while: there are
// many clients, and what a server says is large.
func TestAListIsKeptInPartAndForAWhile(t *testing.T) {
	text := new(weak.Pointer[byte])
	l := bare(upstreamtest.One{Session: listing{text: text}})
	l.of.o.Cache = time.Hour
	listed, err := l.Listed(t.Context(), anybody.Who, anybody.Client)
	if err != nil || len(listed.Tools) != 1 {
		t.Fatalf("the list has %v: %v", listed, err)
	}
	if got := string(listed.Rest.Value()); !strings.Contains(got, `"tools":[],"_meta":{"of":"the server"}`) || strings.Contains(got, "nextCursor") {
		t.Errorf("the rest begins with %.200s", got)
	}
	runtime.GC()
	if text.Value() != nil {
		t.Error("the whole text is kept")
	}
	runtime.KeepAlive(listed)

	r := &Reach{Links: []*Link{l}}
	r.Sweep(time.Now())
	if l.tools.listed != listed {
		t.Error("a list is dropped before its time")
	}
	old := weak.Make(listed)
	listed = nil
	r.Sweep(time.Now().Add(2 * time.Hour))
	runtime.GC()
	if old.Value() != nil {
		t.Error("an old list is kept")
	}
	runtime.KeepAlive(r)
}

// A server that lists other tools for each client makes one person's clients push out nobody else's tools.
func TestOnePersonsListsPushOutNobodyElses(t *testing.T) {
	l := bare(upstreamtest.One{Session: noting{}})
	g, s := l.of, l.Server
	lists := func(account, name string, n int) {
		all := &Listing{ByName: map[string]*Tool{}}
		for i := range n {
			all.ByName[fmt.Sprint(name, i)] = &Tool{}
		}
		g.learn(s, account, all)
	}
	known := func(name string) (n int) {
		tools, _ := g.KnownOf(s)
		for one := range tools {
			if strings.HasPrefix(one, name) {
				n++
			}
		}
		return n
	}
	lists("mallory", "all-", 500) // as everybody is shown them
	lists("alice", "all-", 500)
	lists("alice", "alice-", 400)
	for client := range 200 {
		lists("mallory", "all-", 500)
		lists("mallory", fmt.Sprintf("mallory-%d-", client), mostTools)
	}
	if all, alice, mallory := known("all-"), known("alice-"), known("mallory-"); all != 500 || alice != 400 || mallory > 2*mostTools-900 || mallory < mostTools {
		t.Errorf("known are %d of all, %d of alice, %d of mallory", all, alice, mallory)
	}
	for person := range 20 { // each has a share
		lists(fmt.Sprint("p", person), fmt.Sprintf("p%d-", person), mostTools)
	}
	if n := known(""); n > 2*mostTools {
		t.Errorf("%d tools are known", n)
	}
	if n := known("p0-"); n == 0 {
		t.Error("nothing is known of one of many")
	}
}
