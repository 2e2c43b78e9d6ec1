#!/bin/sh
# Builds the image of Dockerfile with buildah, starts an agent in it as the image's user, reads the agent's status, and
# stops it. The base image is made here, because no image registry is required: Debian 12 by mmdebstrap, Node.js and npm
# as npm packages. Requires root, buildah and mmdebstrap (apt-get install buildah mmdebstrap). Uses 2 minutes and 2 GB
# of disk, which are freed at the end.
set -eu
cd "$(dirname "$0")/.."

give_up() {
  echo "test-image: $1" >&2
  exit 1
}
for command in buildah mmdebstrap npm; do
  command -v "$command" >/dev/null 2>&1 || give_up "$command is missing: apt-get install buildah mmdebstrap"
done
[ "$(id -u)" = 0 ] || give_up 'not run as root: buildah and mmdebstrap change the root folder of their processes'

base=$(sed -n 's/^FROM \(node:[^ ]*\)$/\1/p' Dockerfile)
line=$(echo "$base" | sed 's/^node:\([0-9]*\)-.*/\1/')
distribution=$(echo "$base" | sed 's/^node:[0-9]*-\(.*\)-slim$/\1/')
system=$(node -p 'process.platform + "-" + process.arch')
certificates=/etc/ssl/certs/ca-certificates.crt

work=$(mktemp -d "${TMPDIR:-/tmp}/dpcache-image.XXXXXX")
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
in_store() {
  command=$1
  shift
  buildah --root "$work/store" --runroot "$work/run" "$command" "$@"
}
trap 'in_store rm --all >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
# Without this, sh would not run the action of EXIT after a signal.
trap 'exit 130' INT TERM

echo "test-image: the base image $base"
mmdebstrap --quiet --variant=minbase --include=ca-certificates "$distribution" "$work/base.tar" http://deb.debian.org/debian
npm install --silent --prefix "$work/npm" --ignore-scripts --no-package-lock "node-$system@$line" npm@11 >/dev/null
container=$(in_store from scratch)
in_store add -q "$container" "$work/base.tar" / >/dev/null
in_store copy -q "$container" "$work/npm/node_modules/node-$system/bin/node" /usr/local/bin/node >/dev/null
in_store copy -q "$container" "$work/npm/node_modules/npm" /usr/local/lib/node_modules/npm >/dev/null
in_store run "$container" -- ln -s /usr/local/lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
# A machine with its own registry or certificate authority passes both on to the build.
in_store config --env "NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-}" "$container"
in_store commit -q --rm "$container" "localhost/$base" >/dev/null

set --
[ ! -f "$HOME/.npmrc" ] || set -- "$@" -v "$HOME/.npmrc:/root/.npmrc:ro"
[ ! -f "$certificates" ] || set -- "$@" -v "$certificates:$certificates:ro"
echo 'test-image: the image of Dockerfile'
in_store build --pull-never --network host "$@" -t localhost/dpcache . >"$work/build.log" 2>&1 || {
  tail -n 30 "$work/build.log" >&2
  give_up 'the build failed'
}

container=$(in_store from --pull-never localhost/dpcache)
run() {
  in_store run "$container" -- "$@"
}
version=$(run dpcache --version)
[ "$version" = "$(node -p "require('./package.json').version")" ] || give_up "dpcache --version prints '$version'"
[ "$(run id -u)" = 65532 ] || give_up 'the image does not run as user 65532'
for command in operator kvstoremesh; do
  run dpcache "$command" --help >/dev/null || give_up "dpcache $command --help failed"
done
# Without an optional dependency the agent would refuse --datapath linux: see that the image has it.
run node -e 'import("koffi").then(() => {})' || give_up 'koffi is not in the image'
run sh -c '
  cd /opt/datapath-cache
  dpcache agent --follow-nothing --node-name node-1 --socket /tmp/agent.sock --log-format json >/tmp/agent.log 2>&1 &
  agent=$!
  for attempt in $(seq 100); do
    [ -S /tmp/agent.sock ] && break
    sleep 0.2
  done
  dpcache ipcache list --count --socket /tmp/agent.sock && kill -TERM $agent && wait $agent
' || give_up 'the agent did not start, answer and stop'
size=$(du -sm "$(in_store mount "$container")/opt/datapath-cache" | cut -f 1)
echo "test-image: passed; dpcache $version, $size MB beside Node.js and Debian"
