#!/bin/sh
# Runs the tests on each supported release line of Node.js, one after another, and prints one line for each at the end.
# The binaries are npm packages, installed once into node_modules/.cache/nodes. Exits with 1 if the tests fail on one of
# them.
#   npm run test:nodes -- test/api            arguments are passed to Vitest
#   NODES='24 26' npm run test:nodes          only these lines
set -u
cd "$(dirname "$0")/.." || exit 1

cache=${NODES_CACHE:-$PWD/node_modules/.cache/nodes}
system=$(node -p 'process.platform + "-" + process.arch') || exit 1
status=0
report=''
for line in ${NODES:-20 22 24 26}; do
  bin=$cache/$line/node_modules/.bin
  if [ ! -x "$bin/node" ]; then
    mkdir -p "$cache/$line"
    echo '{ "private": true }' >"$cache/$line/package.json"
    npm install --prefix "$cache/$line" --ignore-scripts --no-package-lock "node-$system@$line" >/dev/null
  fi
  if ! version=$("$bin/node" --version); then
    report="$report
Node.js $line: not run, because npm could not install node-$system@$line"
    status=1
  elif PATH="$bin:$PATH" node node_modules/vitest/vitest.mjs run "$@"; then
    report="$report
Node.js $version: passed"
  else
    report="$report
Node.js $version: failed"
    status=1
  fi
done
echo "$report"
exit $status
