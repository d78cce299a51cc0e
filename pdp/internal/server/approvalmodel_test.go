package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/night"
)

// TestNoYesThatTheLogDoesNotCarry has somebody who reads no key change the data directory
// between any two starts: older copies, edited files, other people's files, and has somebody
// set the clock at any time. The server
// refuses to start, or it says yes only where the log, as it then stands, carries it, and
// where people said so to this test.
//
// Of approvals.db and the log older together, be it at one start or at two, nothing in the
// directory can tell. What a yes is held against is the log as it then stands, and a checkpoint
// that was kept elsewhere finds it: see restoredDirectory. A backup that is restored brings
// nothing back, unless the operator says wrongly that nothing came after it.
// No record that somebody else wrote is in the log unless verify names it.
//
// It takes seconds: each round starts a server nine times, and a hundred requests are made of it.
func TestNoYesThatTheLogDoesNotCarry(t *testing.T) {
	rounds := night.Cases(20)
	first := uint64(0)
	if more, err := strconv.Atoi(os.Getenv("APPROVAL_MODEL_ROUNDS")); err == nil {
		rounds = more
	}
	if seed, err := strconv.ParseUint(os.Getenv("APPROVAL_MODEL_SEED"), 10, 64); err == nil {
		first, rounds = seed, 1
	}
	stranger := strangersFiles(t)
	total := tally{}
	var mu sync.Mutex                   // guards total
	t.Run("seeds", func(t *testing.T) { // returns when all have run
		for seed := first; seed < first+uint64(rounds); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { // APPROVAL_MODEL_SEED makes it again
				t.Parallel()
				m := newHostileModel(t, seed, stranger)
				for range 8 {
					m.run()
					m.attackAndStart()
				}
				m.run()
				m.stop()
				mu.Lock()
				defer mu.Unlock()
				total.add(m.tally)
			})
		}
	})
	t.Logf("%+v", total)
	r := total.restores
	if rounds > 1 && (total.yes == 0 || total.yesAfterAttack == 0 || total.refused == 0 || total.started == 0 || total.rounds == 0 || total.set == 0) ||
		rounds >= 20 && (r.directories == 0 || r.begun == 0 || r.wentOn == 0 || r.refused == 0) {
		t.Errorf("the test tries too little: %+v", total)
	}
}

// tally is what a round came to.
type tally struct {
	yes, yesAfterAttack, started, refused, rounds, set int
	restores                                           restores
}

func (a *tally) add(b tally) {
	a.restores.add(b.restores)
	a.yes, a.yesAfterAttack = a.yes+b.yes, a.yesAfterAttack+b.yesAfterAttack
	a.started, a.refused, a.rounds, a.set = a.started+b.started, a.refused+b.refused, a.rounds+b.rounds, a.set+b.set
}

// files are those of a data directory, by their path in it.
type files map[string][]byte

const (
	approvalsDB = approval.FileName
	nobodys     = 9 // the argument of the question that nobody ever approves
)

// hostileModel is one round: a server, what people said to it, and who attacks it.
type hostileModel struct {
	*counter
	rng      *rand.Rand
	seed     uint64
	stranger files
	tally

	holder  map[string]string // person → the name of their key in force
	request int
	ids     []string            // of approval requests, newest last
	asked   map[string]question // what each is about
	said    map[string]map[string]bool
	taken   map[string]string // what was revoked, denied or cancelled by somebody
	yeses   []yesSaid
	spent   map[string]int
	uses    []useSaid // of which the newest are gone on from
	went    map[evaluation.Continuation]bool
	cluster *cluster.Config // of a replica, nil for a server that has its own state

	next     []question // to be asked first, because they were what was attacked
	past     []files    // of moments between two starts
	midway   [][]byte   // copies of approvals.db while a use was reserved
	kept     kept       // beside the directory
	attacks  []string
	attacked bool
	// cut says that the log was put back: what it lost it cannot carry, and is judged by
	// its records as they then are.
	cut bool

	forged    map[string]bool // ids of records that somebody else wrote
	forgeries []string        // names of keys that somebody else made
}

type question struct {
	tool string
	n    int
}

// useSaid is a use that a program was told of, and the last round of it that it was told of.
type useSaid struct {
	question
	decision string
	rounds   int
}

type yesSaid struct {
	question
	continues evaluation.Continuation
	id        string // X-Request-ID
	now       time.Time
	revoked   map[string]bool // names of keys
	taken     map[string]string
	attacks   []string
}

func newHostileModel(t *testing.T, seed uint64, stranger files) *hostileModel {
	m := makeHostileModel(t, seed, stranger)
	m.grant("pep", []string{"*"}, "", auth.Decide)
	for _, person := range []string{"mia", "mia.admin", "noah", "zoe", "eve"} {
		m.newKey(person)
	}
	must(t, m.start())
	return m
}

// makeHostileModel makes a round without keys, whose server does not run.
func makeHostileModel(t *testing.T, seed uint64, stranger files) *hostileModel {
	data := t.TempDir()
	if dir, err := os.MkdirTemp("/dev/shm", "approvals-"); err == nil { // quicker, where there is one
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		data = dir
	}
	return &hostileModel{
		counter: &counter{t: t, data: data, key: map[string]string{}, Clock: clock.At(pdptest.Now)}, seed: seed, rng: rand.New(rand.NewPCG(seed, 5)), stranger: stranger,
		holder: map[string]string{}, asked: map[string]question{}, said: map[string]map[string]bool{}, taken: map[string]string{}, spent: map[string]int{},
		went: map[evaluation.Continuation]bool{}, forged: map[string]bool{},
	}
}

func (m *hostileModel) newKey(person string) {
	name := fmt.Sprintf("%s-%d", person, len(m.key))
	m.grant(name, []string{"*"}, `user::"`+person+`"`, auth.Approve)
	m.holder[person] = name
}

// start is of a server that may refuse to.
func (m *hostileModel) start() error {
	config := server.Config{Program: server.Program{Source: pdptest.Bundle(roundFiles()), PDP: pdp.Options{Now: m.Now}}, Listen: "127.0.0.1:0", Data: m.data}
	config.DecisionLog.Retain.Age = 240 * time.Hour // and so more than one segment
	config.Approvals.NewPerMinutePerSubject = 1_000_000
	config.Cluster = m.cluster
	s, err := server.New(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		return err
	}
	m.Server = &pdptest.Server{Server: s, URL: "http://" + s.Addr(), Client: &http.Client{Transport: &http.Transport{}}}
	m.t.Cleanup(func() { m.halt(s) })
	return nil
}

func (m *hostileModel) halt(s *server.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = s.Stop(ctx) // what was damaged may not end in good order
}

// stop ends the server, orderly or as a crash does, and judges what it said.
func (m *hostileModel) stop() {
	crashed := m.chance(3)
	var left files
	if crashed {
		left = photographed(m.t, m.data)
	}
	m.Client.CloseIdleConnections()
	m.halt(m.Server.Server)
	m.judge()
	if crashed {
		m.write(left)
	}
	if m.chance(4) {
		m.setClock()
	}
	m.past = append(m.past, m.read())
	m.keep()
}

func (m *hostileModel) chance(of int) bool { return m.rng.IntN(of) == 0 }

func oneOf[T any](m *hostileModel, of []T) T { return of[m.rng.IntN(len(of))] }

// run does random things.
func (m *hostileModel) run() {
	for _, q := range m.next {
		m.use(q)
	}
	m.next = nil
	for range 6 + m.rng.IntN(14) {
		q := question{oneOf(m, []string{"push", "push", "stop", "list", "list"}), m.rng.IntN(2)}
		if m.chance(10) {
			q.n = nobodys
		}
		switch m.rng.IntN(20) {
		case 0:
			m.ask(q)
		case 1:
			m.ask(q)
			m.forgery()
		case 2, 3, 4, 5:
			m.vote()
		case 6, 7, 8, 9, 10:
			m.use(q)
		case 11:
			m.take()
		case 12:
			if person := oneOf(m, []string{"mia", "noah", "zoe"}); m.cluster == nil && m.chance(2) {
				m.revokeKey(person)
			}
		case 13:
			m.Advance(time.Duration(m.rng.IntN(100)) * time.Second)
			if m.chance(20) {
				m.Advance(20 * time.Hour)
			}
			if m.chance(2) {
				m.setClock()
			}
		case 14:
			m.approve(q)
		case 15:
			if m.chance(4) {
				_ = m.Reload(m.t.Context())
			}
		case 16, 17, 18, 19:
			m.goOn()
		}
	}
}

// setClock sets the clock, ahead or back, as a time server does that is wrong, or is right at last.
func (m *hostileModel) setClock() {
	d := oneOf(m, []time.Duration{time.Second, 72 * time.Second, 3 * time.Minute, 2 * time.Hour})
	m.Set([]time.Duration{d, -d}[m.rng.IntN(2)])
	m.set++
}

func (m *hostileModel) revokeKey(person string) {
	apiKeys, err := keys.Open(m.data)
	if err != nil {
		return
	}
	old := m.holder[person]
	_ = apiKeys.Revoke(old)
	m.newKey(person)
	m.until(old, func(status int) bool { return status == http.StatusUnauthorized })
}

// ask has a question filed, and returns the id.
func (m *hostileModel) ask(q question) string {
	return m.sends(q, fmt.Sprintf(`"arguments":{"n":%d}`, q.n), false)
}

// sends asks, natively or as AuthZEN does, and remembers a yes.
func (m *hostileModel) sends(q question, context string, authzen bool) string {
	return m.sendsRound(q, evaluation.Continuation{}, context, authzen)
}

func (m *hostileModel) sendsRound(q question, round evaluation.Continuation, context string, authzen bool) string {
	m.request++
	id := fmt.Sprintf("request-%d-%d", m.seed, m.request)
	yes := yesSaid{q, round, id, m.Now(), m.revoked(), maps.Clone(m.taken), slices.Clone(m.attacks)}
	if authzen {
		_, text, decision := m.sent("pep", "POST", evaluationPath, fmt.Sprintf(`{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q},"context":{%s}}`, q.tool, context), "X-Request-ID", id)
		if text == `{"decision":true}` {
			m.told(yes, decision)
		}
		return ""
	}
	status, text, decision := m.sent("pep", "POST", "/v1/authorize", tool(q.tool, context), "X-Request-ID", id)
	var got told
	if status != http.StatusOK || json.Unmarshal([]byte(text), &got) != nil {
		return ""
	}
	if got.may() {
		m.told(yes, decision)
	}
	if got.Approval == nil || got.Approval.ID == "" {
		return ""
	}
	if _, known := m.asked[got.Approval.ID]; !known {
		m.asked[got.Approval.ID], m.ids = q, append(m.ids, got.Approval.ID)
	}
	return got.Approval.ID
}

// told remembers a yes, and what can be gone on from.
func (m *hostileModel) told(y yesSaid, decision string) {
	m.yeses = append(m.yeses, y)
	if y.continues.Round == 0 {
		m.uses = append(m.uses, useSaid{y.question, decision, 0})
		return
	}
	for n := range m.uses {
		if m.uses[n].decision == y.continues.Decision {
			m.uses[n].rounds = y.continues.Round
		}
	}
}

// goOn asks for a round of a use that was told of: the next one as a rule, or one of before.
func (m *hostileModel) goOn() {
	if len(m.uses) == 0 {
		return
	}
	use := m.uses[len(m.uses)-1-m.rng.IntN(min(3, len(m.uses)))]
	round := evaluation.Continuation{Decision: use.decision, Round: min(evaluation.MostRounds, use.rounds+1)}
	if m.chance(3) && use.rounds > 0 {
		round.Round = 1 + m.rng.IntN(use.rounds)
	}
	id := m.anID()
	for _, one := range m.ids { // the newest of the question, or any
		if m.asked[one] == use.question && !m.chance(4) {
			id = one
		}
	}
	if id == "" {
		return
	}
	done := func() {}
	if m.cluster == nil && m.chance(2) {
		done = m.watch()
	}
	defer done()
	m.sendsRound(use.question, round, fmt.Sprintf(
		`"arguments":{"n":%d},"approval":{"id":%q,"continues":{"decision":%q,"round":%d}}`, use.n, id, round.Decision, round.Round), m.chance(2))
}

// revoked are the names of the keys that are not in force.
func (m *hostileModel) revoked() map[string]bool {
	apiKeys, err := keys.Open(m.data)
	out := map[string]bool{}
	if err != nil || m.cluster != nil { // in etcd none is revoked
		return out
	}
	there := map[string]bool{}
	for _, k := range apiKeys.List() {
		there[k.Name], out[k.Name] = true, !k.Revoked.IsZero()
	}
	for name := range m.key {
		out[name] = out[name] || !there[name]
	}
	return out
}

// use brings an approval, by the question alone or by its id, while somebody may be
// copying the file.
func (m *hostileModel) use(q question) {
	context := fmt.Sprintf(`"arguments":{"n":%d}`, q.n)
	var mine []string
	for _, id := range m.ids {
		if m.asked[id] == q {
			mine = append(mine, id)
		}
	}
	done := func() {}
	if m.cluster == nil && m.chance(2) {
		done = m.watch()
	}
	defer done()
	switch {
	case len(mine) == 0 || m.chance(2):
		m.sends(q, context+`,"justification":"approved"`, false)
	case m.chance(2):
		m.sends(q, context+`,"approval_id":"`+mine[len(mine)-1-m.rng.IntN(min(2, len(mine)))]+`"`, false)
	default:
		m.sends(q, context+`,"approval":{"id":"`+mine[len(mine)-1]+`"}`, true)
	}
}

// watch copies approvals.db while a use is reserved, as who reads along would.
func (m *hostileModel) watch() (done func()) {
	end, over := make(chan struct{}), make(chan struct{})
	var got [][]byte
	go func() {
		defer close(over)
		var last []byte
		for {
			select {
			case <-end:
				return
			default:
			}
			if now, err := os.ReadFile(filepath.Join(m.data, approvalsDB)); err == nil && !bytes.Equal(now, last) {
				got, last = append(got, now), now
			}
		}
	}()
	return func() {
		close(end)
		<-over
		for _, one := range got {
			if m.reserves(one) {
				m.midway = append(m.midway, one)
			}
		}
	}
}

// reserves reports whether a copy has a use that is in doubt.
func (m *hostileModel) reserves(copied []byte) (is bool) {
	name := filepath.Join(m.t.TempDir(), approvalsDB)
	must(m.t, os.WriteFile(name, copied, 0o600))
	_ = editFile(name, func(tx *bbolt.Tx) error {
		key, _ := tx.Bucket([]byte("values")).Cursor().Seek([]byte("r/"))
		is = bytes.HasPrefix(key, []byte("r/"))
		return nil
	})
	return is
}

func (m *hostileModel) approve(q question) {
	if id := m.ask(q); id != "" && q.n != nobodys {
		for _, person := range []string{"noah", "zoe"} {
			m.votes(person, id, "approve", "")
		}
	}
}

func (m *hostileModel) anID() string {
	if len(m.ids) == 0 {
		return ""
	}
	return m.ids[len(m.ids)-1-m.rng.IntN(min(6, len(m.ids)))]
}

func (m *hostileModel) vote() {
	id := m.anID()
	if id == "" || m.asked[id].n == nobodys {
		return
	}
	person := oneOf(m, []string{"mia", "mia.admin", "noah", "zoe", "eve"})
	switch m.rng.IntN(10) {
	case 0:
		m.votes(person, id, "deny", "")
	case 1:
		m.votes(person, id, "delegate", `,"to":"user::\"eve\""`)
	default:
		m.votes(person, id, "approve", "")
	}
}

func (m *hostileModel) votes(person, id, what, more string) {
	status, _ := m.do(m.holder[person], "POST", "/v1/approvals/"+id+"/decision", `{"decision":"`+what+`","reason":"as it is"`+more+`}`)
	if what == "approve" && status != http.StatusForbidden && status != http.StatusUnauthorized && status != http.StatusNotFound { // after a 5xx it may be on record
		if m.said[id] == nil {
			m.said[id] = map[string]bool{}
		}
		m.said[id][person] = true
	}
	if what == "deny" && status == http.StatusOK {
		m.taken[id] = "denied"
	}
}

func (m *hostileModel) take() {
	id := m.anID()
	if id == "" {
		return
	}
	if m.chance(3) {
		if status, _ := m.do("pep", "POST", "/v1/approvals/"+id+"/cancel", ""); status == http.StatusOK {
			m.taken[id] = "cancelled"
		}
		return
	}
	if status, _ := m.do(m.holder["zoe"], "POST", "/v1/approvals/"+id+"/revoke", `{"reason":"no"}`); status == http.StatusOK {
		m.taken[id] = "revoked"
	}
}

// The oracle.

// logged is a line of the log, as far as it is judged by.
type logged struct {
	ID         string           `json:"id"`
	Kind       string           `json:"kind"`
	Event      string           `json:"event"`
	Caller     string           `json:"caller"`
	RequestID  string           `json:"request_id"`
	Now        time.Time        `json:"now"`
	Decision   bool             `json:"decision"`
	Discharged []evaluation.Met `json:"discharged"`
	Request    struct {
		Resource struct {
			ID string `json:"id"`
		} `json:"resource"`
		Context struct {
			Arguments struct {
				N int `json:"n"`
			} `json:"arguments"`
		} `json:"context"`
	} `json:"request"`
	Details struct {
		Approval  string    `json:"approval"`
		By        string    `json:"by"`
		From      string    `json:"from"`
		To        string    `json:"to"`
		ExpiresAt time.Time `json:"expires_at"`
		keys.Recorded
		Keys []keys.Recorded `json:"keys"`
	} `json:"details"`
}

func (l *logged) question() question {
	return question{l.Request.Resource.ID, l.Request.Context.Arguments.N}
}

// judge holds every yes since the last start against the log.
func (m *hostileModel) judge() {
	var lines []logged
	for _, line := range readEvilLog(m.data).ordered() {
		var l logged
		if json.Unmarshal(line, &l) == nil {
			lines = append(lines, l)
		}
	}
	report := verify.Directory(m.data, verify.Options{})
	m.unnamed(&report)
	for _, y := range m.yeses {
		m.tally.yes++
		if m.attacked {
			m.tally.yesAfterAttack++
		}
		if why := m.refuted(y, lines); why != "" {
			m.t.Errorf("seed %d: a yes to %v of %s: %s\nlog verify: %s %v\nattacks: %s", m.seed, y.question, y.id, why, report.Code, report.Problem, strings.Join(y.attacks, "; "))
			for _, l := range lines {
				if l.Kind == "approval" && strings.Contains(why, l.Details.Approval) || len(l.Discharged) > 0 && strings.Contains(why, l.Discharged[0].Approval) {
					m.t.Logf("%s %s %v %s %s %s %v", l.Kind, l.Event, l.question(), l.Details.Approval, l.Details.By, l.Caller, l.Discharged)
				}
			}
		}
	}
	m.yeses = nil
}

// unnamed finds the records of somebody else that verify says nothing of.
func (m *hostileModel) unnamed(report *verify.Report) {
	if !report.Verified() {
		return
	}
	l := readEvilLog(m.data)
	for n, line := range l.lines {
		named := func(t verify.Tail) bool { return t.From <= int64(n) && int64(n) <= t.To }
		if m.forged[field(line, "id")] && !slices.ContainsFunc(report.UnsignedTails, named) && int64(n) < report.Size {
			m.t.Errorf("seed %d: somebody else wrote record %d, and verify does not say so: %s\nattacks: %s", m.seed, n, line, strings.Join(m.attacks, "; "))
		}
	}
	if !m.attacked && (len(report.UnsignedTails) > 0 || report.OutsideStart != nil || report.UnknownBundle != nil) {
		m.t.Errorf("seed %d: nobody touched the log, and verify says %q", m.seed, report.NotExcluded)
	}
}

// forgery votes with a key whose secret is not its holder's. Of a key that the log has lost nothing says whose it was.
func (m *hostileModel) forgery() {
	if id := m.anID(); id != "" && len(m.forgeries) > 0 && !m.cut {
		name := oneOf(m, m.forgeries)
		if status, _ := m.do(name, "POST", "/v1/approvals/"+id+"/decision", `{"decision":"approve","reason":"forged"}`); status != http.StatusUnauthorized {
			m.t.Errorf("seed %d: a forged key votes: %d\nattacks: %s", m.seed, status, strings.Join(m.attacks, "; "))
		}
	}
}

// refuted says why a yes should not have been, "" if it is right.
func (m *hostileModel) refuted(y yesSaid, lines []logged) string {
	at := slices.IndexFunc(lines, func(l logged) bool { return l.RequestID == y.id && l.Kind == format.KindDecision })
	if at < 0 || !lines[at].Decision || len(lines[at].Discharged) != 1 {
		return "no record says that an approval was used"
	}
	id := lines[at].Discharged[0].Approval
	if lines[at].Discharged[0].Continues != y.continues {
		return fmt.Sprintf("the record says that it is round %v", lines[at].Discharged[0].Continues)
	}
	quorum, uses := map[string]int{"stop": 2}[y.tool], map[string]int{"list": 3}[y.tool]
	quorum, uses = max(1, quorum), max(1, uses)
	switch {
	case m.asked[id] != y.question || y.n == nobodys:
		return "the approval is of " + fmt.Sprint(m.asked[id])
	case len(m.people(id)) < quorum:
		return fmt.Sprintf("to this test said so: %v", m.people(id))
	case !m.cut && y.taken[id] != "":
		return "it was " + y.taken[id]
	case y.continues.Round > 0 && !m.cut && m.went[y.continues]:
		return fmt.Sprintf("%v was answered before", y.continues)
	case y.continues.Round == 0 && !m.cut && m.spent[id] >= uses:
		return "it was used before"
	}
	if y.continues.Round == 0 {
		m.spent[id]++
	} else {
		m.went[y.continues] = true
		m.tally.rounds++
	}
	return carried(lines[:at], id, y, quorum, uses, m.said[id])
}

// people are those who approved one; two names may be of one.
func (m *hostileModel) people(id string) map[string]bool {
	out := map[string]bool{}
	for name := range m.said[id] {
		out[strings.TrimSuffix(name, ".admin")] = true
	}
	return out
}

// carried says why records do not carry a yes.
func carried(lines []logged, id string, y yesSaid, quorum, uses int, said map[string]bool) string {
	var filed, approved bool
	var over string
	var expires time.Time
	votes, seen, used := map[string]string{}, map[string]bool{}, map[string]bool{}
	var use logged
	went := map[evaluation.Continuation]bool{}
	named, delegates := map[string]string{}, map[string]string{}
	revoked := map[string]bool{} // by what is on record
	for _, l := range lines {
		for _, key := range append(l.Details.Keys, l.Details.Recorded) {
			if strings.HasPrefix(l.Event, "api_key") && !key.Revoked.IsZero() {
				revoked[key.Name] = true
			}
		}
		if l.Kind == format.KindDecision && l.Decision && len(l.Discharged) == 1 && l.Discharged[0].Approval == id {
			if round := l.Discharged[0].Continues; round.Round > 0 {
				went[round] = true
			} else if used[l.ID] = true; l.ID == y.continues.Decision {
				use = l
			}
		}
		if l.Kind != "approval" || l.Details.Approval != id || seen[l.ID] {
			continue
		}
		seen[l.ID] = true
		switch l.Event {
		case approval.StepFiled:
			filed = filed || l.question() == y.question
		case approval.StepApprove:
			filed = filed || l.question() == y.question // each vote says what it is about, also where the log was cut before
			votes[l.Details.By] = l.Caller
			if l.Details.From != "" {
				named[l.Details.By] = l.Details.From
			}
		case approval.StepDelegate:
			delegates[l.Details.By] = l.Caller
		case approval.StepLapsed:
			delete(votes, l.Details.By)
			delete(delegates, l.Details.By)
		case approval.StepApproved:
			approved, expires = true, l.Details.ExpiresAt
		case approval.StepReopened:
			approved = false
		case approval.StepDenied, approval.StepRevoked, approval.StepCancelled, approval.StepExpired, approval.StepUsedUp:
			over = l.Event
		}
	}
	people := map[string]bool{}
	inForce := func(caller string) bool {
		name := strings.TrimPrefix(caller, "key:")
		return !y.revoked[name] && !revoked[name]
	}
	for by, caller := range votes {
		name := strings.TrimSuffix(strings.TrimPrefix(by, `user::"`), `"`)
		from := named[by]
		if said[name] && inForce(caller) && (from == "" || delegates[from] != "" && inForce(delegates[from])) {
			people[strings.TrimSuffix(name, ".admin")] = true
		}
	}
	if y.continues.Round > 0 && filed {
		inTurn := y.continues.Round == 1 || went[evaluation.Continuation{Decision: y.continues.Decision, Round: y.continues.Round - 1}]
		switch {
		case use.ID == "" || !inTurn || went[y.continues]:
			return fmt.Sprintf("by the log %v of approval %s does not come next: %v", y.continues, id, went)
		case over != "" && over != approval.StepUsedUp && over != approval.StepExpired:
			return "approval " + id + " is " + over + " by the log"
		case !approved || len(people) < quorum:
			return fmt.Sprintf("by the log approval %s is not approved: %v, by people %v, while %v are revoked", id, votes, said, y.revoked)
		case !y.now.Before(use.Now.Add(15 * time.Minute)):
			return "it is too late to go on from " + use.ID
		}
		return ""
	}
	switch {
	case !filed:
		return "no record of approval " + id + " has this question"
	case over != "":
		return "approval " + id + " is " + over + " by the log"
	case !approved || len(people) < quorum:
		return fmt.Sprintf("by the log approval %s is not approved: %v %v, by people %v, while %v are revoked", id, approved, votes, said, y.revoked)
	case !y.now.Before(expires):
		return "approval " + id + " had expired"
	case len(used) >= uses:
		return fmt.Sprintf("approval %s was used %d times before", id, len(used))
	}
	return ""
}

// The files.

func (m *hostileModel) read() files {
	out, err := readFiles(m.data)
	must(m.t, err)
	return out
}

func readFiles(data string) (files, error) {
	out := files{}
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(data, path)
		content, err := os.ReadFile(path)
		out[filepath.ToSlash(name)] = content
		return err
	})
	return out, err
}

// photographed is what lies in a data directory at one moment, as a crash leaves it, while the
// server may write: what was read twice and was the same twice lay there in between. A bbolt file
// read once may be half of before a transaction, and half of after it. It is read again, too, if
// the server renamed a file meanwhile.
func photographed(t testing.TB, data string) files {
	t.Helper()
	for last := files(nil); ; {
		now, err := readFiles(data)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err == nil && last != nil && maps.EqualFunc(last, now, bytes.Equal) {
			return now
		}
		if last = now; err != nil {
			last = nil
		}
	}
}

// write makes the directory what it was.
func (m *hostileModel) write(all files) {
	must(m.t, filepath.WalkDir(m.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Remove(path)
	}))
	for name, content := range all {
		m.put(name, content)
	}
}

func (m *hostileModel) put(name string, content []byte) {
	path := filepath.Join(m.data, filepath.FromSlash(name))
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o700))
	_ = os.Remove(path)
	must(m.t, os.WriteFile(path, content, 0o600))
}

func isSegment(name string) bool {
	return strings.HasPrefix(name, "log/") && strings.HasSuffix(name, ".db")
}

// attackAndStart stops the server, lets somebody at the files, and starts it again.
func (m *hostileModel) attackAndStart() {
	m.stop()
	honest, cut, before := m.past[len(m.past)-1], m.cut, m.attacked
	if m.chance(5) {
		must(m.t, m.start())
		return
	}
	m.attacked = true
	begun := len(m.attacks)
	for range 1 + m.rng.IntN(2) {
		m.attacks = append(m.attacks, m.attack())
	}
	if err := m.start(); err != nil {
		m.refused++
		m.t.Logf("seed %d: %v: refused: %v", m.seed, m.attacks[begun:], err)
		m.write(honest)
		m.attacks, m.cut, m.attacked = m.attacks[:begun], cut, before
		if err := m.start(); err != nil {
			m.t.Fatalf("seed %d: as it was it does not start: %v", m.seed, err)
		}
		return
	}
	m.started++
	m.attacks = append(m.attacks, "start")
	m.welcomeBack()
}

// edit changes a bbolt file, whatever is in it.
func editFile(name string, do func(*bbolt.Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	// A copy may have been torn while it was made: bbolt alone would go round in such a file until the process ends.
	db, err := boltfile.Open(name, errors.New("damaged"), boltfile.ToWrite, bbolt.Options{Timeout: time.Second, NoSync: true})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.Update(do)
}

// strangersFiles are those of a server of the attacker's own, whose people approved the
// very questions.
func strangersFiles(t *testing.T) files {
	m := newHostileModel(t, 1<<40, nil)
	for n := range 2 {
		for _, name := range []string{"push", "stop", "list"} {
			m.approve(question{name, n})
		}
	}
	id := m.ask(question{"push", nobodys})
	m.votes("noah", id, "approve", "")
	m.Client.CloseIdleConnections()
	m.halt(m.Server.Server)
	all := m.read()
	return files{approvalsDB: all[approvalsDB], "approvals.key": all["approvals.key"]}
}

func sortedNames(all files) []string { return slices.Sorted(maps.Keys(all)) }
