#!/usr/bin/env bash
# Builds kube-apiserver 1.20.2 from Debian's source package with Debian's Go, both unpacked into the cache folder:
# nothing is installed, and root is not required. Uses about 8 minutes of CPU, 1.3 GB of memory and 2 GB of disk, and
# keeps 110 MB. Also builds render-manifests, which renders the manifests of deploy/. If both exist, does nothing.
# Prints the path of kube-apiserver.
#   build.sh --keep   also keeps or downloads the source tree, from which bench/kubernetes/client-go is built
set -euo pipefail

keep=no
[ "${1:-}" != --keep ] || keep=yes

version='1.20.5+really1.20.2-1.1+deb12u1'
cache=${XDG_CACHE_HOME:-$HOME/.cache}/datapath-cache
binary=$cache/kube-apiserver-1.20.2/kube-apiserver
renderer=$cache/kube-apiserver-1.20.2/render-manifests
renderer_source=$(cd "$(dirname "$0")" && pwd)/render.go
work=$cache/kube-apiserver-build
# Compares contents, because a new clone is newer than every earlier build.
if [ -x "$binary" ] && [ -x "$renderer" ] && cmp -s "$renderer_source" "$renderer.go" &&
  { [ $keep = no ] || [ -e "$work/whole" ]; }; then
  echo "$binary"
  exit 0
fi

give_up() {
  echo "apiserver: $1" >&2
  exit 1
}
for command in apt-get dpkg dpkg-source curl openssl; do
  command -v "$command" >/dev/null 2>&1 || give_up "there is no $command here; a kube-apiserver 1.20.2 put at $binary will do"
done

mkdir -p "$work/lists/partial" "$work/archives" "$work/tools" "$(dirname "$binary")"
cd "$work"

# A separate list of Debian 12 sources, in addition to those of the machine.
cat >sources.list <<'LIST'
deb http://deb.debian.org/debian bookworm main
deb-src http://deb.debian.org/debian bookworm main
deb-src http://deb.debian.org/debian bookworm-updates main
deb-src http://deb.debian.org/debian-security bookworm-security main
LIST
apt() {
  apt-get -q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o "Dir::State::Lists=$work/lists" -o APT::Sandbox::User=root "$@"
}
apt update >&2

if [ ! -x tools/usr/lib/go-1.19/bin/go ]; then
  (cd archives && apt download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev >&2)
  for package in archives/*.deb; do dpkg -x "$package" tools; done
fi
if [ ! -d source ]; then
  apt source --download-only "kubernetes=$version" >&2
  dpkg-source --no-check -x kubernetes_*.dsc source.new >&2
  mv source.new source
fi

# Module mode fails ("updates to go.mod needed"), so the tree is built in GOPATH mode, in which its vendor folder is
# complete.
mkdir -p gopath/src/k8s.io
ln -sfn "$work/source" gopath/src/k8s.io/kubernetes
export GOROOT=$work/tools/usr/lib/go-1.19 GO111MODULE=off GOPATH=$work/gopath GOCACHE=$work/gocache CGO_ENABLED=0 GOFLAGS=
export PATH=$GOROOT/bin:$PATH
cd gopath/src/k8s.io/kubernetes

# With Go 1.18 or later, the vendored reflect2 1.0.1 crashes at the first custom resource.
rm -rf vendor/github.com/modern-go/reflect2
cp -r "$work/tools/usr/share/gocode/src/github.com/modern-go/reflect2" vendor/github.com/modern-go/
touch "$work/whole"

mkdir -p cmd/render-manifests
cp "$renderer_source" cmd/render-manifests/main.go
nice -n 10 go build -trimpath -ldflags '-s -w' -o "$renderer" ./cmd/render-manifests >&2
cp "$renderer_source" "$renderer.go"
build_apiserver() {
  # The generated OpenAPI definitions are not in the package.
  if [ ! -s pkg/generated/openapi/zz_generated.openapi.go ]; then
    go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    inputs=$(
      find pkg staging/src/k8s.io -name '*.go' -exec grep -l '+k8s:openapi-gen=' {} + |
        grep -v 'code-generator\|sample-apiserver\|/zz_generated\|_test\.go\|/testdata/\|/_examples/' |
        xargs -n1 dirname | LC_ALL=C sort -u | sed 's#^staging/src/#vendor/#; s#^#k8s.io/kubernetes/#' | paste -sd,
    )
    "$work/openapi-gen" --logtostderr -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -O zz_generated.openapi \
      -p k8s.io/kubernetes/pkg/generated/openapi -i "$inputs" -r "$work/violations.report" >&2
  fi

  package=k8s.io/kubernetes/vendor/k8s.io
  stamp="-X $package/component-base/version.gitVersion=v1.20.2 -X $package/component-base/version.gitMajor=1 -X $package/component-base/version.gitMinor=20"
  nice -n 10 go build -trimpath -ldflags "-s -w $stamp" -o "$binary.new" ./cmd/kube-apiserver >&2
  mv "$binary.new" "$binary"
}

[ -x "$binary" ] || build_apiserver
[ $keep = yes ] || { cd "$cache" && chmod -R u+w kube-apiserver-build && rm -rf kube-apiserver-build; }
echo "$binary"
