#!/usr/bin/env bash
# at-once.sh N COMMAND...: runs N copies at once; fails when one of them does.
count=$1
shift
pids=()
for ((i = 0; i < count; i++)); do
  "$@" >/dev/null &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
  wait "$pid" || status=1
done
exit $status
