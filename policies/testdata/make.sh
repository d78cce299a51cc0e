#!/bin/sh
# Keeps the bundles of a release, so that what loads today loads tomorrow: make.sh REPOSITORY REVISION
#
# It makes of-COMMIT beside this script: the bundles of policies/ as they were at that commit, and answers.ndjson, with
# what that commit's own code answers to each of their tests. TestReleases loads every of-… there, and holds its answers
# to these. A release adds its own with the commit that is tagged:
#
#	sh policies/testdata/make.sh . v1.2.0 && go test ./policies -run Releases
#
# Nothing that is kept is ever made anew or edited: a difference is a fault of the code, or it stands in the list of
# changes as one that breaks bundles.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$1
commit=$(git -C "$repository" rev-parse --verify "$2^{commit}" | cut -c 1-7)
out=$here/of-$commit
[ ! -e "$out" ] || { echo "make.sh: $out is there already, and stays as it is" >&2; exit 1; }
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git -C "$repository" archive "$commit" | tar -x -C "$tree"
mkdir "$tree/cmd/kept" "$tree/kept"
cp "$here/make.go.txt" "$tree/cmd/kept/main.go"
for bundle in "$tree"/policies/*/bundle.yaml; do
	cp -R "$(dirname "$bundle")" "$tree/kept/"
done
(cd "$tree" && go run -buildvcs=false ./cmd/kept kept >answers.ndjson)
mv "$tree/answers.ndjson" "$tree/kept/"
mv "$tree/kept" "$out"
