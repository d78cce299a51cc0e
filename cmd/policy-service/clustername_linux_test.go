package main

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/inside/auth"
	state "policy-service/pdp/pdptest/inside/cluster"
	"policy-service/pdp/pdptest/inside/server"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/port"
)

// leaseOfAMember is how long etcd keeps the name of a member that says nothing.
const leaseOfAMember = 10 * time.Second

// openNamed prepares one replica of a cluster. Each test has a prefix of its own in one member of etcd.
func openNamed(t *testing.T) *troubled {
	t.Helper()
	s := &troubled{
		T: t, key: map[string]string{}, policies: t.TempDir(),
		client: &http.Client{Timeout: 2 * patience, Transport: &http.Transport{}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	must(t, os.WriteFile(filepath.Join(s.policies, "a.cedar"), []byte(clusterPolicies), 0o600))
	must(t, os.WriteFile(filepath.Join(s.policies, "obligations.yaml"), []byte(clusterObligations), 0o600))
	s.shared = server.Config{Cluster: &state.Config{}}
	s.shared.Cluster.Etcd.Prefix = "/" + rand.Text() + "/"
	for _, one := range etcdtest.One(t) {
		s.shared.Cluster.Etcd.Endpoints = append(s.shared.Cluster.Etcd.Endpoints, "http://"+one)
	}
	s.shared.Data = s.named(t.TempDir()).data
	s.grant("pep", "", auth.Decide, auth.Request, auth.Explain)
	return s
}

// named adds a replica with a data directory, and an address of its own.
func (s *troubled) named(data string) *clusterReplica {
	s.Helper()
	r := &clusterReplica{n: len(s.replicas), command: "serve", program: "policy-service", data: data, config: filepath.Join(s.TempDir(), "config.yaml"), url: "http://" + port.Free(s)}
	s.replicas = append(s.replicas, r)
	must(s.T, os.WriteFile(r.config, fmt.Appendf(nil, "policies: %s\ndata: %s\nlisten: %s\ncluster: {etcd: {prefix: %q, endpoints: [%s]}}\n",
		s.policies, data, strings.TrimPrefix(r.url, "http://"), s.shared.Cluster.Etcd.Prefix, strings.Join(s.shared.Cluster.Etcd.Endpoints, ", ")), 0o600))
	s.Cleanup(r.kill)
	return r
}

// begin starts a process, and does not wait.
func (s *troubled) begin(r *clusterReplica) {
	s.Helper()
	process := exec.Command(r.program, r.command, "--config", r.config)
	process.Stderr = &r.said
	must(s.T, process.Start())
	ended := make(chan struct{})
	r.mu.Lock()
	r.process, r.ended = process, ended
	r.mu.Unlock()
	go func() {
		_ = process.Wait()
		close(ended)
	}()
}

// runs fails the test if a process has ended.
func (s *troubled) runs(r *clusterReplica) {
	s.Helper()
	select {
	case <-r.ended:
		s.Fatalf("replica %d ended: %s", r.n, r.said.String())
	default:
	}
}

func (s *troubled) isReady(r *clusterReplica) bool {
	s.runs(r)
	ready, _, _ := s.state(r)
	return ready
}

// waitsForItsName reports whether a replica that starts says that it waits for the end of another process's lease.
func (s *troubled) waitsForItsName(r *clusterReplica) bool {
	s.runs(r)
	status, text := s.ask(r, "pep", "GET", "/readyz", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, `"waiting":"this process waits: another process has the name policy-service/`) {
		return false
	}
	if status, text := s.ask(r, "pep", "GET", "/livez", ""); status != http.StatusOK {
		s.Errorf("it lives: got %d %s", status, text)
	}
	return true
}

// A replica that was killed is back without anybody's help, once the lease of its name has ended and within 5 s of that.
func TestKilledReplicaIsBack(t *testing.T) {
	t.Parallel()
	s := openNamed(t)
	r := s.replicas[0]
	s.begin(r)
	etcdtest.Eventually(t, "it is ready", func() bool { return s.isReady(r) })
	for n := range night.Cases(20) {
		r.kill()
		killed := time.Now()
		s.begin(r)
		waited := false
		etcdtest.Eventually(t, "it is ready again", func() bool {
			waited = waited || s.waitsForItsName(r)
			return s.isReady(r)
		})
		took := time.Since(killed)
		t.Logf("%d: ready after %v", n, took)
		if !waited {
			t.Error("it did not say for what it waited")
		}
		if took > leaseOfAMember+5*time.Second && !testing.Short() { // other tests run beside a short one
			t.Errorf("it was ready after %v", took)
		}
	}
}

// A copy of a data directory is started while the first process is stopped, as a virtual machine is. There are never two members:
// the copy is refused if the first goes on within its lease, and else the first uses no state any more.
func TestCloneWhileTheFirstIsStopped(t *testing.T) {
	t.Parallel()
	for _, stopped := range []time.Duration{5 * time.Second, 15 * time.Second, time.Minute} {
		t.Run(stopped.String(), func(t *testing.T) {
			t.Parallel()
			if stopped > 15*time.Second {
				night.Whole(t, "it waits for a minute")
			}
			s := openNamed(t)
			first := s.replicas[0]
			s.begin(first)
			etcdtest.Eventually(t, "it is ready", func() bool { return s.isReady(first) })
			must(t, first.process.Process.Signal(syscall.SIGSTOP))
			until := time.After(stopped)
			data := t.TempDir()
			must(t, exec.Command("cp", "-a", first.data+"/.", data).Run())
			clone := s.named(data)
			s.begin(clone)
			etcdtest.Eventually(t, "the copy waits", func() bool { return s.waitsForItsName(clone) })
			if stopped > leaseOfAMember {
				etcdtest.Eventually(t, "the copy is ready", func() bool { return s.isReady(clone) })
			}
			// The first is asked while it is stopped, and answers in its first moment.
			var asked sync.WaitGroup
			var readies, answers atomic.Int64
			for range 10 {
				asked.Go(func() {
					if ready, text, _ := s.state(first); ready {
						readies.Add(1)
					} else if text != "" {
						answers.Add(1)
					}
				})
			}
			<-until
			must(t, first.process.Process.Signal(syscall.SIGCONT))
			asked.Wait()
			if stopped < leaseOfAMember {
				<-clone.ended
				if said := clone.said.String(); !strings.Contains(said, "another process runs under the name policy-service/") {
					t.Errorf("the copy says %s", said)
				}
				etcdtest.Eventually(t, "the first goes on", func() bool { return s.isReady(first) })
				s.settlesNot(first)
				return
			}
			if readies.Load() > 0 || answers.Load() == 0 {
				t.Errorf("both are ready: %d answers of the first say so, and %d do not", readies.Load(), answers.Load())
			}
			etcdtest.Eventually(t, "the first is no member any more", func() bool {
				ready, text, _ := s.state(first)
				if ready {
					t.Fatal("both are ready")
				}
				if stopped > 30*time.Second { // its API keys are stale, and /readyz has no more than a word for their callers
					return strings.Contains(first.said.String(), "another process took the name policy-service/")
				}
				return strings.Contains(text, "another process took the name policy-service/")
			})
			if status, text := s.ask(first, "pep", "POST", "/v1/authorize", clusterQuestion("once", "a", "1", "")); status != http.StatusServiceUnavailable {
				t.Errorf("what needs state: got %d %s", status, text)
			}
			etcdtest.Eventually(t, "its log says so", func() bool {
				return strings.Contains(first.said.String(), "another process took the name policy-service/")
			})
			first.end(syscall.SIGTERM)
			s.settlesNot(clone) // which the end of the first did not take away
			if !s.isReady(clone) {
				t.Error("the copy is not ready any more")
			}
		})
	}
}

// settlesNot tries to settle a replica that runs as lost.
func (s *troubled) settlesNot(r *clusterReplica) {
	s.Helper()
	pub, err := os.ReadFile(filepath.Join(r.data, "log.pub"))
	must(s.T, err)
	origin, _, _ := strings.Cut(string(pub), "+")
	said, err := exec.Command(r.program, "approvals", "settle", "--config", r.config, "--lost", origin, "--reason", "a test", "--now").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "has a member that runs") {
		s.Errorf("it is settled as lost while it runs: %v, %s", err, said)
	}
}
