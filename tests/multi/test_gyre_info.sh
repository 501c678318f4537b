#!/bin/bash
# test_gyre_info.sh BUILD_DIR SOURCE_DIR - listing, JSON, statuses; docs/settings.md is up to date.
set -u
info=${GYRE_INFO:-$1/tools/gyre-info}
source_dir=$2
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
unset ${!GYRE_@}
failed=0

bad() { echo "FAILED: $*"; failed=1; }
launch() { "$info" "$@" >"$dir/out" 2>"$dir/err"; status=$?; }
status_is() { [ "$status" = "$1" ] || { bad "status $status, not $1"; cat "$dir/err"; }; }
prints() { grep -qE -- "$1" "$dir/out" || bad "standard output has no $1"; }
says() { grep -qF -- "$1" "$dir/err" || { bad "standard error has no \"$1\":"; cat "$dir/err"; }; }

launch
status_is 0
[ ! -s "$dir/err" ] || bad "standard error is not empty"
prints '^Gyre [0-9]+\.[0-9]+\.[0-9]+ \(libuv [0-9.]+, OpenSSL [0-9.]+'
prints '^  cores +[1-9]'
prints '^  kernels +(scalar|avx2|avx512|neon)$'
prints '^Spin +50 us before sleeping \(automatic\)'
prints '^  tcp +usable: listens on .*127\.0\.0\.1.*loopback only'
prints '^  lo +127\.0\.0\.1/8 up$'
prints '^  GYRE_OP_TIMEOUT_MS +300000$'
prints '^  GYRE_WINDOW +\(automatic\)$'

GYRE_WINDOW=7 GYRE_SECRET=sesame GYRE_SPIN_US=9 GYRE_CPU=scalar launch
status_is 0
prints '^\* GYRE_WINDOW +7$'
prints '^\* GYRE_SECRET +\(set\)$'
prints '^Spin +9 us before sleeping;'
prints '^  kernels +scalar$'
grep -q sesame "$dir/out" && bad "the secret is shown"

launch --json
status_is 0
for key in version libuv openssl cpu cores features kernels spin_us transports interfaces settings; do
  prints "\"$key\": "
done
prints '"name": "GYRE_WINDOW", "value": null, "default": null, "given": false, "scope": "agreed"'
names=$(grep -o '"name": "GYRE_[A-Z_]*"' "$dir/out" | wc -l)
launch
[ "$names" = "$(grep -c '^[ *] GYRE_' "$dir/out")" ] || bad "text and JSON list different settings"
if command -v python3 >/dev/null; then
  (cd "$dir" && GYRE_SECRET=sesame GYRE_LOG_FILE=$'q"\\\xff\xc3\xa9\t' "$info" --json >out) || bad "JSON of an odd value"
  python3 - "$dir/out" <<'PYTHON' || bad "JSON is not valid"
import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
value = {s["name"]: s["value"] for s in d["settings"]}
assert value["GYRE_LOG_FILE"] == 'q"\\\ufffd\u00e9\t', value
assert value["GYRE_SECRET"] == "(set)" and d["transports"][0]["usable"] is True
PYTHON
fi

while IFS='|' read -r setting text; do
  # shellcheck disable=SC2086  # two settings are two words
  env $setting "$info" >"$dir/out" 2>"$dir/err"
  status=$?
  status_is 1
  says "$text"
  [ ! -s "$dir/out" ] || bad "output in spite of $setting"
done <<'CASES'
GYRE_WINDOW=0x9|gyre-info: GYRE_WINDOW=0x9: must be a whole number from 1 to 64
GYRE_ALGO=nonsense|GYRE_ALGO
GYRE_RENDEZVOUS=nowhere|GYRE_RENDEZVOUS
GYRE_CPU=vax|GYRE_CPU=vax: must be one of
GYRE_SECRET_FILE=/nonexistent|No such file or directory
GYRE_ADVERTISE=foo|GYRE_ADVERTISE=foo must be a numeric address
GYRE_RANK=5 GYRE_WORLD_SIZE=2|GYRE_RANK=5: must be less than GYRE_WORLD_SIZE=2
GYRE_TCP_CONGESTION=pigeon|GYRE_TCP_CONGESTION=pigeon: must be auto or a name that this kernel offers
CASES
GYRE_IFACE=nonexistent0 launch
status_is 1
prints '^  tcp +not usable: .*nonexistent0'
GYRE_WINDWO=1 launch
status_is 0
says "did you mean GYRE_WINDOW?"

launch --nonsense
status_is 2
launch extra
status_is 2
launch --job
status_is 2
launch --job "$dir/absent" "$dir"
status_is 1
grep -qF -- 'built without --job' "$dir/err" || { says "absent: No such file"; says "Is a directory"; }
launch --help
status_is 0
prints '^usage: gyre-info'
launch --version
status_is 0
"$info" --json >/dev/full 2>"$dir/err"
[ $? = 1 ] || bad "success although standard output is full"

launch --settings-markdown
status_is 0
diff -u "$source_dir/docs/settings.md" "$dir/out" ||
  bad "docs/settings.md is not what gyre-info --settings-markdown prints: make it anew"

[ $failed = 0 ] && echo "all passed"
exit $failed
