package audit

import (
	"fmt"
	"os"
	"path/filepath"

	"policy-service/pdp/internal/decisionlog/recorder"
)

// policyThen is a policy as it stood when the decision was made.
type policyThen struct {
	ID       string `json:"id"`
	Effect   string `json:"effect,omitempty"`
	Position string `json:"position,omitempty"`
	Text     string `json:"text,omitempty"`
}

// policiesThen finds policies of a tenant by id in the files of a bundle, which the log keeps by their hash.
func policiesThen(files map[string][]byte, tenant string, ids []string) ([]policyThen, error) {
	bundle, err := recorder.Compile(files, tenant)
	if err != nil {
		return nil, err
	}
	of := recorder.ThenOf(bundle, files)
	then := make([]policyThen, 0, len(ids))
	for _, id := range ids {
		p, found := of.Policy(tenant, id)
		if !found {
			return nil, fmt.Errorf("the bundle of then has no policy %q", id)
		}
		then = append(then, policyThen{ID: id, Effect: p.Effect, Position: p.Position, Text: of.Text(p.Position)})
	}
	return then, nil
}

// writeBundle writes the files of a bundle into a directory, where eval can read them. Their names come out of the log,
// which may have been altered: no file is written outside the directory.
func writeBundle(dir string, files map[string][]byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for name, content := range files {
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := root.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
