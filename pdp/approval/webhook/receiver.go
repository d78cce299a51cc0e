package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxHeader and maxAnswer bound what is read of an answer. Its body is read, though nothing in it counts, so that a
	// receiver that writes a few words can finish.
	maxHeader = 16 << 10
	maxAnswer = 4 << 10
)

// receiver is one receiver, and its state.
type receiver struct {
	url    string
	name   string // for logs: without path and query, which may be secret
	secret []byte
	// A transport and not a client, because a client follows redirects.
	transport http.RoundTripper
	slots     chan struct{} // one is held by each attempt under way
	failing   atomic.Bool
	gone      atomic.Bool
}

func newReceiver(c Config, o Options) (*receiver, error) {
	u, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	t, err := newTarget(u, c.Allow)
	if err != nil {
		return nil, err
	}
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("secret_file: %w", err)
	}
	return &receiver{
		url:       u.String(),
		name:      u.Scheme + "://" + u.Host,
		secret:    secret,
		transport: newTransport(t, o),
		slots:     make(chan struct{}, o.InFlight),
	}, nil
}

// parseURL parses the URL of a receiver. No error quotes the URL.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Hostname() == "", u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("url is no URL; write it like https://chat.example.com/hooks/policy")
	case u.User != nil || strings.Contains(text, "#"):
		return nil, errors.New("url holds credentials or a fragment; leave them out: the signature is what proves who sends")
	}
	return u, nil
}

// newTransport makes a transport with a connection for each attempt, so that t checks each one. It takes no proxy from
// the environment, because a proxy would connect in our place. The context of an attempt bounds the attempt; the
// timeouts bound what outlives it.
func newTransport(t target, o Options) *http.Transport {
	dialer := &net.Dialer{Timeout: o.Timeout, Resolver: o.Resolver, Control: t.control}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    o.Timeout,
		MaxResponseHeaderBytes: maxHeader,
		DisableKeepAlives:      true,
		DisableCompression:     true, // no need to unpack a body that does not count
	}
}

// post sends a message once. It has read and closed the body of the answer.
func (r *receiver) post(ctx context.Context, m message, now time.Time) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(m.body))
	if err != nil {
		return nil, err
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "policy-service")
	request.Header.Set(headerID, m.id)
	request.Header.Set(headerTimestamp, timestamp)
	request.Header.Set(headerSignature, sign(r.secret, m.id, timestamp, m.body))
	answer, err := r.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	// The status was the answer. It counts even if the body cannot be read.
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	_ = answer.Body.Close()
	return answer, nil
}

// reason is why there was no answer. It quotes nothing that the receiver sent, because that may be an echo of our
// message.
func reason(err error) string {
	var address *refusedAddress
	var lookup *net.DNSError
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &address):
		return address.Error()
	case errors.As(err, &lookup):
		return "its name has no address: " + lookup.Err
	case errors.As(err, &certificate):
		return fmt.Sprintf("its certificate cannot be trusted: %.200s", certificate.Err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it does not answer in time"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "it cannot be reached: " + dial.Err.Error()
	}
	return "the connection broke off before an answer that can be read"
}
