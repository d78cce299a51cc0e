// Package pep judges any COAZ PEP by its URL, from outside: a gateway in front of an MCP server, or an MCP server that
// is its own PEP. Call [Open], configure the PEP with the bench's [Wiring], and call [Bench.Judge], which asks every
// case of the plans and returns a report.
//
// The PEP stands on a bench between things that the suite controls: a PDP that answers as a case wants and keeps the
// questions, an MCP server that keeps the messages, and an issuer that signs tokens, good ones and bad ones. So a case
// sees three sides of one message: the answer of the PEP, its questions, and whether the operation was executed.
//
// Cases are data, in cases/*.yaml; README.md says how to read them, and REQUIREMENTS.md which sentence of the framework
// and of its binding for MCP each of them shows. The package speaks MCP by itself, in both eras, because it sends
// messages that no client would send. It knows nothing of how a PEP is built.
package pep

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"policy-service/conformance"
)

// Options say where the bench listens. An empty address is a free port of 127.0.0.1.
type Options struct {
	PDP, Upstream, Issuer string
	// TLS is the certificate of all three; without one they speak plain HTTP.
	TLS *tls.Certificate
}

// Target is the PEP to judge.
type Target struct {
	// URL is where it speaks MCP.
	URL string
	// Plans are the names of the plans to ask; none means coaz.
	Plans []string
	// Eras are those to judge it in; none means each that it speaks.
	Eras []Era
	// Resource is the PEP's own resource identifier, which its tokens are for; without one it is the URL.
	Resource string
	// SubjectClaim is the claim that the PEP is configured to take the subject from; without one it is sub.
	SubjectClaim string
	// Client makes the connections. The default is [http.DefaultClient].
	Client *http.Client
	// Timeout bounds one request; the default is 10 seconds.
	Timeout time.Duration
	// Wait is how long the PEP may take to answer at all, for one that is started after the bench.
	Wait time.Duration
}

// Wiring is for the configuration of the PEP. A gateway has Upstream for its only MCP server; a server that is its own
// PEP reports to Report the operations that it executes.
type Wiring struct{ PDP, Issuer, Upstream, Report string }

// Bench stands around a PEP that is judged: one PEP at a time.
type Bench struct {
	Wiring  Wiring
	book    *book
	pdp     *recorder
	servers []*http.Server
	// recovery is how long the PEP may take until it works again, after a PDP that failed.
	recovery time.Duration
}

// Open listens. Close the bench after use.
func Open(o Options) (*Bench, error) {
	offered, err := offers()
	if err != nil {
		return nil, err
	}
	if _, err := keys(); err != nil {
		return nil, err
	}
	b := &Bench{book: &book{}, recovery: time.Minute}
	b.pdp = &recorder{book: b.book}
	b.pdp.behave(replies()["permit"])
	issuer := &issuer{}
	for _, s := range []struct {
		address string
		handler http.Handler
		url     *string
	}{{o.PDP, b.pdp, &b.pdp.url}, {o.Issuer, issuer, &issuer.url}, {o.Upstream, &upstream{b.book, offered}, &b.Wiring.Upstream}} {
		if err = b.serve(s.address, s.handler, o.TLS, s.url); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	b.Wiring = Wiring{b.pdp.url, issuer.url, b.Wiring.Upstream + mcpPath, b.Wiring.Upstream + reportPath}
	return b, nil
}

// serve listens on one address, and sets its URL before it serves.
func (b *Bench) serve(address string, handler http.Handler, certificate *tls.Certificate, url *string) error {
	l, err := net.Listen("tcp", cmp.Or(address, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	scheme := "http"
	if certificate != nil {
		scheme = "https"
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12})
	}
	*url = scheme + "://" + net.JoinHostPort(host, port)
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
	b.servers = append(b.servers, s)
	go func() { _ = s.Serve(l) }() // it ends with Close, and says nothing else
	return nil
}

// Close ends all that the bench has begun.
func (b *Bench) Close() error {
	b.pdp.behave(replies()["permit"]) // for those that still wait
	var all error
	for _, s := range b.servers {
		all = errors.Join(all, s.Close())
	}
	return all
}

// WriteText writes the configuration of a PEP for people.
func (w Wiring) WriteText(to io.Writer, t Target) error {
	t = t.complete()
	_, err := fmt.Fprintf(to, `The PEP under test, %s, must be configured with:
  PDP                %s
  issuer of tokens   %s
  its own resource   %s
  subject claim      %s
  as a gateway       its only upstream is %s
  as a server        it offers what --print-tools prints, and reports what it executes to %s
`, t.URL, w.PDP, w.Issuer, t.Resource, t.SubjectClaim, w.Upstream, w.Report)
	return err
}

func (t Target) complete() Target {
	t.Resource, t.SubjectClaim = cmp.Or(t.Resource, t.URL), cmp.Or(t.SubjectClaim, "sub")
	return t
}

// Judge asks the PEP every case of its plans, in each era, one message after the other, and reports how it did. An error
// means that there is no report: the PEP does not answer, or is not wired to this bench.
func (b *Bench) Judge(ctx context.Context, t Target) (conformance.Report, error) {
	cases, err := Cases(t.Plans...)
	if err != nil {
		return conformance.Report{}, err
	}
	return b.judgeAll(ctx, t.complete(), cases)
}

// judgeAll asks given cases.
func (b *Bench) judgeAll(ctx context.Context, t Target, cases []Case) (conformance.Report, error) {
	found, err := b.find(ctx, t)
	if err != nil {
		return conformance.Report{}, err
	}
	report, gone := conformance.Report{URL: t.URL}, false
	for _, r := range found {
		for _, c := range cases {
			if !c.in(r.era) {
				continue
			}
			result := r.result(c)
			if result.Outcome = conformance.Skipped; !gone {
				result, gone = r.judge(ctx, c)
			}
			if err := ctx.Err(); err != nil {
				return conformance.Report{}, err
			}
			report.Results = append(report.Results, result)
		}
	}
	return report, nil
}

// in reports if a case makes sense in an era.
func (c Case) in(e Era) bool {
	known, err := calls()
	return err == nil && (c.Era == "" || c.Era == e) && !slices.ContainsFunc(c.Steps, func(s Step) bool {
		only := known[s.Ask].Era
		return only != "" && only != e
	})
}
