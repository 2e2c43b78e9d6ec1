#!/usr/bin/env bash
# Runs a separate etcd and kube-apiserver on the loopback interface.
#   start.sh FOLDER PORT         https at PORT, etcd at PORT+1 and PORT+2; prints one JSON line: url, ca, tokens, pids
#   start.sh --apiserver FOLDER  starts the kube-apiserver again after it was killed
#   start.sh --etcd FOLDER       starts the etcd again
#   start.sh --stop FOLDER
# APISERVER_ARGS are the last arguments, so they override the others.
set -euo pipefail

binary=${XDG_CACHE_HOME:-$HOME/.cache}/datapath-cache/kube-apiserver-1.20.2/kube-apiserver

give_up() {
  echo "apiserver: $1" >&2
  exit 1
}
runs() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

stop_one() {
  if runs "$1"; then
    local pid
    pid=$(cat "$1")
    kill -CONT "$pid" 2>/dev/null || true
    kill -KILL "$pid" 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  fi
  rm -f "$1"
}

start_etcd() {
  runs "$1/etcd.pid" && give_up "the etcd of $1 is running"
  setsid bash "$1/etcd.sh" >>"$1/etcd.log" 2>&1 </dev/null &
  echo $! >"$1/etcd.pid"
}

start_apiserver() {
  runs "$1/apiserver.pid" && give_up "the kube-apiserver of $1 is running"
  setsid bash "$1/apiserver.sh" >>"$1/apiserver.log" 2>&1 </dev/null &
  echo $! >"$1/apiserver.pid"
  for _ in $(seq 600); do
    [ "$(curl -s -m 2 --cacert "$1/ca.crt" -H 'Authorization: Bearer admin-token' "$(cat "$1/url")/readyz" || true)" = ok ] && return
    runs "$1/apiserver.pid" || break
    sleep 0.1
  done
  tail -n 15 "$1/apiserver.log" >&2
  give_up "the kube-apiserver is not ready after a minute: see $1/apiserver.log"
}

case ${1:-} in
--stop)
  stop_one "$2/apiserver.pid"
  stop_one "$2/etcd.pid"
  exit 0
  ;;
--etcd)
  start_etcd "$2"
  exit 0
  ;;
--apiserver)
  start_apiserver "$2"
  exit 0
  ;;
esac

mkdir -p "$1"
folder=$(cd "$1" && pwd)
port=$2
[ -x "$binary" ] || give_up "there is no $binary: scripts/apiserver/build.sh makes it"

cd "$folder"
if [ ! -s apiserver.crt ]; then
  openssl ecparam -name prime256v1 -genkey -noout -out ca.key
  openssl req -x509 -new -key ca.key -subj /CN=test-ca -days 30 -out ca.crt \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
  openssl ecparam -name prime256v1 -genkey -noout -out apiserver.key
  openssl req -new -key apiserver.key -subj /CN=kube-apiserver -out apiserver.csr
  printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n' >extensions
  openssl x509 -req -in apiserver.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile extensions -out apiserver.crt 2>/dev/null
  # A client certificate of an administrator.
  openssl ecparam -name prime256v1 -genkey -noout -out client.key
  openssl req -new -key client.key -subj /O=system:masters/CN=certified -out client.csr
  openssl x509 -req -in client.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out client.crt 2>/dev/null
  openssl genrsa -traditional -out sa.key 2048 2>/dev/null
  # token,user,uid,groups
  printf '%s\n' 'admin-token,admin,admin,"system:masters"' \
    'agent-token,system:serviceaccount:kube-system:agent,agent,"system:serviceaccounts,system:authenticated"' >tokens.csv
fi
echo "https://127.0.0.1:$port" >url

{
  printf 'exec '
  printf '%q ' etcd --name test --data-dir "$folder/etcd" --listen-client-urls "http://127.0.0.1:$((port + 1))" \
    --advertise-client-urls "http://127.0.0.1:$((port + 1))" --listen-peer-urls "http://127.0.0.1:$((port + 2))" \
    --initial-advertise-peer-urls "http://127.0.0.1:$((port + 2))" --initial-cluster "test=http://127.0.0.1:$((port + 2))" \
    --log-level warn --logger zap
} >etcd.sh
start_etcd "$folder"

{
  printf 'exec '
  printf '%q ' "$binary" --etcd-servers="http://127.0.0.1:$((port + 1))" --bind-address=127.0.0.1 --secure-port="$port" \
    --insecure-port=0 --advertise-address=127.0.0.1 --endpoint-reconciler-type=none --tls-cert-file="$folder/apiserver.crt" \
    --tls-private-key-file="$folder/apiserver.key" --client-ca-file="$folder/ca.crt" --cert-dir="$folder" \
    --token-auth-file="$folder/tokens.csv" --authorization-mode=RBAC --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$folder/sa.key" --service-account-signing-key-file="$folder/sa.key" \
    --service-cluster-ip-range=10.96.0.0/12 --disable-admission-plugins=ServiceAccount --v=1
  echo "${APISERVER_ARGS:-}"
} >apiserver.sh
start_apiserver "$folder"
printf '{"url":"%s","ca":"%s","etcd":"http://127.0.0.1:%s","apiserverPid":%s,"etcdPid":%s}\n' \
  "$(cat url)" "$folder/ca.crt" "$((port + 1))" "$(cat apiserver.pid)" "$(cat etcd.pid)"
