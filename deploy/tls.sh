#!/bin/sh
# Makes certificates for the servers of a cluster and for HTTPS, signed by an authority of your own.
#
#   deploy/tls.sh DIR NAME=HOST[,HOST…] …      tls.sh /etc/deedbook/tls r3-a=a.example.org,10.0.0.1 r3-b=b.example.org
#
# Writes DIR/NAME.pem and DIR/NAME.key; the first call also writes DIR/ca.pem and DIR/ca.key. A later call makes new
# certificates under the same authority: to renew them, or for another server. Copy to each machine its own two files
# and ca.pem. `tls` of the table [cluster] and `deed deploy nats-config --tls` name their folder there.
# NAME is the node's name; for `deed serve --tls` it is any. DIR/ca.key decides which servers may join the cluster, so keep it offline.
set -eu
umask 077
years_ca=10 days=398
fail() { echo "tls.sh: $1" >&2; exit 2; }

[ $# -ge 2 ] || fail "usage: tls.sh DIR NAME=HOST[,HOST...] ..."
dir=$1; shift
for server in "$@"; do
  case $server in
    *[!A-Za-z0-9.,:=-]*|=*|*=|*=*=*|.*|-*) fail "$server is not NAME=HOST[,HOST...]" ;;
    ca=*|*[,:]*=*) fail "a server cannot be named ${server%%=*}" ;;
    *=*) ;;
    *) fail "$server names no host" ;;
  esac
done
mkdir -p "$dir"
key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

[ ! -e "$dir/ca.pem" ] || [ -e "$dir/ca.key" ] || fail "$dir has ca.pem but no ca.key: copy the key there first"
if [ ! -e "$dir/ca.pem" ]; then
  key "$dir/ca.key.new"
  openssl req -x509 -new -key "$dir/ca.key.new" -sha256 -days $((years_ca * 365)) -subj "/CN=Deedbook routes" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$dir/ca.pem.new"
  # The certificate comes last: after a crash without it, the next call starts again, and nothing was signed yet.
  mv "$dir/ca.key.new" "$dir/ca.key" && mv "$dir/ca.pem.new" "$dir/ca.pem"
fi

for server in "$@"; do
  name=${server%%=*} hosts=${server#*=} names=
  for host in $(echo "$hosts" | tr , ' '); do
    case $host in *:*) kind=IP ;; *[!0-9.]*) kind=DNS ;; *) kind=IP ;; esac
    names="$names${names:+,}$kind:$host"
  done
  key "$dir/$name.key.new"
  # Both uses, because either server of a route may open the connection.
  { echo "subjectAltName=$names"; echo "basicConstraints=critical,CA:FALSE"; echo "keyUsage=critical,digitalSignature"
    echo "extendedKeyUsage=serverAuth,clientAuth"; echo "authorityKeyIdentifier=keyid"; } >"$dir/$name.ext"
  openssl req -new -key "$dir/$name.key.new" -subj "/CN=$name" |
    openssl x509 -req -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -sha256 -days "$days" -extfile "$dir/$name.ext" \
      -set_serial "0x$(openssl rand -hex 16)" -out "$dir/$name.pem.new" 2>/dev/null
  rm "$dir/$name.ext"
  mv "$dir/$name.key.new" "$dir/$name.key" && mv "$dir/$name.pem.new" "$dir/$name.pem"
  chmod 644 "$dir/$name.pem" "$dir/ca.pem"
  echo "$dir/$name.pem $dir/$name.key for $hosts"
done
