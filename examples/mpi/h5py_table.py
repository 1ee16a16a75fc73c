"""h5py with mpi4py: a chunked table, written by rows, read by columns.

    mpiexec.openmpi -n 4 env LD_PRELOAD=libsheaf-mpiio-openmpi.so python3 h5py_table.py sheaf:/table.h5
"""
import sys

from mpi4py import MPI
import h5py
import numpy

ROWS, COLUMNS = 4096, 32
world = MPI.COMM_WORLD
name = sys.argv[1] if len(sys.argv) > 1 else "sheaf:/table.h5"
numbers = numpy.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS)

with h5py.File(name, "w", driver="mpio", comm=world) as f:
    table = f.create_dataset("table", (ROWS, COLUMNS), "f8", chunks=(256, 8))
    rows = ROWS // world.size
    mine = slice(world.rank * rows, (world.rank + 1) * rows)
    with table.collective:
        table[mine, :] = numbers[mine, :]

with h5py.File(name, "r", driver="mpio", comm=world) as f:
    columns = COLUMNS // world.size
    mine = slice(world.rank * columns, (world.rank + 1) * columns)
    right = bool((f["table"][:, mine] == numbers[:, mine]).all())

right = world.allreduce(right, op=MPI.LAND)
if world.rank == 0:
    print(f"a table of {ROWS} x {COLUMNS}:", "as written" if right else "WRONG")
sys.exit(not right)
