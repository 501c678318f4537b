#!/bin/bash
# test_train.sh BUILD SOURCE - gyre-train under gyre-run, on a small data set made here: N ranks take the
# same steps as one, uneven and empty shards included; every failure ends every rank and says why.
set -u
run=$1/tools/gyre-run
train=$1/tools/gyre-train
if [ ! -x "$train" ]; then
  echo "skipped: gyre-train was not built (it needs OpenBLAS and zlib)"
  exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# make_set DIR PART COUNT SEED: images of 8x8, noise with one bright bar whose place is the label.
make_set() {
  mkdir -p "$1"
  awk -v what=images -v count="$3" -v seed="$4" "$generator" | octets > "$1/$2-images-idx3-ubyte"
  awk -v what=labels -v count="$3" -v seed="$4" "$generator" | octets > "$1/$2-labels-idx1-ubyte"
}
octets() { printf '%b' "$(cat)"; }
generator='
  function octet(v) { printf "\\0%03o", v }
  function word(v) { octet(int(v / 16777216) % 256); octet(int(v / 65536) % 256); octet(int(v / 256) % 256); octet(v % 256) }
  function draw(n) { state = (state * 1103515245 + 12345) % 2147483648; return int(state / 65536) % n }
  BEGIN {
    word(what == "images" ? 2051 : 2049); word(count)
    if (what == "images") { word(8); word(8) }
    for (i = 0; i < count; i++) {
      label = (i * 7 + seed) % 10
      if (what == "labels") { octet(label); continue }
      state = seed * 1000 + i
      for (p = 0; p < 64; p++) octet(draw(90) + (int(p / 6) == label ? 160 : 0))
    }
  }'

# ranks N OPTIONS...: output of all ranks in $dir/log, exit status in $status.
ranks() {
  local n=$1
  shift
  "$run" -n "$n" --timeout 60 -- "$train" --data "$dir/data" --hidden 20,16 "$@" > "$dir/log" 2>&1
  status=$?
}

says() { grep -q -e "$1" "$dir/log"; }

# expect_success WHAT / expect_failure WHAT TEXT...: about the last call of `ranks`.
expect_success() {
  [ "$status" -eq 0 ] || { fail "$1: exit status $status"; cat "$dir/log"; }
}
expect_failure() {
  local what=$1 text
  shift
  [ "$status" -ne 0 ] || fail "$what: ended in success"
  [ "$status" -ne 124 ] || fail "$what: hung"
  for text; do
    says "$text" || { fail "$what: no '$text' in the output"; cat "$dir/log"; }
  done
}

make_set "$dir/data" train 203 1
make_set "$dir/data" t10k 50 2

# ------------------------------------------------------------ the same steps on N ranks and on one

# 203 = 6 * 30 + 23: shards of 8, 8, 7 and 7 samples, the last batch 6, 6, 6 and 5.
for n in 1 2 3 4; do
  ranks "$n" --verify --batch 30 --steps 50
  expect_success "$n ranks, batch 30"
  says 'bit-equal on all ranks' || fail "$n ranks: not said to be bit-equal"
done
ranks 4 --verify --batch 101 --epochs 6
expect_success "last batch of one sample: three ranks have none"
ranks 4 --verify --batch 2 --steps 40
expect_success "batches smaller than the number of ranks"
for bucket in 1 2 1024; do
  ranks 4 --verify --batch 30 --steps 30 --bucket-kb "$bucket" --hidden 64,32
  expect_success "buckets of $bucket KiB"
done
# Without ranks at all, as a newcomer runs it.
(unset GYRE_RANK GYRE_WORLD_SIZE; "$train" --data "$dir/data" --verify --steps 20) > "$dir/log" 2>&1
status=$?
expect_success "alone"

# --------------------------------------------------------------------- results, and their equality

ranks 4 --batch 30 --epochs 20 --json "$dir/a.json"
expect_success "training"
ranks 4 --batch 30 --epochs 20 --json "$dir/b.json"
expect_success "training again"
losses() { sed -n 's/.*"event": "step".*"step": \([0-9]*\),.*"loss": \([^,]*\),.*/\1 \2/p' "$1"; }
[ "$(losses "$dir/a.json" | wc -l)" -eq 140 ] || fail "not one JSON line for each of 140 steps"
[ "$(losses "$dir/a.json")" = "$(losses "$dir/b.json")" ] || fail "two equal runs had different losses"
for event in start step epoch end; do
  grep -q "^{\"event\": \"$event\", .*}\$" "$dir/a.json" || fail "no JSON line for '$event'"
done
accuracy=$(sed -n 's/.*"event": "end".*"accuracy": \([0-9.]*\).*/\1/p' "$dir/a.json")
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.8 && a <= 1) }' || fail "accuracy '$accuracy' on an easy data set"
says 'test accuracy [01]\.[0-9]*, training time .* rank 0 waited [0-9.]* %' || fail "no result line"
ranks 2 --steps 5 --quiet
[ "$(wc -l < "$dir/log")" -eq 1 ] || { fail "--quiet prints more than the result"; cat "$dir/log"; }

# ------------------------------------------------------------------------------------- failures

ranks 2 --steps 5 --json "$dir/no/such/file"
expect_failure "unwritable --json" "--json $dir/no/such/file: No such file"
ranks 2 --steps 50 --lr 999 --momentum 0.99 --hidden 20,20,20,20,20,20,20
expect_failure "diverging" "loss is not finite"
"$train" --batch 0 > "$dir/log" 2>&1
status=$?
[ "$status" -eq 2 ] || fail "a wrong option ended with $status, not 2"
says 'batch 0: must be a whole number from 1' || fail "a wrong option without its rule"
"$train" --help | grep -q -e '--bucket-kb' || fail "--help does not list --bucket-kb"

ranks 4 --data "$dir/none"
expect_failure "no data" "$dir/none/train-images-idx3-ubyte" "apt install dataset-fashion-mnist"

# One rank alone has bad data or other options: all end, and the others name it.
cp -r "$dir/data" "$dir/data2"
printf '\013' | dd of="$dir/data2/train-labels-idx1-ubyte" bs=1 seek=100 conv=notrunc 2> "$dir/dd"
# one_odd OPTION VALUE ODD: VALUE on ranks 0, 1 and 3, ODD on rank 2.
one_odd() {
  data=$dir/data "$run" -n 4 --timeout 60 -- sh -c 'if [ "$GYRE_RANK" = 2 ]; then value=$4; else value=$3; fi
    exec "$1" --data "$data" --steps 5 "$2" "$value"' sh "$train" "$@" > "$dir/log" 2>&1
  status=$?
}
one_odd --data "$dir/data" "$dir/data2"
expect_failure "a label above 9 on rank 2" "rank 2: .*data2/train-labels-idx1-ubyte: label 92 is 11" \
  "leave out --data"
[ "$(grep -c 'ABORTED.*label 92 is 11' "$dir/log")" -ge 3 ] ||
  { fail "the other ranks do not print rank 2's reason"; cat "$dir/log"; }
# Ranks that read for minutes yet, one mebibyte in 0.1 s, hear of it at once: nobody has to end them.
mkdir "$dir/slow"
slow() { # RANK: the images of a data set in a pipe
  mkfifo "$dir/slow/$1/train-images-idx3-ubyte"
  (
    printf '\0\0\010\003\001\0\0\0\0\0\0\010\0\0\0\010'
    while printf '%1048576s' ''; do sleep 0.1; done
  ) > "$dir/slow/$1/train-images-idx3-ubyte" 2> "$dir/slow/$1/log" &
  writers+=($!)
}
writers=()
for r in 0 1 3; do mkdir "$dir/slow/$r" && slow "$r"; done
cp -r "$dir/data2" "$dir/slow/2"
"$run" -n 4 --keep-going --timeout 60 -- sh -c 'exec "$1" --data "$2/$GYRE_RANK" --steps 5' sh "$train" "$dir/slow" > "$dir/log" 2>&1
status=$?
kill "${writers[@]}" 2> "$dir/dd"
expect_failure "ranks that still read when another fails" 'rank 2: .*label 92 is 11'
for r in 0 1 3; do
  grep "^\[$r\]" "$dir/log" | tail -n 1 | grep -q 'gyre-train: rank 2: ABORTED: .*label 92 is 11' ||
    { fail "rank $r does not end with rank 2's reason"; cat "$dir/log"; }
done
[ "$(grep -c 'label 92 is 11' "$dir/log")" -eq 4 ] || { fail "not one line for each rank"; cat "$dir/log"; }

cp "$dir/data/train-labels-idx1-ubyte" "$dir/data2"
printf '\000' | dd of="$dir/data2/t10k-images-idx3-ubyte" bs=1 seek=99 conv=notrunc 2> "$dir/dd"
printf '\377' | dd of="$dir/data2/t10k-images-idx3-ubyte" bs=1 seek=100 conv=notrunc 2> "$dir/dd"
one_odd --data "$dir/data" "$dir/data2"
expect_failure "one byte of rank 2's data differs" "rank 2 was started with other options or other data"
one_odd "--seed" 1 2
expect_failure "another seed on rank 2" "rank 2 was started with other options or other data"

[ "$failures" -eq 0 ] && echo "all passed"
exit "$failures"
