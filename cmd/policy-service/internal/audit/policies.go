package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"policy-service/pdp"
)

// policyThen is a policy as it stood when the decision was made.
type policyThen struct {
	ID       string `json:"id"`
	Effect   string `json:"effect,omitempty"`
	Position string `json:"position,omitempty"`
	Text     string `json:"text,omitempty"`
}

// policiesThen finds policies by id in the files of a bundle, which the log keeps by their hash.
func policiesThen(files map[string][]byte, ids []string) ([]policyThen, error) {
	dir, err := os.MkdirTemp("", "policy-service-bundle-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := writeBundle(dir, files); err != nil {
		return nil, err
	}
	bundle, problems := pdp.Load(pdp.Dir(dir))
	if bundle == nil { // it loaded then: this program reads bundles otherwise than the one that decided
		return nil, fmt.Errorf("the bundle of then does not load today: %w", problems)
	}
	all := bundle.Policies()
	then := make([]policyThen, 0, len(ids))
	for _, id := range ids {
		i := slices.IndexFunc(all, func(p pdp.PolicyInfo) bool { return p.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("the bundle of then has no policy %q", id)
		}
		then = append(then, policyThen{
			ID:       id,
			Effect:   all[i].Effect,
			Position: all[i].Position,
			Text:     textOf(all[i], all, files),
		})
	}
	return then, nil
}

// textOf is the file from this policy to the next one, without the comments above the next one.
func textOf(p pdp.PolicyInfo, all []pdp.PolicyInfo, files map[string][]byte) string {
	file, start := place(p)
	lines := strings.Split(string(files[file]), "\n")
	end := len(lines)
	for _, other := range all {
		if f, line := place(other); f == file && line > start {
			end = min(end, line-1)
		}
	}
	if start < 1 || start > end {
		return ""
	}
	text := lines[start-1 : end]
	for len(text) > 0 && beside(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return strings.Join(text, "\n")
}

func beside(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.HasPrefix(line, "//")
}

// place splits file:line:column. The name of a file may hold colons itself.
func place(p pdp.PolicyInfo) (file string, line int) {
	parts := strings.Split(p.Position, ":")
	if len(parts) < 3 {
		return "", 0
	}
	line, _ = strconv.Atoi(parts[len(parts)-2])
	return strings.Join(parts[:len(parts)-2], ":"), line
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
