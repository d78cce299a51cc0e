package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"policy-service/pdp/internal/plainfile"
)

// Config says which etcd the processes share, and which of them this one is.
type Config struct {
	Etcd      EtcdConfig    `yaml:"etcd"`
	Origin    string        `yaml:"origin" doc:"The name of this replica: that of its decision log, as log.pub has it. It is taken from there unless given. No two replicas have one, and none takes that of another, even if that is gone."`
	Secrets   string        `yaml:"secrets" path:"yes" doc:"A directory with the keys that all replicas have: approvals.key, page.key, mask.key and signing.jwks, such as a mounted Secret. A start copies those that the data directory does not have yet, and replaces none."`
	KeysStale time.Duration `yaml:"keys_stale" default:"30s" min:"1s" max:"10m" doc:"How long API keys count after the last contact with etcd, and so how late a replica that is cut off learns of a revocation. After that callers with API keys are answered 503."`
}

// EtcdConfig says where etcd is, and how it is reached.
type EtcdConfig struct {
	Endpoints    []string `yaml:"endpoints" doc:"The URLs of the members of etcd, such as https://etcd-0:2379. Those of a member that is not on this machine begin with https. etcd must be 3.6 or newer."`
	CAFile       string   `yaml:"ca_file" doc:"The certificates of the authorities that etcd's certificates are signed by, in PEM. Those of the system unless given."`
	CertFile     string   `yaml:"cert_file" doc:"The certificate that this process shows to etcd, in PEM."`
	KeyFile      string   `yaml:"key_file" doc:"The private key of cert_file, in PEM. Only the user of the service may read it."`
	Username     string   `yaml:"username" doc:"The user of etcd that this process is. It needs to read and write below prefix."`
	PasswordFile string   `yaml:"password_file" doc:"A file with the password of username. Only the user of the service may read it."`
	Prefix       string   `yaml:"prefix" default:"/policy-service/v1/" doc:"All keys in etcd begin with it. Two clusters of replicas may share one etcd if their prefixes differ, and neither begins the other."`
	// Timeout 0 is the default, too.
	Timeout time.Duration `yaml:"timeout" default:"3s" min:"500ms" max:"30s" doc:"How long one call of etcd may take. What needs state is answered 503 then. No request waits for longer than request_time."`
}

// Check looks for mistakes. Add gets each with its key, relative to the section.
func (c *Config) Check(add func(key string, err error)) {
	e := &c.Etcd
	if len(e.Endpoints) == 0 {
		add("etcd", errors.New("cluster.etcd names no endpoints; list the URLs of the members of etcd"))
	}
	scheme := ""
	for _, one := range e.Endpoints {
		u, err := url.Parse(one)
		switch {
		case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Port() == "" || u.Hostname() == "" || one != u.Scheme+"://"+u.Host:
			add("etcd.endpoints", fmt.Errorf("cluster.etcd.endpoints has %q, which is no URL of a member; write https://HOST:PORT and nothing else", redacted(one)))
		case u.Scheme == "http" && !loopback(u.Hostname()):
			add("etcd.endpoints", fmt.Errorf("cluster.etcd.endpoints has %s, and beyond this machine http shows approvals and keys to the network; write https://%s", one, u.Host))
		case scheme != "" && scheme != u.Scheme:
			add("etcd.endpoints", errors.New("cluster.etcd.endpoints has both http and https; write https everywhere"))
		default:
			scheme = u.Scheme
		}
	}
	if scheme == "http" && (e.CAFile != "" || e.CertFile != "" || e.KeyFile != "") {
		add("etcd", errors.New("cluster.etcd has files of TLS, and its endpoints begin with http; write https there, or leave the files out"))
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		add("etcd", errors.New("cluster.etcd has one of cert_file and key_file; write both, or neither"))
	}
	if (e.Username == "") != (e.PasswordFile == "") {
		add("etcd", errors.New("cluster.etcd has one of username and password_file; write both, or neither"))
	}
	if p := e.Prefix; p != "" && (!strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || len(p) < 3 || len(p) > 128 || strings.Contains(p, "//")) {
		add("etcd.prefix", fmt.Errorf("cluster.etcd.prefix is %q; it must begin and end with a slash, such as /policy-service/v1/", p))
	}
	if c.Origin != "" {
		if err := checkOrigin(c.Origin); err != nil {
			add("origin", err)
		}
	}
}

// checkOrigin refuses a name that no log has.
func checkOrigin(name string) error {
	if len(name) > 256 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '+' || r == 0x7f }) {
		return fmt.Errorf("cluster.origin is %q, which is no name of a log; write the one in log.pub, without spaces and plus signs", name)
	}
	return nil
}

// redacted is a URL without the credentials that it may have.
func redacted(text string) string {
	if at := strings.LastIndex(text, "@"); at >= 0 {
		return "…" + text[at:]
	}
	return text
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

const (
	mostPEM      = 1 << 20
	mostPassword = 4 << 10
)

// tls reads the files; nil is plain HTTP.
func (c *EtcdConfig) tls() (*tls.Config, error) {
	if len(c.Endpoints) == 0 || !strings.HasPrefix(c.Endpoints[0], "https://") {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		text, err := plainfile.Read(c.CAFile, mostPEM)
		if err != nil {
			return nil, fmt.Errorf("cluster.etcd.ca_file: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("cluster.etcd.ca_file: %s has no certificate in PEM", c.CAFile)
		}
	}
	if c.CertFile == "" {
		return t, nil
	}
	if _, err := c.certificate(); err != nil {
		return nil, err
	}
	// It is read again for each connection: one that is renewed counts without a restart.
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.certificate() }
	return t, nil
}

func (c *EtcdConfig) certificate() (*tls.Certificate, error) {
	certificate, err := plainfile.Read(c.CertFile, mostPEM)
	if err != nil {
		return nil, fmt.Errorf("cluster.etcd.cert_file: %w", err)
	}
	key, err := plainfile.ReadPrivate(c.KeyFile, mostPEM)
	if err != nil {
		return nil, fmt.Errorf("cluster.etcd.key_file: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("cluster.etcd.cert_file and key_file: %w", err)
	}
	return &pair, nil
}

func (c *EtcdConfig) password() (string, error) {
	if c.PasswordFile == "" {
		return "", nil
	}
	text, err := plainfile.ReadPrivate(c.PasswordFile, mostPassword)
	if err != nil {
		return "", fmt.Errorf("cluster.etcd.password_file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("cluster.etcd.password_file: %s is empty; write the password of %s there", c.PasswordFile, c.Username)
	}
	return password, nil
}

// Files says why the files that the configuration names cannot be used, one error a file.
func (c *Config) Files() (errs []error) {
	_, ofTLS := c.Etcd.tls()
	_, ofPassword := c.Etcd.password()
	for _, err := range []error{ofTLS, ofPassword} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
