#!/bin/bash
# kill -9 of a server and of a client in turn, in mid-transfer by RDMA (sys_kill_transfer): 20 rounds, with --long 200.
set -u
. "${SHEAF_SOURCE:?}/tests/vm/rdma_run.inc"

run sys_kill_transfer
