#!/usr/bin/env bash
# Builds the follower of etcd's Go client in the source tree of the kube-apiserver from
# `scripts/apiserver/build.sh --keep`, whose vendor folder contains that client. If the binary exists and is not older
# than its source, does nothing. Prints its path.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/datapath-cache
work=$cache/kube-apiserver-build
binary=$cache/kube-apiserver-1.20.2/etcd-client-v3-follower
if [ -x "$binary" ] && [ -z "$(find "$here" -name '*.go' -newer "$binary")" ]; then
  echo "$binary"
  exit 0
fi
if [ ! -e "$work/whole" ]; then
  echo "etcd client v3: there is no source tree: scripts/apiserver/build.sh --keep leaves one" >&2
  exit 1
fi

folder=$work/gopath/src/k8s.io/kubernetes/cmd/etcd-client-v3-follower
rm -rf "$folder"
mkdir -p "$folder"
cp "$here"/*.go "$folder"

export GOROOT=$work/tools/usr/lib/go-1.19 GO111MODULE=off GOPATH=$work/gopath GOCACHE=$work/gocache CGO_ENABLED=0 GOFLAGS=
export PATH=$GOROOT/bin:$PATH
cd "$work/gopath/src/k8s.io/kubernetes"
nice -n 10 go build -trimpath -ldflags '-s -w' -o "$binary.new" ./cmd/etcd-client-v3-follower >&2
mv "$binary.new" "$binary"
echo "$binary"
