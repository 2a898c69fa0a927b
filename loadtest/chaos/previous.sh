#!/usr/bin/env bash
# Builds the gateway and the order-writer of an earlier commit, for `make rollout`:
#   previous.sh COMMIT FOLDER
# Its scripts get a line of their own, so that they differ from today's also when nothing has
# changed them since.
set -euo pipefail
commit=$1 folder=$2

rm -rf "$folder/source"
mkdir -p "$folder/source"
git archive "$commit" | tar -x -C "$folder/source"
for script in "$folder"/source/lua/*.lua; do
  echo '-- an earlier release' >>"$script"
done
# Its own target folder: a copy of a tree that is built into the same one shares its fingerprints.
target=$(cd "$folder" && pwd)/target
cd "$folder/source"
CARGO_TARGET_DIR=$target cargo build --locked --bins -p dropgate-gateway -p dropgate-order-writer
