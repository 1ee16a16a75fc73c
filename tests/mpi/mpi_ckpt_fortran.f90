! A checkpoint from Fortran: columns of a global array, divided among the processes.
program mpi_ckpt_fortran
  use, intrinsic :: iso_c_binding
  use mpi
  use sheaf_ckpt
  implicit none
  integer, parameter :: rows = 50, columns = 40
  type(c_ptr) :: fs, c, cell, where
  type(sheaf_ckpt_options) :: options
  real(c_double), allocatable, target :: field(:, :)
  integer(c_int64_t), target :: step
  integer(c_int64_t) :: number, sizes(2), part(2), starts(2)
  integer :: rank, n, mine, error, i
  character(32) :: job, run

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, n, error)
  call get_command_argument(1, job)
  call get_command_argument(2, run)
  mine = columns / n
  allocate(field(rows, mine))
  call check(sheaf_connect('', fs), 'connect')
  options%timeout_ms = 30000
  call check(sheaf_ckpt_open_mpi(fs, job, MPI_COMM_WORLD, options, c), 'open')
  call check(sheaf_type_bytes(8_c_int64_t, cell), 'type')
  sizes = [int(columns, c_int64_t), int(rows, c_int64_t)]
  part = [int(mine, c_int64_t), int(rows, c_int64_t)]
  starts = [int(rank * mine, c_int64_t), 0_c_int64_t]
  call check(sheaf_type_subarray(2, sizes, part, starts, cell, where), 'subarray')
  call check(sheaf_ckpt_add_global(c, 'step', c_loc(step), c_null_ptr, 8_c_int64_t, cell), 'step')
  call check(sheaf_ckpt_add_global(c, 'field', c_loc(field), cell, int(rows * mine, c_int64_t), where), 'field')
  if (run == 'first') then
    step = 7
    field = reshape([(real(rank * rows * mine + i, c_double), i = 1, rows * mine)], [rows, mine])
    call check(sheaf_ckpt_take(c), 'take')
  else
    field = 0
    call check(sheaf_ckpt_restore(c, number), 'restore')
    if (step /= 7 .or. any(field /= reshape([(real(rank * rows * mine + i, c_double), i = 1, rows * mine)], &
      [rows, mine]))) call check(-22, 'the contents')
  end if
  call check(sheaf_ckpt_poll(c), 'poll')
  call check(sheaf_ckpt_close(c), 'close')
  call sheaf_type_free(cell)
  call sheaf_type_free(where)
  call sheaf_disconnect(fs)
  if (rank == 0) print '(a)', 'passed'
  call MPI_Finalize(error)

contains

  subroutine check(status, what)
    integer(c_int), intent(in) :: status
    character(*), intent(in) :: what
    if (status >= 0) return
    print *, rank, what, status, sheaf_ckpt_why()
    call MPI_Abort(MPI_COMM_WORLD, 1, error)
  end subroutine
end program
