! MPI-IO from Fortran. The preprocessor chooses USE_MPIF_H, USE_MPI or USE_MPI_F08.
program mpi_fortran
#ifdef USE_MPI_F08
	use mpi_f08
#define HANDLE(kind) type(kind)
#define STATUS type(MPI_Status)
#else
#ifdef USE_MPI
	use mpi
	implicit none
#else
	implicit none
	include 'mpif.h'
#endif
#define HANDLE(kind) integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#endif
	integer, parameter :: n = 1000
	HANDLE(MPI_File) :: file
	HANDLE(MPI_Datatype) :: tile, resized
	HANDLE(MPI_Request) :: request
	STATUS :: st
	integer :: rank, ranks, error, class, i, elements
	integer :: mine(n), found(n)
	integer(kind=MPI_OFFSET_KIND) :: at, bytes
	integer(kind=MPI_ADDRESS_KIND) :: lower, extent
	character(len=200) :: name

	call MPI_Init(error)
	call get_command_argument(1, name)
	call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
	call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
	do i = 1, n
		mine(i) = rank * n + i
	end do

	! a file that is not there is an error that the program sees
	call MPI_File_open(MPI_COMM_WORLD, trim(name) // '.none', MPI_MODE_RDONLY, MPI_INFO_NULL, file, error)
	call MPI_Error_class(error, class, i)
	call expect('the class of a missing file', class, MPI_ERR_NO_SUCH_FILE)

	call MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, &
		MPI_INFO_NULL, file, error)
	call expect('open', error, MPI_SUCCESS)

	! integers of the processes alternate
	lower = 0
	extent = 4 * ranks
	call MPI_Type_contiguous(1, MPI_INTEGER, tile, error)
	call MPI_Type_create_resized(tile, lower, extent, resized, error)
	call MPI_Type_commit(resized, error)
	at = 4 * rank
	call MPI_File_set_view(file, at, MPI_INTEGER, resized, 'native', MPI_INFO_NULL, error)
	call expect('set_view', error, MPI_SUCCESS)
	at = 0
	call MPI_File_write_at_all(file, at, mine, n, MPI_INTEGER, st, error)
	call expect('write_at_all', error, MPI_SUCCESS)
	call MPI_Get_count(st, MPI_INTEGER, elements, error)
	call expect('its count', elements, n)
	call MPI_File_read(file, found, n, MPI_INTEGER, st, error)
	call expect('read', error, MPI_SUCCESS)
	call expect('what it read', count(found /= mine), 0)
	call MPI_File_get_position(file, at, error)
	call expect('its position', int(at), n)
	call MPI_File_get_size(file, bytes, error)
	call expect('the size', int(bytes), 4 * n * ranks)

	mine = -mine
	at = 0
	call MPI_File_iwrite_at(file, at, mine, n, MPI_INTEGER, request, error)
	call expect('iwrite_at', error, MPI_SUCCESS)
	call MPI_Wait(request, st, error)
	call expect('the wait', error, MPI_SUCCESS)
	call MPI_Get_count(st, MPI_INTEGER, elements, error)
	call expect('the count of the wait', elements, n)
	call MPI_File_sync(file, error)
	call MPI_Barrier(MPI_COMM_WORLD, error)
	call MPI_File_sync(file, error)

	! the shared pointer: each process reads other integers
	at = 0
	call MPI_File_set_view(file, at, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL, error)
	call MPI_File_read_shared(file, found, n, MPI_INTEGER, st, error)
	call expect('read_shared', error, MPI_SUCCESS)
	call MPI_Get_count(st, MPI_INTEGER, elements, error)
	call expect('its count', elements, n)
	call MPI_Allreduce(sum(found), i, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
	call expect('the sum of all', i, -(ranks * n * (ranks * n + 1)) / 2)

	call MPI_Type_free(tile, error)
	call MPI_Type_free(resized, error)
	call MPI_File_close(file, error)
	call expect('close', error, MPI_SUCCESS)
	if (rank == 0) print '(a)', 'passed'
	call MPI_Finalize(error)

contains

	subroutine expect(what, got, expected)
		character(len=*), intent(in) :: what
		integer, intent(in) :: got, expected
		integer :: ignored

		if (got == expected) return
		print *, 'process', rank, ': ', what, ' is', got, ', expected', expected
		call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
	end subroutine
end program
