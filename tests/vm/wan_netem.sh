#!/bin/bash
# `sheaf bench wan --hosts`: netem really delays packets, a read of one byte waits for one round trip, and the number
# of its system calls does not depend on the distance. The guest is slow, so no time has an upper limit here.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
export SHEAF_NET=tcp # the RDMA devices belong to the first namespace

mkdir bench
"$sheaf" bench wan --dir bench --hosts --servers 2 --rounds 1 --json >out 2>err || fail "exit status $?"
python3 - out <<'END' || fail "its figures"
import json, sys

with open(sys.argv[1], encoding="utf-8") as f:
    found = json.load(f)
rows = {(r["case"], r["bytes"]): r for r in found["rows"] if "bytes" in r}
delays = {"no delay": 0, "0.01 ms": 10, "0.1 ms": 100, "1 ms": 1000, "10 ms": 10000}  # in us
conditions = found["conditions"]
assert (conditions["hosts"], conditions["backend"]) == (3, "tcp"), conditions
near = rows["read, no delay", 1]["syscalls_per_op"]["client"]
for text, us in delays.items():
    ping, read = rows[f"raw ping-pong, {text}", 64], rows[f"read, {text}", 1]
    calls = read["syscalls_per_op"]["client"]
    print(f"{text}: ping-pong {ping['median']:.0f} us; read of a byte {read['median']:.0f} us, {calls:.1f} calls")
    assert min(ping["min"], read["min"]) >= us, "faster than the delay"
    assert near - 1 < calls < near + 1, f"{calls} calls, {near} without a delay"
    for what in ("read", "overwrite"):
        assert rows[f"{what}, {text}", 64 << 20]["median"] > 0
assert {"wan_read_1ms", "wan_write_1ms", "wan_latency_1ms"} <= set(found["bars"]), found["bars"]
END
[ -z "$(ls bench)" ] || fail "it left something behind: $(ls bench)"
