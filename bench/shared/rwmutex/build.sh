#!/usr/bin/env bash
# Builds the readers of a Go map under a lock. Uses the Go of PATH, or that of the source tree which
# `scripts/apiserver/build.sh --keep` leaves. If the binary exists and is not older than its source, does nothing.
# Prints its path. Fails if there is no Go.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/datapath-cache
binary=$cache/rwmutex-readers
if [ -x "$binary" ] && [ -z "$(find "$here" -name '*.go' -newer "$binary")" ]; then
  echo "$binary"
  exit 0
fi
kept=$cache/kube-apiserver-build/tools/usr/lib/go-1.19/bin
go=$(command -v go || command -v "$kept/go") || { echo "there is no Go" >&2; exit 1; }
mkdir -p "$cache"
GO111MODULE=off CGO_ENABLED=0 GOFLAGS= nice -n 10 "$go" build -trimpath -ldflags '-s -w' -o "$binary.new" "$here/main.go" >&2
mv "$binary.new" "$binary"
echo "$binary"
