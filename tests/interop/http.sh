#!/usr/bin/env bash
# An agent that does the first handoff that waits for it, over HTTP alone, with curl and OpenSSL 3 (proto/README.md, section 9.5):
#
#   TOKEN=$(deed token create NAME --role writer) ./http.sh URL KEY_FILE EVIDENCE
#
# KEY_FILE is the unsealed key file of the agent (.deedbook/keys/NAME.key), URL the address of `deed serve --web`. The
# script signs only bytes that it made itself. It checks no receipts: it believes the server what waits for it and that
# its events were accepted.
set -euo pipefail
url=$1 key_file=$2 evidence=$3
event_type=application/vnd.deedbook.event.v1+json batch_type=application/vnd.deedbook.batch.v1

# Print the first text or number with this name in compact JSON. In JSON, a quote inside a text is always written \", so
# text by other agents cannot contain `"NAME":`.
field() {
  { grep -o "\"$1\":[^,}]*" || true; } | head -n 1 | cut -d : -f 2- | tr -d '"'
}

# Print a text as JSON.
json() {
  case $1 in *[[:cntrl:]]*) echo "control characters are not supported: $1" >&2; exit 2 ;; esac
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

# call PATH OPTION...: put the server's answer into $work/answer, or print its error and end. curl sends again after 503.
call() {
  curl -sS --fail-with-body --retry 5 --config "$work/curl" -o "$work/answer" "$url$1" "${@:2}" ||
    { cat "$work/answer" >&2; exit 1; }
}

# submit KIND STREAM DATA: sign an event, send it, and print the index of its entry.
submit() {
  local salt
  # Base64url without padding. OpenSSL writes standard base64.
  salt=$(openssl rand -base64 16 | tr '+/' '-_' | tr -d '=')
  printf '{"at":"%s","author":"%s","causes":[],"data":%s,"kind":"%s","ledger":"%s","salt":"%s","stream":"%s"}' \
    "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$name" "$3" "$1" "$ledger" "$salt" "$2" > "$work/body"
  # One event: its commitment is the root.
  { printf '\0DSSEv1 %d %s %d ' "${#event_type}" "$event_type" "$(wc -c < "$work/body")"; cat "$work/body"; } |
    openssl dgst -sha256 -binary > "$work/commitment"
  { printf '\0\0\0\0\0\0\0\1'; cat "$work/commitment"; } > "$work/payload"
  { printf 'DSSEv1 %d %s 40 ' "${#batch_type}" "$batch_type"; cat "$work/payload"; } > "$work/pae"
  openssl pkeyutl -sign -rawin -inkey "$work/key.pem" -in "$work/pae" -out "$work/signature"
  printf '{"payloadType":"%s","payload":"%s","signatures":[{"keyid":"ed25519:%s","sig":"%s"}],"bodies":["%s"]}' \
    "$batch_type" "$(base64 -w 0 "$work/payload")" "$public" "$(base64 -w 0 "$work/signature")" \
    "$(base64 -w 0 "$work/body")" > "$work/envelope"
  call /v1/entries -H 'Content-Type: application/json' --data-binary "@$work/envelope"
  echo "$1 is entry $(field index < "$work/answer")"
}

work=$(umask 077 && mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'header = "Authorization: Bearer %s"\n' "$TOKEN" > "$work/curl" # not an argument, which other users can see
ledger=$(field ledger < "$key_file") name=$(field name < "$key_file") public=$(field public < "$key_file")
seed=$(field seed < "$key_file")
# RFC 8410: the ASN.1 around a raw Ed25519 seed.
printf '%b' "$(printf '302e020100300506032b657004220420%s' "$seed" | sed 's/../\\x&/g')" |
  openssl pkey -inform DER -out "$work/key.pem"

quoted=$(json "$evidence") summary=$(json "Done over HTTP: $evidence")

call "/v1/handoffs/next?agent=$name"
id=$(field id < "$work/answer")
[[ $id =~ ^[A-Za-z0-9._-]+$ ]] || { echo "nothing waits for $name" >&2; exit 3; }
if [[ $(field act < "$work/answer") == claim ]]; then
  submit handoff.claimed "handoff/$id" '{"lease_seconds":3600}'
fi
call "/v1/handoffs/show?id=$id"
# Here a real agent would do the work.
total=$(field criteria_total < "$work/answer")
for ((position = 0; position < total; position++)); do
  submit handoff.criterion_checked "handoff/$id" \
    "{\"checked\":true,\"evidence\":$quoted,\"position\":$position}"
done
submit handoff.completed "handoff/$id" "{\"summary\":$summary}"
