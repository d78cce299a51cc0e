package audit

import (
	"errors"
	"net/http"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/cmd/policy-service/internal/connection"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/remote"
	"policy-service/pdp/httpclient"
)

// Validate refuses flags that would be ignored.
func (a logFlags) Validate() error {
	if a.Server == "" && (a.Credential != "" || a.CA != "") {
		return errors.New("--credential and --ca are for --server; leave them out")
	}
	return nil
}

// remote calls f with the log of the server.
func (a logFlags) remote(f func(*remote.Log) error) error {
	options, err := connection.Options(a.Credential, a.CA)
	if err != nil {
		return err
	}
	log, err := remote.New(a.Server, options)
	if err != nil {
		return err
	}
	defer log.Close()
	return f(log)
}

// where names the log on a command line.
func (a logFlags) where() string {
	if a.Server != "" {
		return "--server " + cli.Shell(a.Server)
	}
	return "--data " + cli.Shell(a.Data)
}

// tryServer says what to do about an error of a server's log.
func (a logFlags) tryServer(err error) string {
	switch status := httpclient.StatusOf(err); {
	case errors.Is(err, decisionlog.ErrChanged), errors.Is(err, remote.ErrOtherExport):
		return "run it again, for an export of today"
	case status == http.StatusNotFound || status == http.StatusGone:
		return "try policy-service log tail --server " + cli.Shell(a.Server)
	}
	return connection.Try(err)
}
