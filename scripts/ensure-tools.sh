#!/bin/sh
# Installs missing programs of the tests: etcd, openssl, Chromium for the agent's page, zstd for endpoint slices, and
# the promtool of Prometheus for metrics and alert rules. On Linux also those of the datapath: clang, to compare the
# compiled BPF programs with the committed images, and bpftool, nft, ip, ss and ping, to verify the kernel. Without
# them, or without privilege, tests of the datapath are skipped; with REQUIRE_DATAPATH=1 they fail. If nothing is
# missing, returns immediately.
set -eu

# etcdctl also restores snapshots, because etcd 3.4 has no etcdutl.
missing=''
for command in etcd etcdctl openssl chromium zstd; do
  command -v "$command" >/dev/null 2>&1 || missing="$missing $command"
done
# The tests use only one file of the package prometheus. It is stored in node_modules, and nothing is installed.
cache="$(cd "$(dirname "$0")/.." && pwd)/node_modules/.cache/promtool"
promtool=''
command -v promtool >/dev/null 2>&1 || [ -x "$cache/promtool" ] || promtool=' promtool'
# The oldest TypeScript that programs may use. It is kept beside the modules, because both would be the command tsc.
typescript="$(cd "$(dirname "$0")/.." && pwd)/node_modules/.cache/typescript-5.2.2"
if [ ! -e "$typescript/node_modules/typescript/bin/tsc" ]; then
  npm install --prefix "$typescript" --ignore-scripts --no-package-lock typescript@5.2.2 >/dev/null || {
    echo 'ensure-tools: npm could not install typescript@5.2.2, which the tests of the package need' >&2
    exit 1
  }
  echo 'ensure-tools: installed typescript@5.2.2'
fi
datapath_packages=''
if [ "$(uname -s)" = Linux ]; then
  for program in clang=clang bpftool=bpftool nft=nftables ip=iproute2 ss=iproute2 ping=iputils-ping unshare=util-linux; do
    # Debian installs some of them into /usr/sbin, which is not in every PATH.
    PATH="$PATH:/usr/sbin:/sbin" command -v "${program%%=*}" >/dev/null 2>&1 || datapath_packages="$datapath_packages ${program#*=}"
  done
fi
[ -n "$missing$promtool$datapath_packages" ] || exit 0

give_up() {
  echo "ensure-tools: $1" >&2
  echo 'The tests need etcd 3.4 or later, openssl, Chromium, zstd and promtool: put `etcd`, `etcdctl`, `openssl`, `chromium`, `zstd` and `promtool` on the PATH, then run them again.' >&2
  exit 1
}

[ -n "$missing$promtool" ] || command -v apt-get >/dev/null 2>&1 || exit 0
command -v apt-get >/dev/null 2>&1 ||
  give_up "there is no$missing$promtool here, and no apt-get to install it with"

as_root=''
if [ "$(id -u)" -ne 0 ]; then
  [ -n "$missing$promtool" ] || command -v sudo >/dev/null 2>&1 || exit 0
  command -v sudo >/dev/null 2>&1 || give_up "there is no$missing$promtool here, and installing it needs root"
  as_root='sudo -n'
fi

export DEBIAN_FRONTEND=noninteractive
install() {
  # The tests do not use the service of the package, which would occupy the default ports.
  RUNLEVEL=1 $as_root apt-get install -y --no-install-recommends etcd-server etcd-client openssl chromium zstd >/dev/null
}
unpack() (
  mkdir -p "$cache" && cd "$cache" &&
    apt-get download prometheus >/dev/null 2>&1 && dpkg-deb -x prometheus_*.deb package &&
    mv package/usr/bin/promtool . && rm -rf package prometheus_*.deb
)
if [ -n "$missing" ]; then
  install || { $as_root apt-get update >/dev/null && install; } ||
    give_up 'apt-get could not install etcd-server, etcd-client, openssl, chromium and zstd'
fi
if [ -n "$promtool" ]; then
  unpack || { $as_root apt-get update >/dev/null && unpack; } ||
    give_up 'apt-get could not download prometheus, which has promtool'
fi
install_datapath_packages() {
  # shellcheck disable=SC2086 # a list of packages
  $as_root apt-get install -y --no-install-recommends $datapath_packages >/dev/null
}
if [ -n "$datapath_packages" ]; then
  install_datapath_packages || { $as_root apt-get update >/dev/null && install_datapath_packages; } || {
    echo "ensure-tools: apt-get could not install$datapath_packages: tests of the Linux datapath will be skipped" >&2
    datapath_packages=''
  }
fi
[ -z "$missing$promtool$datapath_packages" ] || echo "ensure-tools: installed$missing$promtool$datapath_packages"
