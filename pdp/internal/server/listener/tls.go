package listener

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"policy-service/pdp/internal/finding"
	"policy-service/pdp/internal/plainfile"
)

// TLSFiles are the files that TLS is made from, and the oldest version it speaks.
type TLSFiles struct {
	// CertFile holds the certificate and those between it and its root, in PEM;
	// KeyFile its private key.
	CertFile string `yaml:"cert_file" doc:"The certificate of the service and the intermediate ones, in PEM. With it the service speaks TLS. A changed file takes effect without a restart."`
	KeyFile  string `yaml:"key_file" doc:"The private key of the certificate, in PEM, without a password."`
	// ClientCAFile holds the roots of the certificates that clients may show.
	ClientCAFile string `yaml:"client_ca_file" doc:"The root certificates of the certificates that clients may show, in PEM. auth.mtls needs it."`
	// MinVersion is 1.3, the default, or 1.2, for clients that know nothing newer.
	MinVersion string `yaml:"min_version" default:"1.3" enum:"1.2,1.3" doc:"The oldest version of TLS that the service speaks. 1.2 lets in clients that cannot speak 1.3."`
}

// Check finds a file that is missing.
func (f TLSFiles) Check() error {
	switch {
	case f.CertFile != "" && f.KeyFile == "":
		return errors.New("there is a TLS certificate without a key; add --tls-key, or tls.key_file")
	case f.CertFile == "" && f.KeyFile != "":
		return errors.New("there is a TLS key without a certificate; add --tls-cert, or tls.cert_file")
	case f.CertFile == "" && f.ClientCAFile != "":
		return errors.New("a client CA is of use with TLS only; add --tls-cert and --tls-key, or tls.cert_file and tls.key_file")
	}
	return nil
}

// tlsVersions are the versions that can be configured. Suites and curves are those of Go, which are kept up to date.
var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func (f TLSFiles) minVersion() uint16 { return tlsVersions[cmp.Or(f.MinVersion, "1.3")] }

// readTLS makes a configuration of the files. If it fails, the hash still says which state of the files it failed on.
func readTLS(files TLSFiles) (*tls.Config, [sha256.Size]byte, error) {
	var content [3][]byte
	var errs []error
	state := sha256.New()
	for i, name := range []string{files.CertFile, files.KeyFile, files.ClientCAFile} {
		if name == "" {
			continue
		}
		text, err := plainfile.Read(name, 1<<20)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot read a TLS file: %w; check its name and permissions", err))
		}
		content[i] = text
		_, _ = fmt.Fprintf(state, "%d %v %x\n", i, err, sha256.Sum256(text))
	}
	config, err := newTLS(files, content[0], content[1], content[2])
	if len(errs) > 0 {
		err = errors.Join(errs...)
	}
	return config, [sha256.Size]byte(state.Sum(nil)), err
}

// Findings reads the files as [Open] does, and looks at the certificate that clients are shown. Without one it finds nothing.
func (f TLSFiles) Findings(now time.Time) (found finding.List) {
	const check, renew = "configuration", "; a changed file counts without a restart"
	if f.CertFile == "" {
		return nil
	}
	config, _, err := readTLS(f)
	if err != nil {
		found.Wrong(check, err)
		return found
	}
	leaf := config.Certificates[0].Leaf
	end := leaf.NotAfter.UTC().Format(time.RFC3339)
	switch left := leaf.NotAfter.Sub(now); {
	case left <= 0:
		found.Bites(check, "renew it"+renew, "the certificate %s ended on %s, and clients refuse it", f.CertFile, end)
	case left < renewBefore(leaf):
		found.Bites(check, "renew it, and see why that did not happen by itself"+renew, "the certificate %s ends on %s, and clients will refuse it then", f.CertFile, end)
	default:
		found.OK(check, "the certificate %s is good until %s", f.CertFile, end)
	}
	if info, err := os.Stat(f.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		found.Bites(check, "chmod 600 it, and get another if anybody may have read it", "the key %s is open to every user of this machine (mode %#o)", f.KeyFile, info.Mode().Perm())
	}
	return found
}

func newTLS(files TLSFiles, cert, key, clientCA []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are no certificate with its key: %w; both must be PEM, the key without a password", files.CertFile, files.KeyFile, err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   files.minVersion(),
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if files.ClientCAFile == "" {
		return config, nil
	}
	// A certificate is one credential among others: a client without one is let in here, and the rights of a
	// certificate are found for each request.
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(bytes.TrimSpace(clientCA)) {
		return nil, fmt.Errorf("%s holds no certificate; it must be PEM, the roots of the clients' certificates", files.ClientCAFile)
	}
	// A resumed session would skip the verification, and outlive a root that is taken away.
	config.SessionTicketsDisabled = true
	return config, nil
}

// certificateRecheck is how long changed files may go unnoticed.
const certificateRecheck = time.Second

// Certificates are those that a TLS listener shows and trusts. They follow their files, which are read when a client connects,
// at most once a second. So a renewed certificate counts without a restart, and nothing runs while no client connects.
type Certificates struct {
	// Now is the clock by which files are looked at again.
	Now func() time.Time

	files TLSFiles
	log   *slog.Logger

	mu      sync.Mutex // guards the fields below
	current *tls.Config
	seen    [sha256.Size]byte // the files when they were last looked at
	checked time.Time
}

// Open reads the files. Without a certificate it is nil, which is plain HTTP.
func Open(files TLSFiles, log *slog.Logger) (*Certificates, error) {
	if files.CertFile == "" {
		return nil, nil
	}
	config, seen, err := readTLS(files)
	if err != nil {
		return nil, err
	}
	c := &Certificates{Now: time.Now, files: files, log: log, current: config, seen: seen}
	c.logInForce()
	return c, nil
}

// config is for a server. Every connection asks for the configuration of its moment.
func (c *Certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         c.files.minVersion(),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now(), nil },
	}
}

func (c *Certificates) now() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	if age := now.Sub(c.checked); 0 <= age && age < certificateRecheck {
		return c.current
	}
	c.checked = now
	config, seen, err := readTLS(c.files)
	if seen == c.seen {
		return c.current
	}
	c.seen = seen // so that each state of the files is logged once
	if err != nil {
		// Perhaps only one of the files has been replaced so far.
		c.log.Error("the changed TLS files are not usable; those before stay in force", "error", err)
		return c.current
	}
	c.current = config
	c.logInForce()
	return config
}

// Trusts reports whether an authority that clients may have now has signed for the client of a connection: the connection may
// have begun when others counted.
func (c *Certificates) Trusts(state *tls.ConnectionState) bool {
	now := x509.VerifyOptions{Roots: c.now().ClientCAs, CurrentTime: c.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	return now.Roots != nil && slices.ContainsFunc(state.VerifiedChains, func(chain []*x509.Certificate) bool {
		_, err := chain[len(chain)-1].Verify(now) // one of the authorities itself is compared, and no more
		return err == nil
	})
}

func (c *Certificates) logInForce() {
	leaf := c.current.Certificates[0].Leaf
	c.log.Info("TLS certificate in force", "file", c.files.CertFile, "names", leaf.DNSNames, "addresses", leaf.IPAddresses, "not_after", leaf.NotAfter.UTC())
	c.logEnd(leaf)
}

// logEnd warns of a certificate that should have been renewed.
func (c *Certificates) logEnd(leaf *x509.Certificate) {
	switch left := leaf.NotAfter.Sub(c.Now()); {
	case left < 0:
		c.log.Warn("the TLS certificate has expired, and clients will refuse it; replace the file", "file", c.files.CertFile)
	case left < renewBefore(leaf):
		c.log.Warn("the TLS certificate expires soon, and clients will refuse it then; replace the file", "file", c.files.CertFile, "not_after", leaf.NotAfter.UTC())
	}
}

// renewBefore returns how long before its end a certificate should have been renewed.
func renewBefore(leaf *x509.Certificate) time.Duration {
	return min(14*24*time.Hour, leaf.NotAfter.Sub(leaf.NotBefore)/3)
}

// NotAfter is when the certificate that clients are shown ends.
func (c *Certificates) NotAfter() time.Time { return c.now().Certificates[0].Leaf.NotAfter }

// Watch warns of the certificate's end once a day, until ctx ends. Without a certificate there is nothing to warn of.
func (c *Certificates) Watch(ctx context.Context) {
	if c == nil {
		return
	}
	each := time.NewTicker(24 * time.Hour)
	defer each.Stop()
	for {
		select {
		case <-each.C:
			c.logEnd(c.now().Certificates[0].Leaf)
		case <-ctx.Done():
			return
		}
	}
}
