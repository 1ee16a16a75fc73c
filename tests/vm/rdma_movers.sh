#!/bin/bash
# sys_movers over RDMA (as rdma_system.sh): counts of messages and copies, memory that is not there or goes.
set -u
. "${SHEAF_SOURCE:?}/tests/vm/rdma_run.inc"

run sys_movers
