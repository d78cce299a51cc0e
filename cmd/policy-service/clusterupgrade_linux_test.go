package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/inside/approval"
	"policy-service/pdp/pdptest/inside/version"
	"policy-service/pdp/pdptest/night"
)

// otherVersion is a program that is built of this tree, with one change: in a file, which has it once.
func otherVersion(t *testing.T, name, was, is string) (program string) {
	t.Helper()
	dir := t.TempDir()
	from, err := filepath.Abs(filepath.Join(root, name))
	must(t, err)
	text, err := os.ReadFile(from)
	must(t, err)
	if strings.Count(string(text), was) != 1 {
		t.Fatalf("%s does not have %q once", name, was)
	}
	to, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(to, []byte(strings.Replace(string(text), was, is, 1)), 0o600))
	must(t, os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace":{%q:%q}}`, from, to), 0o600))
	must(t, build(dir, "-overlay '"+overlay+"'"))
	return filepath.Join(dir, "policy-service")
}

// life is what a client does all the time: it asks for something without state, files a request, has it approved, and uses it from
// two sides at once. Each is asked at one replica, and at the next one if that is away or answers 503.
func (s *troubled) life(n int) error {
	answered := func(at int, who, path, body string) (status int, text string, again bool) {
		for late := time.Now().Add(patience); ; at++ {
			status, text = s.ask(s.replicas[at%3], who, "POST", path, body)
			if status != 0 && status != http.StatusServiceUnavailable || time.Now().After(late) {
				return status, text, again
			}
			again = true
		}
	}
	if status, text, _ := answered(n, "pep", "/access/v1/evaluation", readFree); status != http.StatusOK || !strings.Contains(text, `"decision":true`) {
		return fmt.Errorf("a question without state: %d %s", status, text)
	}
	name := fmt.Sprint("life ", n)
	status, text, _ := answered(n, "pep", "/v1/authorize", clusterQuestion("once", name, "filed", ""))
	var filed struct {
		Approval struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		} `json:"approval"`
	}
	if status != http.StatusOK || json.Unmarshal([]byte(text), &filed) != nil || filed.Approval.Status != "pending" {
		return fmt.Errorf("a request: %d %s", status, text)
	}
	one := s.kept(item{id: filed.Approval.ID, name: name, uses: 1})
	// What was answered 503, or not at all, may have been done.
	status, text, again := answered(n+1, "mia", "/v1/approvals/"+one.id+"/decision", `{"decision":"approve","reason":"fine"}`)
	if status != http.StatusOK && !(again && status == http.StatusConflict) {
		return fmt.Errorf("a vote: %d %s", status, text)
	}
	var both sync.WaitGroup
	got, lost := make(chan bool, 2), make(chan bool, 2)
	for side := range 2 {
		both.Go(func() {
			again := false
			for late, at := time.Now().Add(patience), n+2+side; ; at++ {
				if o := s.spend(s.replicas[at%3], one); o.known || time.Now().After(late) {
					got <- o.got
					lost <- again || !o.known
					return
				}
				again = true
			}
		})
	}
	both.Wait()
	first, second, lost1, lost2 := <-got, <-got, <-lost, <-lost
	if first && second || !first && !second && !lost1 && !lost2 {
		return fmt.Errorf("%s was to be used once; the two sides got %t and %t", name, first, second)
	}
	return nil
}

// versions is the version of each replica, as another one knows it.
func (s *troubled) versions() (all [3]string) {
	for n, r := range s.replicas {
		_, text := s.ask(s.replicas[(n+1)%3], "pep", "GET", "/readyz", "")
		var is struct {
			Cluster struct {
				Members []struct {
					Address string `json:"address"`
					Version string `json:"version"`
				} `json:"members"`
			} `json:"cluster"`
		}
		if json.Unmarshal([]byte(text), &is) != nil {
			return all
		}
		for _, m := range is.Cluster.Members {
			if m.Address == r.address() {
				all[n] = m.Version
			}
		}
	}
	return all
}

// TestClusterUpgrade replaces the program of one replica after the other by another version, and one of them back and forth. All
// is answered meanwhile, by another replica at most. What was filed and granted by the one version is used by the other, and no
// more often than it may be. A program of another format is refused, and the others go on.
func TestClusterUpgrade(t *testing.T) {
	night.Whole(t, "it builds two other versions of the program")
	t.Parallel()
	const old, next = "policy-service", "v9.8.7-dev"
	changed := otherVersion(t, "pdp/internal/version/version.go", `const Next = "`+version.Next+`"`, `const Next = "v9.8.7"`)
	foreign := otherVersion(t, "pdp/internal/approval/format.go", fmt.Sprint("FormatVersion = ", approval.FormatVersion), fmt.Sprint("FormatVersion = ", approval.FormatVersion+1))
	s := openTroubled(t, 1)
	before := []item{s.approved("one of before", 1), s.approved("some of before", someUses), s.granted("a capability of before", someUses)}
	probe, first := s.granted("probe", 0), s.versions()

	stop, done := make(chan struct{}), make(chan int)
	go func() {
		each := time.NewTicker(200 * time.Millisecond)
		defer each.Stop()
		for lives := 0; ; lives++ {
			select {
			case <-stop:
				done <- lives
				return
			case <-each.C:
			}
			if err := s.life(lives); err != nil {
				t.Error(err)
			}
		}
	}()
	lives := sync.OnceValue(func() int { close(stop); return <-done })
	t.Cleanup(func() { lives() })
	replace := func(r *clusterReplica, by string) {
		t.Helper()
		was := r.process
		r.end(syscall.SIGTERM)
		if !was.ProcessState.Success() {
			t.Errorf("replica %d ends: %v: %s", r.n, was.ProcessState, r.said.String())
		}
		r.program = by
		s.start(r)
		s.ready()
		s.fresh(probe)
	}
	use := func(r *clusterReplica, i item) {
		t.Helper()
		etcdtest.Eventually(t, "a use of "+i.name, func() bool { return s.spend(r, i).got })
	}
	for n, r := range s.replicas {
		replace(r, changed)
		if n == 0 { // back, while there are others of the old version, and on again
			use(r, before[1])
			replace(r, old)
			use(r, before[2])
			replace(r, changed)
		}
		use(r, before[1])
		use(s.replicas[(n+1)%3], before[2])
	}
	etcdtest.Eventually(t, "all are of the other version", func() bool { return s.versions() == [3]string{next, next, next} })
	if first[0] == next {
		t.Errorf("they were %s before", first)
	}
	use(s.replicas[0], before[0])

	last := s.replicas[2]
	last.end(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refused, err := exec.CommandContext(ctx, foreign, "serve", "--config", last.config).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), fmt.Sprintf("its format is %d, and this version reads %d alone", approval.FormatVersion, approval.FormatVersion+1)) {
		t.Errorf("a program of another format: %v, %s", err, refused)
	}
	s.start(last)
	s.ready()
	s.fresh(probe)
	t.Logf("%d lives", lives())
	for _, i := range before {
		etcdtest.Eventually(t, "it is used up: "+i.name, func() bool { s.spend(last, i); return s.isUsedUp(s.replicas[0], i) })
	}
	s.check(s.read())
}
