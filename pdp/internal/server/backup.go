package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"policy-service/pdp/internal/approval"
	approvals "policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/backup"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/signing"
	"policy-service/pdp/internal/version"
)

// A kept file is one of the data directory beside the log, with what follows if a restored directory goes on without it.
type kept struct {
	name, without string
	anyLog        bool // it belongs to no one log
}

// keptFiles are those that are no secret, and privateFiles those that are. The lock of the API keys says that there are
// some. What the files of API keys say of a revocation is older than what the log says, since that is copied later.
var (
	keptFiles = []kept{
		{name: keys.File, without: "no API key is good"},
		{name: keys.MarksFile},
		{name: keys.LockFile},
	}
	storeFiles   = []kept{{name: approval.FileName}, {name: capability.FileName}}
	privateFiles = []kept{
		{name: format.KeyFile, without: "serve does not go on with the decision log, and exits with 2"},
		{name: format.NextKeyFile},
		{name: maskKey.File, without: "masked values of before and after cannot be compared, and sealed evidence cannot be opened", anyLog: true},
		{name: keys.RenewKey.File, anyLog: true},
		{name: signing.File, without: "clients get new keys, and capability tokens of before are refused"},
		{name: approvals.Key.File, without: "serve does not go on with the approval requests, and exits with 2"},
		{name: pageKey.File, without: "searches of the last hour cannot go on"},
	}
)

// making is a backup that is about to be written. All its files are open, so nothing that happens to them meanwhile counts.
type making struct {
	head    backup.Head
	end     backup.End
	files   []backup.Source
	now     func() time.Time
	release func()
}

func newMaking(keys bool, now func() time.Time) *making {
	head := backup.Head{Program: version.This().Version, Began: now().UTC(), Keys: keys}
	return &making{head: head, now: now, release: func() {}}
}

func (m *making) write(w io.Writer) error { return backup.Write(w, m.head, m.files, m.end, m.now) }

func (m *making) close() {
	for _, f := range m.files {
		_ = f.Close()
	}
	m.release()
}

// open adds files of the data directory, as far as they exist.
func (m *making) open(data string, files []kept) error {
	for _, one := range files {
		f, err := plainfile.Open(filepath.Join(data, one.name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		default:
			m.files = append(m.files, backup.Source{Name: one.name, File: f})
		}
	}
	return nil
}

// copy adds the copy of a store.
func (m *making) copy(name string, copied func() (*os.File, error)) error {
	f, err := copied()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.files = append(m.files, backup.Source{Name: name, File: f})
	return nil
}

// beside adds all files but those of the stores and of the log.
func (m *making) beside(data string) error {
	err := m.open(data, keptFiles)
	if err == nil && m.head.Keys {
		err = m.open(data, privateFiles)
	}
	return err
}

func (m *making) log(last segment.Checkpoint, files []decisionlog.Copied) {
	for _, f := range files {
		m.files = append(m.files, backup.Source{Name: f.Name, File: f.File})
	}
	log := &m.end.Log
	log.Origin, log.Size, log.Root, log.Checkpoint = last.Origin, last.Size, last.Root.String(), string(last.Note)
}

// backUp makes a backup while the server answers. The log comes last: then it has each step that the stores have, and each
// revocation of an API key. It has all that was answered before, because its newest segment is sealed for the backup.
func (s *Server) backUp(ctx context.Context, caller string, keys bool) (write func(io.Writer) error, done func(), err error) {
	m := newMaking(keys, s.now)
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	m.head.Online = true
	asked := recorder.Event{Name: format.EventBackup, Details: map[string]any{"caller": caller, "keys": keys}}
	if err = s.decisions.events.Record(ctx, asked); err != nil {
		return nil, nil, err
	}
	shared := s.config.Cluster != nil // then they are in etcd, which has copies of its own
	if b := s.approvals.Broker; b != nil && !shared {
		err = m.copy(approval.FileName, b.Store.Copy)
	}
	if b := s.capabilities.Broker; b != nil && !shared && err == nil {
		err = m.copy(capability.FileName, b.Store.Copy)
	}
	if err == nil {
		err = m.beside(s.config.Data)
	}
	if err != nil {
		return nil, nil, err
	}
	last, files, err := s.decisions.Copy(ctx)
	if err != nil {
		return nil, nil, err
	}
	m.log(last, files)
	m.end.Bundle = s.policies.Status().Digest
	return m.write, m.close, nil
}

// BackUpStopped writes a backup of the data directory of a server that does not run. It refuses one that does, and none can
// start meanwhile.
func BackUpStopped(data string, keys bool, w io.Writer) error {
	m := newMaking(keys, time.Now)
	defer m.close()
	last, files, release, err := decisionlog.CopyStopped(data)
	if err != nil {
		return err
	}
	m.release = release
	if _, err = os.Lstat(filepath.Join(data, restoredFile)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, errors.New("what was restored here is not on record yet, and a backup would not have it; start the server once, and stop it"))
	}
	if err = m.open(data, storeFiles); err == nil {
		err = m.beside(data)
	}
	m.log(last, files)
	if err == nil {
		err = m.write(w)
	}
	return err
}
