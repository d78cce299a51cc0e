package server

import (
	"crypto/sha256"
	"crypto/tls"
	"log/slog"
	"sync"
	"time"
)

// certificateRecheck is how long changed files may go unnoticed.
const certificateRecheck = time.Second

// certificates is what a TLS listener shows and trusts. It follows its files: they are
// looked at when a client connects, at most once a second, so that a certificate that
// is renewed counts without a restart, and nothing runs while nobody connects.
type certificates struct {
	files TLSFiles
	log   *slog.Logger

	mu      sync.Mutex // guards what follows
	current *tls.Config
	seen    [sha256.Size]byte // the files when they were last looked at
	checked time.Time
}

func (s *Server) openTLS() (err error) {
	if s.config.TLS.CertFile != "" {
		s.certificates, err = loadCertificates(s.config.TLS, s.log)
	}
	return err
}

func loadCertificates(files TLSFiles, log *slog.Logger) (*certificates, error) {
	config, seen, err := readTLS(files)
	if err != nil {
		return nil, err
	}
	c := &certificates{files: files, log: log, current: config, seen: seen, checked: time.Now()}
	c.tell()
	return c, nil
}

// config is for the listener; what counts is asked for anew for every connection.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         c.files.minVersion(),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now(), nil },
	}
}

func (c *certificates) now() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < certificateRecheck {
		return c.current
	}
	c.checked = time.Now()
	config, seen, err := readTLS(c.files)
	if seen == c.seen {
		return c.current
	}
	c.seen = seen // so that each state of the files is told of once
	if err != nil {
		// Perhaps only one of the files has been replaced so far.
		c.log.Error("the changed TLS files are not usable; those before stay in force", "error", err)
		return c.current
	}
	c.current = config
	c.tell()
	return config
}

func (c *certificates) tell() {
	leaf := c.current.Certificates[0].Leaf
	c.log.Info("TLS certificate in force", "file", c.files.CertFile, "names", leaf.DNSNames, "addresses", leaf.IPAddresses, "not_after", leaf.NotAfter.UTC())
	if time.Now().After(leaf.NotAfter) {
		c.log.Warn("the TLS certificate has expired, and clients will refuse it; replace the file", "file", c.files.CertFile)
	}
}
