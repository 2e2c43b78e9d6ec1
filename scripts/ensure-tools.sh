#!/bin/sh
# The tests run against a real etcd, make certificates for it, and look at the agent's page in a real Chromium. Installs
# Debian's packages where a command is missing; says what to do where that cannot be done. Does nothing, quickly, when all
# are there.
set -eu

# etcdctl also restores snapshots: in etcd 3.4 that is its business, not etcdutl's.
missing=''
for command in etcd etcdctl openssl chromium; do
  command -v "$command" >/dev/null 2>&1 || missing="$missing $command"
done
[ -n "$missing" ] || exit 0

give_up() {
  echo "ensure-tools: $1" >&2
  echo 'The tests need etcd 3.4 or later, openssl and Chromium: put `etcd`, `etcdctl`, `openssl` and `chromium` on the PATH, then run them again.' >&2
  exit 1
}

command -v apt-get >/dev/null 2>&1 || give_up "there is no$missing here, and no apt-get to install it with"

as_root=''
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || give_up "there is no$missing here, and installing it needs root"
  as_root='sudo -n'
fi

export DEBIAN_FRONTEND=noninteractive
install() {
  # The service that the package would start is of no use to the tests, and would hold the usual ports.
  RUNLEVEL=1 $as_root apt-get install -y --no-install-recommends etcd-server etcd-client openssl chromium >/dev/null
}
install || { $as_root apt-get update >/dev/null && install; } ||
  give_up 'apt-get could not install etcd-server, etcd-client, openssl and chromium'
echo "ensure-tools: installed$missing"
