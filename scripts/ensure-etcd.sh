#!/bin/sh
# The tests of the kvstore run against a real etcd. Installs Debian's packages where there is none; says what to
# do where that cannot be done. Does nothing, quickly, when etcd and etcdctl are there.
set -eu

if command -v etcd >/dev/null 2>&1 && command -v etcdctl >/dev/null 2>&1; then
  exit 0
fi

give_up() {
  echo "ensure-etcd: $1" >&2
  echo 'The tests need etcd 3.4 or later: put `etcd` and `etcdctl` on the PATH, then run them again.' >&2
  exit 1
}

command -v apt-get >/dev/null 2>&1 || give_up 'there is no etcd here, and no apt-get to install it with'

as_root=''
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || give_up 'there is no etcd here, and installing it needs root'
  as_root='sudo -n'
fi

export DEBIAN_FRONTEND=noninteractive
install() {
  # The service that the package would start is of no use to the tests, and would hold the usual ports.
  RUNLEVEL=1 $as_root apt-get install -y --no-install-recommends etcd-server etcd-client >/dev/null
}
install || { $as_root apt-get update >/dev/null && install; } || give_up 'apt-get could not install etcd-server and etcd-client'
echo 'ensure-etcd: installed etcd'
