package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/server"
)

// Probe asks a server how it is.
type Probe struct {
	// URL is the server's, without a path, or unix:PATH.
	URL string
	// CertFile is the certificate of the server. If it is set, exactly this certificate is believed, whatever names are in
	// it: a probe on the same machine asks 127.0.0.1, for which there is no certificate.
	CertFile string
}

// Check is an error if the server cannot be asked.
func (p Probe) Check() error {
	base := p.base()
	if u, err := url.Parse(base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no address of a server; try http://%s", p.URL, server.DefaultListen)
	}
	if strings.HasPrefix(base, "http:") && p.CertFile != "" {
		return fmt.Errorf("%s shows no certificate; try https, or leave the certificate out", p.URL)
	}
	_, err := p.client()
	return err
}

// base begins the URLs of requests.
func (p Probe) base() string {
	if _, ok := httpclient.Socket(p.URL); ok {
		return httpclient.SocketURL
	}
	return strings.TrimSuffix(p.URL, "/")
}

// Ask is the status at a path: "ok" at /livez, "ready" or "degraded" at /readyz, or an error.
func (p Probe) Ask(ctx context.Context, path string) (status string, err error) {
	client, err := p.client()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base()+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if unknown := (*tls.CertificateVerificationError)(nil); errors.As(err, &unknown) {
		return "", fmt.Errorf("no answer: %w; give the certificate that serve has, with --tls-cert", err)
	} else if err != nil {
		return "", fmt.Errorf("no answer: %w; see whether it runs at this address, and its log", err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("its answer ends in the middle: %w; see its log", err)
	}
	var said struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(body, &said) != nil || said.Status == "" {
		return "", fmt.Errorf("%s is answered with %d, and not by a policy-service; see what runs there", path, answer.StatusCode)
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it says that it is %s (%d); see %s with a credential, and its log", said.Status, answer.StatusCode, path)
	}
	return said.Status, nil
}

// client asks the address itself, by no proxy, and goes nowhere else.
func (p Probe) client() (*http.Client, error) {
	transport := &http.Transport{}
	if path, ok := httpclient.Socket(p.URL); ok {
		transport = httpclient.OverSocket(path)
	}
	if p.CertFile != "" {
		leaf, err := certificate(p.CertFile)
		if err != nil {
			return nil, err
		}
		// What Go would verify is replaced by something narrower.
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(c tls.ConnectionState) error {
			if !bytes.Equal(c.PeerCertificates[0].Raw, leaf) {
				return fmt.Errorf("it does not show the certificate in %s", p.CertFile)
			}
			return nil
		}}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// certificate is the first certificate of a file in PEM, which is the server's own.
func certificate(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate: %w; try the file that serve is given", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no certificate in PEM; try the file that serve is given as --tls-cert", name)
	}
	return block.Bytes, nil
}
