! Checkpoints for Fortran programs: sheaf_ckpt.h with Fortran's types. Compile this file with the
! program; link libsheaf and, for sheaf_ckpt_open_mpi, libsheaf-ckpt-mpich or libsheaf-ckpt-openmpi.
! Functions return 0 or a count, or a negative errno; sheaf_ckpt_why() explains it.
! docs/checkpoint.md has an example.
module sheaf_ckpt
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: sheaf_connect, sheaf_disconnect, sheaf_ckpt_open, sheaf_ckpt_open_mpi, sheaf_ckpt_close
  public :: sheaf_ckpt_add, sheaf_ckpt_add_global, sheaf_ckpt_take, sheaf_ckpt_wait, sheaf_ckpt_poll
  public :: sheaf_ckpt_ending, sheaf_ckpt_restore, sheaf_ckpt_why
  public :: sheaf_type_bytes, sheaf_type_subarray, sheaf_type_free

  integer(c_int32_t), parameter, public :: SHEAF_CKPT_ASYNC = 1, SHEAF_CKPT_INCREMENTAL = 2, &
    SHEAF_CKPT_REFUSE = 4, SHEAF_CKPT_ONE_FILE = 8, SHEAF_CKPT_FILE_EACH = 16, SHEAF_CKPT_MPROTECT = 32, &
    SHEAF_CKPT_FORK = 64
  real(c_double), parameter, public :: SHEAF_CKPT_BEST = -1.0_c_double
  integer(c_int), parameter, public :: SHEAF_CKPT_NONE = -2 ! of sheaf_ckpt_restore: -ENOENT

  ! 0 or c_null_ptr in any member: the default
  type, bind(c), public :: sheaf_ckpt_options
    integer(c_int32_t) :: size = 72 ! bytes of this type
    integer(c_int32_t) :: flags = 0
    type(c_ptr) :: dir = c_null_ptr
    integer(c_int32_t) :: keep = 0, chain = 0, timeout_ms = 0
    integer(c_int) :: signal_now = 0, signal_end = 0
    integer(c_int32_t) :: reserved = 0
    integer(c_int64_t) :: copy_bytes = 0, rate = 0
    real(c_double) :: interval_s = 0, mtbf_s = 0
  end type

  interface
    integer(c_int) function c_connect(conf, fs) bind(c, name="sheaf_connect")
      import :: c_int, c_ptr
      type(c_ptr), value :: conf
      type(c_ptr), intent(out) :: fs
    end function
    subroutine sheaf_disconnect(fs) bind(c, name="sheaf_disconnect")
      import :: c_ptr
      type(c_ptr), value :: fs
    end subroutine
    integer(c_int) function c_open(fs, job, comm, options, c) bind(c, name="sheaf_ckpt_open")
      import :: c_int, c_ptr, c_char, sheaf_ckpt_options
      type(c_ptr), value :: fs, comm
      character(kind=c_char), intent(in) :: job(*)
      type(sheaf_ckpt_options), intent(in) :: options
      type(c_ptr), intent(out) :: c
    end function
    integer(c_int) function c_add(c, name, mem, type, count) bind(c, name="sheaf_ckpt_add")
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: c, mem, type
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: count
    end function
    integer(c_int) function c_add_global(c, name, mem, type, count, where) bind(c, name="sheaf_ckpt_add_global")
      import :: c_int, c_ptr, c_char, c_int64_t
      type(c_ptr), value :: c, mem, type, where
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: count
    end function
    integer(c_int) function sheaf_ckpt_take(c) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: c
    end function
    integer(c_int) function sheaf_ckpt_wait(c) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: c
    end function
    integer(c_int) function sheaf_ckpt_poll(c) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: c
    end function
    integer(c_int) function sheaf_ckpt_ending(c) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: c
    end function
    integer(c_int) function sheaf_ckpt_close(c) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: c
    end function
    integer(c_int) function sheaf_ckpt_restore(c, number) bind(c)
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: c
      integer(c_int64_t), intent(out) :: number
    end function
    integer(c_int) function sheaf_type_bytes(n, t) bind(c)
      import :: c_int, c_ptr, c_int64_t
      integer(c_int64_t), value :: n
      type(c_ptr), intent(out) :: t
    end function
    ! sizes in C order: the last dimension is the one that is contiguous in memory
    integer(c_int) function sheaf_type_subarray(nd, sizes, subsizes, starts, of, t) bind(c)
      import :: c_int, c_ptr, c_int64_t
      integer(c_int), value :: nd
      integer(c_int64_t), intent(in) :: sizes(*), subsizes(*), starts(*)
      type(c_ptr), value :: of
      type(c_ptr), intent(out) :: t
    end function
    subroutine sheaf_type_free(t) bind(c)
      import :: c_ptr
      type(c_ptr), value :: t
    end subroutine
    function c_why() bind(c, name="sheaf_ckpt_why")
      import :: c_ptr
      type(c_ptr) :: c_why
    end function
    integer(c_size_t) function c_strlen(s) bind(c, name="strlen")
      import :: c_size_t, c_ptr
      type(c_ptr), value :: s
    end function
    ! of libsheaf-ckpt-mpich or libsheaf-ckpt-openmpi: only programs that call it need one of them
    integer(c_int) function c_open_mpi(fs, job, comm, options, c) bind(c, name="sheaf_ckpt_open_fortran")
      import :: c_int, c_ptr, c_char, sheaf_ckpt_options
      type(c_ptr), value :: fs
      character(kind=c_char), intent(in) :: job(*)
      integer(c_int), value :: comm
      type(sheaf_ckpt_options), intent(in) :: options
      type(c_ptr), intent(out) :: c
    end function
  end interface

contains

  ! conf: a cluster file; '': the default search
  integer(c_int) function sheaf_connect(conf, fs)
    character(*), intent(in) :: conf
    type(c_ptr), intent(out) :: fs
    character(kind=c_char), target :: text(len_trim(conf) + 1)
    text = to_c(conf)
    if (len_trim(conf) == 0) then
      sheaf_connect = c_connect(c_null_ptr, fs)
    else
      sheaf_connect = c_connect(c_loc(text), fs)
    end if
  end function

  ! this process is all of the job
  integer(c_int) function sheaf_ckpt_open(fs, job, options, c)
    type(c_ptr), intent(in) :: fs
    character(*), intent(in) :: job
    type(sheaf_ckpt_options), intent(in) :: options
    type(c_ptr), intent(out) :: c
    sheaf_ckpt_open = c_open(fs, to_c(job), c_null_ptr, options, c)
  end function

  ! comm: an integer communicator; comm%mpi_val of the module mpi_f08
  integer(c_int) function sheaf_ckpt_open_mpi(fs, job, comm, options, c)
    type(c_ptr), intent(in) :: fs
    character(*), intent(in) :: job
    integer, intent(in) :: comm
    type(sheaf_ckpt_options), intent(in) :: options
    type(c_ptr), intent(out) :: c
    sheaf_ckpt_open_mpi = c_open_mpi(fs, to_c(job), int(comm, c_int), options, c)
  end function

  ! mem: c_loc() of a variable with the attribute target; type: c_null_ptr for bytes
  integer(c_int) function sheaf_ckpt_add(c, name, mem, type, count)
    type(c_ptr), intent(in) :: c, mem, type
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in) :: count
    sheaf_ckpt_add = c_add(c, to_c(name), mem, type, count)
  end function

  integer(c_int) function sheaf_ckpt_add_global(c, name, mem, type, count, where)
    type(c_ptr), intent(in) :: c, mem, type, where
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in) :: count
    sheaf_ckpt_add_global = c_add_global(c, to_c(name), mem, type, count, where)
  end function

  function sheaf_ckpt_why() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: s(:)
    integer :: i
    call c_f_pointer(c_why(), s, [c_strlen(c_why())])
    allocate(character(size(s)) :: text)
    do i = 1, size(s)
      text(i:i) = s(i)
    end do
  end function

  function to_c(text) result(s)
    character(*), intent(in) :: text
    character(kind=c_char) :: s(len_trim(text) + 1)
    integer :: i
    do i = 1, len_trim(text)
      s(i) = text(i:i)
    end do
    s(len_trim(text) + 1) = c_null_char
  end function
end module
