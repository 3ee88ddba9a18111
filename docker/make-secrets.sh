#!/bin/sh
# Makes the secrets of docker-compose.yml, once: what is there stays as it is.
#
# Containers see each file as it is on this host, and run as users that this host does not know: so the files may be
# read by all, and the folder may be entered by its owner alone.
set -eu
folder=${1:-$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)/secrets}
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

# keep NAME TEXT
keep() {
    [ -s "$1" ] && return
    printf '%s\n' "$2" >"$1.partial"
    chmod 444 "$1.partial"
    mv "$1.partial" "$1"
    printf 'made %s/%s\n' "$folder" "$1" >&2
}

keep token "$(random)"
keep postgres_password "$(random)"
keep database_url "postgresql+psycopg://tunesmith:$(cat postgres_password)@postgres:5432/tunesmith"
keep valkey.conf "requirepass $(random)"
keep broker_url "redis://:$(sed -n 's/^requirepass //p' valkey.conf)@valkey:6379/0"
keep blob_access_key "$(random)"
keep blob_secret_key "$(random)"
identity='{"identities": [{"name": "tunesmith", "credentials": [{"accessKey": "%s", "secretKey": "%s"}],'
# shellcheck disable=SC2059
keep s3.json "$(printf "$identity" "$(cat blob_access_key)" "$(cat blob_secret_key)") \"actions\": [\"Admin\", \"Read\", \"List\", \"Tagging\", \"Write\"]}]}"
keep grafana_password "$(random)"
# Prometheus asks with a token of its own; docs/how-to/deploy.md tells how to make it once the API runs.
keep metrics_token "none-yet"
