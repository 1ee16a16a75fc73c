#!/bin/bash
# `sheaf ckpt run` with CRIU itself, on a kernel that CRIU of Debian knows: a tree of processes with pipes is killed, and
# continues, and so do jobs of MPI. The test is that of the system tests, which leaves this part out where CRIU does not work.
set -u
PATH=$PATH:/usr/sbin command -v criu >/dev/null || { echo "CRIU is not installed"; exit 77; }
rm -rf /dev/infiniband # UCX of MPICH opens cards also where it uses none, and CRIU cannot save them
export SHEAF_PATIENCE=240 SHEAF_CRIU=only # a slow guest
bash "$SHEAF_SOURCE/tests/system/ckpt_run.sh" 2>&1 | tee "${TMPDIR:-/tmp}/ckpt_criu.log"
[ "${PIPESTATUS[0]}" = 0 ] && ! grep "left out" "${TMPDIR:-/tmp}/ckpt_criu.log"
