package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

type object map[string]any

func component(kind, name, version string) object {
	url := "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")
	return object{"type": kind, "bom-ref": url, "purl": url, "name": name, "version": version}
}

// billOf lists the modules of the binaries, by the lines that the go command wrote into each: a module that only some platforms need
// is in it, too. It is CycloneDX 1.6, in which number and time may be left out: SPDX wants a name that is never used again.
func billOf(binaries []binary) ([]byte, error) {
	first := binaries[0]
	ours := component("application", first.info.Main.Path, first.Version)
	ours["licenses"] = []object{{"license": object{"id": "Apache-2.0"}}}
	metadata := object{"component": ours}
	if first.Time != "" {
		metadata["timestamp"] = first.Time
	}
	components := map[string]object{"stdlib": component("library", "stdlib", strings.TrimPrefix(first.Go, "go"))}
	for _, binary := range binaries {
		for _, m := range binary.info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := component("library", m.Path, m.Version)
			// As in go.sum: of a module's files with their names. It is of no single file, and so no hash of CycloneDX.
			c["properties"] = []object{{"name": "go.sum", "value": m.Sum}}
			components[m.Path] = c
		}
	}
	var sorted []object
	for _, path := range slices.Sorted(maps.Keys(components)) {
		sorted = append(sorted, components[path])
	}
	text, err := json.MarshalIndent(object{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": metadata, "components": sorted}, "", "  ")
	return append(text, '\n'), err
}
