#!/bin/bash
# Tests of tests/system that kill or stop servers and clients, once more over RDMA (as rdma_system.sh). Left out are tests
# of waits that end at a known time: a guest is too slow for them.
set -u
. "${SHEAF_SOURCE:?}/tests/vm/rdma_run.inc"

run sys_reuse
run sys_kill_client
run sys_kill_server synced_data fsync_tells a_clean_restart reads_and_writes every_change
run sys_locks four_processes two_that_wait a_killed_holder
