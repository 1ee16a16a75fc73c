#!/bin/bash
# sys_rdma between two Soft-RoCE devices: messages, work requests, doorbells and registrations of accesses.
set -u
export SHEAF_NET=rdma SHEAF_TEST_LISTEN=10.9.0.1 SHEAF_TEST_RDMA="rxe0 rxe1"
exec "${SHEAF_BUILD:?}/tests/sys_rdma" "$@"
