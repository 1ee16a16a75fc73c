#!/bin/bash
# Tests of tests/system once more over RDMA: the servers use rxe0, the clients rxe1, and a cable is between them. Random
# tests have a tenth of their rounds.
set -u
. "${SHEAF_SOURCE:?}/tests/vm/rdma_run.inc"

run sys_list
run sys_typed
run sys_names
