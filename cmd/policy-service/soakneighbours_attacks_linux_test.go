package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// nuisances are the neighbours, the worst of each kind.
var nuisances = []nuisance{
	{name: "plain questions", denied: true, attack: func(a *attack) {
		question := a.raw("POST", "/tenants/loud/access/v1/evaluation", a.loud, loudQuestion(""))
		a.crowd(func(int) []byte { return question })
	}},
	{name: "batches that fill the record", denied: true,
		config: "decision_log: {retain: {bytes: 268435456}}\n", attack: func(a *attack) {
			// One kind is small enough to be no large body, the other is as the issue has it.
			below := a.batch(loudQuestion(`,"context":{"note":"`+strings.Repeat("x", 11<<10)+`"}`), "{}")
			above := a.batch(loudQuestion(`,"context":{"note":"`+strings.Repeat("x", 17<<10)+`"}`), "{}")
			a.crowd(func(n int) []byte { return [][]byte{below, above}[n%2] })
		}},
	{name: "batches with much to mask", denied: true, attack: func(a *attack) {
		secret := strings.Repeat("s", 64)
		// A secret that nearly stands everywhere, thousands of them, and one in a body that is small.
		near := a.batch(loudQuestion(`,"context":{"token":"`+secret+`","note":"`+strings.Repeat(secret[1:]+"-", 880<<10/64)+`"}`), "{}")
		var many strings.Builder
		for n := range 4000 {
			fmt.Fprintf(&many, `"token%d":"secret-%060d",`, n, n)
		}
		lots := a.batch(loudQuestion(`,"context":{`+many.String()+`"note":"`+strings.Repeat("secret-0000", 40_000)+`"}`), "{}")
		a.crowd(func(n int) []byte { return [][]byte{near, lots}[n%2] })
	}},
	{name: "explained batches", denied: true, files: func() map[string]string {
		return map[string]string{"tenants/loud/many.cedar": manyPolicies(500)}
	}, attack: func(a *attack) {
		explained := a.batch(loudQuestion(`,"context":{"level":1}`), "{}", "X-Explain: true")
		a.crowd(func(int) []byte { return explained })
	}},
	{name: "large bodies that trickle", may: []int{http.StatusBadRequest}, denied: true, attack: func(a *attack) {
		large := a.raw("POST", "/tenants/loud/access/v1/evaluation", a.loud, loudQuestion(`,"context":{"note":"`+strings.Repeat("x", 900<<10)+`"}`))
		a.connections(func(n int, conn *net.TCPConn) { a.trickle(conn, large, 64<<10) })
	}},
	// There is room for 512, of which nobody needs to be told: the default is 4,096.
	{name: "connections whose body never comes", config: "max_connections: 512\n", may: []int{http.StatusBadRequest, http.StatusUnauthorized}, attack: func(a *attack) {
		head := fmt.Appendf(nil, "POST /access/v1/evaluation HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", a.addr)
		a.many(600, func(n int, conn *net.TCPConn) { a.trickle(conn, head, len(head)) })
	}},
	{name: "readers of the whole log", chores: []chore{reads("the resident's report", "/v1/log/report"), reads("the resident's export", "/v1/log/export"), reads("the resident's sample", "/v1/log/sample?seed=lottery&n=100")},
		before: func(a *attack) { a.fill(5_000) },
		attack: func(a *attack) {
			paths := []string{"/v1/log/export", "/v1/log/report", "/v1/log/sample?seed=lottery&n=100", "/v1/log/stats"}
			a.connections(func(n int, conn *net.TCPConn) {
				request := a.raw("GET", paths[n/2%len(paths)], a.loud, "")
				if n%2 == 0 {
					a.readSlowly(conn, request)
				} else {
					a.loop(conn, func() []byte { return request })
				}
			})
		}},
	{name: "long polls", chores: []chore{reads("the resident's inbox", "/v1/approvals")}, before: func(a *attack) { a.asks(200) }, attack: func(a *attack) {
		// What nobody asks about never comes, and is looked for again with each change.
		poll := a.raw("GET", "/v1/approvals?wait=30s&subject=nobody", a.loud, "")
		a.connections(func(n int, conn *net.TCPConn) {
			turn := 1000 * n
			a.loop(conn, func() []byte {
				if n%16 > 0 {
					return poll
				}
				turn++
				return a.raw("POST", "/v1/authorize", a.loud, loudAsk(turn))
			})
		})
	}},
	{name: "inboxes", chores: []chore{reads("the resident's inbox", "/v1/approvals")}, before: func(a *attack) { a.asks(400) }, attack: func(a *attack) {
		look := a.raw("GET", "/v1/approvals?limit=200", a.loud, "")
		a.crowd(func(int) []byte { return look })
	}},
	{name: "approvals for ever new subjects", chores: []chore{asksBeside}, attack: func(a *attack) {
		a.connections(func(n int, conn *net.TCPConn) {
			turn := 1_000_000 * n
			a.loop(conn, func() []byte {
				turn++
				return a.raw("POST", "/v1/authorize", a.loud, loudAsk(turn))
			})
		})
	}},
	{name: "entities at their bounds", emergency: true, attack: func(a *attack) {
		a.edits(2*time.Second, "tenants/loud/entities/all.json", dearEntities)
	}},
	{name: "identities without end", emergency: true, chores: []chore{reads("the resident's inbox", "/v1/approvals")}, before: func(a *attack) { a.asks(200) }, attack: func(a *attack) {
		look := a.raw("GET", "/v1/approvals?limit=200", a.loud, "")
		var all sync.WaitGroup
		all.Go(func() { a.edits(2*time.Second, "tenants/loud/entities/all.json", identitiesGraph) })
		a.crowd(func(int) []byte { return look })
		all.Wait()
	}},
	{name: "files that are written without pause", emergency: true, attack: func(a *attack) {
		a.edits(20*time.Millisecond, "tenants/loud/more.cedar", pointlessPolicy)
	}},
	{name: "queries of the log that find nothing", before: func(a *attack) { a.fill(200_000) }, attack: func(a *attack) {
		paths := []string{"/v1/decisions?subject=nobody", "/v1/decisions?tenant=loud&decision=allow&order=oldest", "/v1/decisions?policy=none"}
		var queries [][]byte
		for _, path := range paths {
			queries = append(queries, a.raw("GET", path, a.loud, ""))
		}
		a.crowd(func(n int) []byte { return queries[n%len(queries)] })
	}},
	{name: "searches", denied: true, files: func() map[string]string {
		return map[string]string{"tenants/loud/entities/all.json": manyEntities(5000), "tenants/loud/many.cedar": manyPolicies(20)}
	}, attack: func(a *attack) {
		search := a.raw("POST", "/tenants/loud/access/v1/search/resource", a.loud, loudSearch)
		a.crowd(func(int) []byte { return search })
	}},
}

// dear are requests of most nuisances, smaller. Each is answered 200.
func (a *attack) dear() [][]byte {
	secret := strings.Repeat("s", 64)
	return [][]byte{
		a.raw("POST", "/tenants/loud/access/v1/evaluation", a.loud, loudQuestion("")),
		a.batchOf(100, loudQuestion(`,"context":{"note":"`+strings.Repeat("x", 17<<10)+`"}`), "{}"),
		a.batchOf(100, loudQuestion(`,"context":{"token":"`+secret+`","note":"`+strings.Repeat(secret[1:]+"-", 1000)+`"}`), "{}"),
		a.batchOf(100, loudQuestion(`,"context":{"level":1}`), "{}", "X-Explain: true"),
		a.raw("POST", "/tenants/loud/access/v1/search/resource", a.loud, loudSearch),
		a.raw("GET", "/v1/approvals?limit=200", a.loud, ""),
		a.raw("GET", "/v1/log/export", a.loud, ""),
		a.raw("GET", "/v1/log/report", a.loud, ""),
		a.raw("GET", "/v1/log/sample?seed=lottery&n=100", a.loud, ""),
		a.raw("GET", "/v1/decisions?tenant=loud&decision=allow&order=oldest", a.loud, ""),
	}
}

const loudSearch = `{"subject":{"type":"agent","id":"bot"},"action":{"name":"read"},"resource":{"type":"doc"},"context":{"level":1}}`

// pointlessPolicy is another each time, and permits nothing.
func pointlessPolicy(n int) string {
	return fmt.Sprintf("@id(\"loud-more\") permit (principal, action == Action::\"read\", resource) when { context has never && context.never == %d };\n", n)
}

// loudQuestion is one that the nuisance's own policies deny.
func loudQuestion(more string) string {
	return `{"subject":{"type":"agent","id":"bot"},"action":{"name":"read"},"resource":{"type":"doc","id":"d"}` + more + `}`
}

func loudAsk(n int) string {
	return fmt.Sprintf(`{"tenant_id":"loud","actor":{"actor_type":"agent","actor_id":"bot-%d"},"action":"ask","resource":{"type":"doc","id":"d"},"context":{}}`, n)
}

// batch is one of a thousand items that are all the same.
func (a *attack) batch(defaults, item string, headers ...string) []byte {
	return a.batchOf(1000, defaults, item, headers...)
}

func (a *attack) batchOf(n int, defaults, item string, headers ...string) []byte {
	body := strings.TrimSuffix(defaults, "}") + `,"evaluations":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `]}`
	return a.raw("POST", "/tenants/loud/access/v1/evaluations", a.loud, body, headers...)
}

// manyPolicies can all match, and say why not.
func manyPolicies(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "@id(\"loud-%d\") permit (principal, action == Action::\"read\", resource) when { context has level && context.level == %d };\n", i, i+2)
	}
	return text.String()
}

func manyEntities(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"uid":{"type":"doc","id":"doc-%d"},"attrs":{"level":%d},"parents":[]}`, i, i%7))
	}
	return "[" + strings.Join(all, ",\n") + "]\n"
}

// dearEntities are about as much as a tenant may bring, with as many in each set that collide
// as anybody takes for chance. Were they more, the load would be refused, and with it the
// root's edits, until somebody moves the tenant's directory out.
func dearEntities(n int) string {
	var all []string
	for i := range 20 {
		var elements []string
		for e := range 4096 {
			if e < 120 {
				elements = append(elements, collidingText(e))
			} else {
				elements = append(elements, strconv.Itoa(e*1_000_003))
			}
		}
		all = append(all, fmt.Sprintf(`{"uid":{"type":"doc","id":"doc-%d"},"attrs":{"edit":%d,"set":[%s]},"parents":[]}`, i, n, strings.Join(elements, ",")))
	}
	for i := range 5000 {
		all = append(all, fmt.Sprintf(`{"uid":{"type":"doc","id":"small-%d"},"attrs":{"edit":%d},"parents":[{"type":"doc","id":"doc-%d"},{"type":"doc","id":"small-%d"}]}`, i, n, i%20, (i+5000-1)/2%5000))
	}
	return "[" + strings.Join(all, ",\n") + "]\n"
}

// identitiesGraph names each of ten as each of them, and so in a hundred groups, which is
// about as far as a look may go.
func identitiesGraph(n int) string {
	const people, each = 1000, 10 // of whom that many are one
	var all []string
	for i := range people {
		var others []string
		for k := range each {
			others = append(others, fmt.Sprintf(`{"__entity":{"type":"agent","id":"bot-%d"}}`, i/each*each+k))
		}
		all = append(all, fmt.Sprintf(`{"uid":{"type":"agent","id":"bot-%d"},"attrs":{"edit":%d,"identities":[%s]},"parents":[]}`, i, n, strings.Join(others, ",")))
	}
	return "[" + strings.Join(all, ",\n") + "]\n"
}

// edits writes another text into a tenant's file each time, in place.
func (a *attack) edits(every time.Duration, name string, text func(int) string) {
	a.rename(name, text(0)) // there may be no such directory
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
		if err := os.WriteFile(a.path("policies/"+name), []byte(text(n)), 0o600); err != nil {
			a.wrong("%v", err)
			return
		}
		a.count("edit")
	}
}

// crowd asks the same on each connection again and again.
func (a *attack) crowd(request func(n int) []byte) {
	a.connections(func(n int, conn *net.TCPConn) {
		text := request(n)
		a.loop(conn, func() []byte { return text })
	})
}

// connections does something on each of 64 connections, and on another when one ends.
func (a *attack) connections(do func(n int, conn *net.TCPConn)) { a.many(neighbourConnections, do) }

func (a *attack) many(connections int, do func(n int, conn *net.TCPConn)) {
	var all sync.WaitGroup
	for n := range connections {
		all.Go(func() {
			for a.ctx.Err() == nil {
				conn, err := a.dial()
				if err != nil {
					a.count("not connected")
					continue
				}
				closing := context.AfterFunc(a.ctx, func() { _ = conn.Close() })
				do(n, conn)
				closing()
				_ = conn.Close()
			}
		})
	}
	all.Wait()
}

func (a *attack) dial() (*net.TCPConn, error) {
	conn, err := (&net.Dialer{}).DialContext(a.ctx, "tcp", a.addr)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// loop asks and reads answers until the connection ends.
func (a *attack) loop(conn *net.TCPConn, request func() []byte) {
	r := bufio.NewReaderSize(conn, 32<<10)
	for a.ctx.Err() == nil {
		_, sent := conn.Write(request())
		a.count("asked")
		if !a.answer(r, sent) {
			return
		}
	}
}

// answer reads an answer to its end, also where not all of the request was taken. It
// reports whether another may come.
func (a *attack) answer(r *bufio.Reader, sent error) (more bool) {
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		if a.ctx.Err() == nil {
			a.count("closed")
		}
		return false
	}
	found := &allows{}
	if _, err = io.Copy(found, answer.Body); err != nil && a.ctx.Err() == nil {
		a.count("broken off")
	}
	a.answered(answer, found)
	return err == nil && sent == nil && !answer.Close
}

// Whatever else a nuisance is answered, these are the words of limits.
var limited = []int{http.StatusOK, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable}

func (a *attack) answered(answer *http.Response, found *allows) {
	a.count(strconv.Itoa(answer.StatusCode))
	switch {
	case !slices.Contains(limited, answer.StatusCode) && !slices.Contains(a.may, answer.StatusCode):
		a.wrong("the nuisance is answered %d %.300s", answer.StatusCode, found.begin)
	case (answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable) && answer.Header.Get("Retry-After") == "":
		a.wrong("the nuisance is answered %d without Retry-After: %.300s", answer.StatusCode, found.begin)
	case a.denied && found.any:
		a.wrong("the nuisance is allowed what nobody permits: %.300s", found.begin)
	}
}

// allows looks for an allow in an answer that nobody keeps.
type allows struct {
	any         bool
	begin, last []byte
}

func (f *allows) Write(b []byte) (int, error) {
	if len(f.begin) < 300 {
		f.begin = append(f.begin, b[:min(len(b), 300)]...)
	}
	for _, allow := range []string{`"decision":true`, `"allow":true`, `"results":[{`} {
		f.any = f.any || bytes.Contains(b, []byte(allow)) || bytes.Contains(append(slices.Clip(f.last), b[:min(len(b), len(allow))]...), []byte(allow))
	}
	f.last = append(f.last[:0], b[max(0, len(b)-16):]...)
	return len(b), nil
}

// trickle sends the first bytes, and then one after the other, each once the server must
// have seen the one before, until it has had enough.
func (a *attack) trickle(conn *net.TCPConn, request []byte, first int) {
	_ = conn.SetNoDelay(true)
	if _, err := conn.Write(request[:first]); err != nil {
		a.ended(err)
		return
	}
	a.count("begun")
	answered := make(chan struct{})
	go func() {
		a.answer(bufio.NewReader(conn), nil)
		close(answered)
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for n := first; n < len(request); n++ {
		select {
		case <-answered:
			return
		case <-tick.C:
		}
		if _, err := conn.Write(request[n : n+1]); err != nil {
			break
		}
	}
	<-answered
}

func (a *attack) ended(err error) {
	switch {
	case a.ctx.Err() != nil:
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		a.count("closed")
	default:
		a.count(err.Error())
	}
}

// readSlowly takes a byte now and then of an answer that is longer than buffers are.
func (a *attack) readSlowly(conn *net.TCPConn, request []byte) {
	_ = conn.SetReadBuffer(4096)
	if _, err := conn.Write(request); err != nil {
		a.ended(err)
		return
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	one := make([]byte, 1)
	for {
		if _, err := conn.Read(one); err != nil {
			a.ended(err)
			return
		}
		a.count("byte taken")
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
	}
}

// fill puts records of the nuisance's own on record.
func (a *attack) fill(records int) {
	conn, err := a.dial()
	if err != nil {
		a.wrong("%v", err)
		return
	}
	defer func() { _ = conn.Close() }()
	batch, r := a.batch(loudQuestion(""), `{"context":{"note":"to have something to read"}}`), bufio.NewReader(conn)
	for n := 0; n < records; n += 1000 {
		if _, err := conn.Write(batch); err != nil || !a.answer(r, nil) {
			a.wrong("the log cannot be filled: %v", err)
			return
		}
	}
}

// asks files so many approval requests.
func (a *attack) asks(requests int) {
	who := &resident{url: "http://" + a.addr, key: a.loud, client: a.calm.client}
	for n := range requests {
		if status, text, err := who.send(a.ctx, http.MethodPost, "/v1/authorize", loudAsk(n)); err != nil || status != http.StatusOK {
			a.wrong("an approval is not filed: %d %.300s %v", status, text, err)
			return
		}
	}
}

// asksBeside is another PEP of the nuisance's tenant, whose requests people must hear of.
var asksBeside = chore{"another PEP's approval request", func(a *attack, n int) (int, time.Duration, error) {
	start := time.Now()
	other := &resident{url: "http://" + a.addr, key: a.second, client: a.calm.client}
	status, text, err := other.send(a.t.Context(), http.MethodPost, "/v1/authorize", loudAsk(-1-n))
	if err == nil && !strings.Contains(text, `"status":"pending"`) {
		err = fmt.Errorf("nobody is asked: %.300s", text)
	}
	return status, time.Since(start), err
}}
