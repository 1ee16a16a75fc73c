#!/bin/bash
# sys_verbs with Soft-RoCE: each end has a device of its own and a cable is between them. The interface of one end
# is taken down and up.
SHEAF_TEST_RDMA="rxe0 rxe1" SHEAF_TEST_RDMA_LINK=v0 exec "${SHEAF_BUILD:?}/tests/sys_verbs"
