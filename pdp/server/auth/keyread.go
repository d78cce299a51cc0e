package auth

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"policy-service/pdp/plainfile"
)

// sameFile needs no content: every change makes a new file, and a longer one.
func sameFile(a, b fs.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func readKeyFile(dir string) ([]storedKey, map[string]*key, error) {
	content, err := plainfile.Read(filepath.Join(dir, keyFileName), maxKeyFile)
	if err != nil {
		return nil, nil, err
	}
	file, err := parseKeyFile(content)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", keyFileName, err)
	}
	byID := make(map[string]*key, len(file.Keys))
	for _, stored := range file.Keys {
		hash, err := stored.hash()
		if err != nil {
			return nil, nil, err
		}
		caller := stored.caller("key:" + stored.Name)
		caller.Principal = stored.Principal
		byID[stored.ID] = &key{hash, caller, !stored.Revoked.IsZero()}
	}
	return file.Keys, byID, nil
}

// report logs changes, not states: a broken file is one line, not one a request.
func (k *Keys) report(before, now error) {
	switch log := k.log.Load(); {
	case now != nil && (before == nil || before.Error() != now.Error()):
		log.Error("every caller is refused until the API keys can be read", "error", now)
	case now == nil && before != nil:
		log.Info("the API keys can be read again")
	}
}
