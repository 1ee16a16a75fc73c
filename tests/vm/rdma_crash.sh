#!/bin/bash
# Rounds of kill -9 of servers and clients in the middle of transfers by RDMA (sys_crash): synced data are there, nothing
# is done twice. A round kills about two servers and two clients.
. "${SHEAF_SOURCE:?}/tests/vm/rdma_run.inc"

rounds=10
[ -z "${SHEAF_TEST_LONG-}" ] || rounds=200
exec "$SHEAF_BUILD/tests/sys_crash" --rounds $rounds
