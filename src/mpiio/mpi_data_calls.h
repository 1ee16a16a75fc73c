/* The calls that move data, for one type of count: COUNT, with NAME(x) as the name of call x.
 * Included by mpi_calls_data.c, once for int and once for MPI_Count (MPI 4). */

EXPORT int NAME(PMPI_File_read_at)(MPI_File fh, MPI_Offset offset, void *buf, COUNT count,
				   MPI_Datatype type, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = {
		.where = AT_OFFSET, .offset = offset, .buf = buf, .count = count, .type = type
	};

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_read_at))(fh, offset, buf, count, type, st);
}
ALIAS(NAME(MPI_File_read_at), NAME(PMPI_File_read_at));

EXPORT int NAME(PMPI_File_write_at)(MPI_File fh, MPI_Offset offset, const void *buf, COUNT count,
				    MPI_Datatype type, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .where = AT_OFFSET,
				 .offset = offset,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_write_at))(fh, offset, buf, count, type, st);
}
ALIAS(NAME(MPI_File_write_at), NAME(PMPI_File_write_at));

EXPORT int NAME(PMPI_File_read_at_all)(MPI_File fh, MPI_Offset offset, void *buf, COUNT count,
				       MPI_Datatype type, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .collective = true,
				 .where = AT_OFFSET,
				 .offset = offset,
				 .buf = buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_read_at_all))(fh, offset, buf, count, type, st);
}
ALIAS(NAME(MPI_File_read_at_all), NAME(PMPI_File_read_at_all));

EXPORT int NAME(PMPI_File_write_at_all)(MPI_File fh, MPI_Offset offset, const void *buf,
					COUNT count, MPI_Datatype type, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .collective = true,
				 .where = AT_OFFSET,
				 .offset = offset,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_write_at_all))(fh, offset, buf, count, type, st);
}
ALIAS(NAME(MPI_File_write_at_all), NAME(PMPI_File_write_at_all));

EXPORT int NAME(PMPI_File_read)(MPI_File fh, void *buf, COUNT count, MPI_Datatype type,
				MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .where = AT_POINTER, .buf = buf, .count = count, .type = type };

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_read))(fh, buf, count, type, st);
}
ALIAS(NAME(MPI_File_read), NAME(PMPI_File_read));

EXPORT int NAME(PMPI_File_write)(MPI_File fh, const void *buf, COUNT count, MPI_Datatype type,
				 MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .where = AT_POINTER,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_write))(fh, buf, count, type, st);
}
ALIAS(NAME(MPI_File_write), NAME(PMPI_File_write));

EXPORT int NAME(PMPI_File_read_all)(MPI_File fh, void *buf, COUNT count, MPI_Datatype type,
				    MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = {
		.collective = true, .where = AT_POINTER, .buf = buf, .count = count, .type = type
	};

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_read_all))(fh, buf, count, type, st);
}
ALIAS(NAME(MPI_File_read_all), NAME(PMPI_File_read_all));

EXPORT int NAME(PMPI_File_write_all)(MPI_File fh, const void *buf, COUNT count, MPI_Datatype type,
				     MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .collective = true,
				 .where = AT_POINTER,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_write_all))(fh, buf, count, type, st);
}
ALIAS(NAME(MPI_File_write_all), NAME(PMPI_File_write_all));

EXPORT int NAME(PMPI_File_iread_at)(MPI_File fh, MPI_Offset offset, void *buf, COUNT count,
				    MPI_Datatype type, MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = {
		.where = AT_OFFSET, .offset = offset, .buf = buf, .count = count, .type = type
	};

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iread_at))(fh, offset, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iread_at), NAME(PMPI_File_iread_at));

EXPORT int NAME(PMPI_File_iwrite_at)(MPI_File fh, MPI_Offset offset, const void *buf, COUNT count,
				     MPI_Datatype type, MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .where = AT_OFFSET,
				 .offset = offset,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iwrite_at))(fh, offset, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iwrite_at), NAME(PMPI_File_iwrite_at));

EXPORT int NAME(PMPI_File_iread_at_all)(MPI_File fh, MPI_Offset offset, void *buf, COUNT count,
					MPI_Datatype type, MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .collective = true,
				 .where = AT_OFFSET,
				 .offset = offset,
				 .buf = buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iread_at_all))(fh, offset, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iread_at_all), NAME(PMPI_File_iread_at_all));

EXPORT int NAME(PMPI_File_iwrite_at_all)(MPI_File fh, MPI_Offset offset, const void *buf,
					 COUNT count, MPI_Datatype type, MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .collective = true,
				 .where = AT_OFFSET,
				 .offset = offset,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iwrite_at_all))(fh, offset, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iwrite_at_all), NAME(PMPI_File_iwrite_at_all));

EXPORT int NAME(PMPI_File_iread)(MPI_File fh, void *buf, COUNT count, MPI_Datatype type,
				 MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .where = AT_POINTER, .buf = buf, .count = count, .type = type };

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iread))(fh, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iread), NAME(PMPI_File_iread));

EXPORT int NAME(PMPI_File_iwrite)(MPI_File fh, const void *buf, COUNT count, MPI_Datatype type,
				  MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .where = AT_POINTER,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iwrite))(fh, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iwrite), NAME(PMPI_File_iwrite));

EXPORT int NAME(PMPI_File_iread_all)(MPI_File fh, void *buf, COUNT count, MPI_Datatype type,
				     MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = {
		.collective = true, .where = AT_POINTER, .buf = buf, .count = count, .type = type
	};

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iread_all))(fh, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iread_all), NAME(PMPI_File_iread_all));

EXPORT int NAME(PMPI_File_iwrite_all)(MPI_File fh, const void *buf, COUNT count, MPI_Datatype type,
				      MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .collective = true,
				 .where = AT_POINTER,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iwrite_all))(fh, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iwrite_all), NAME(PMPI_File_iwrite_all));

EXPORT int NAME(PMPI_File_read_shared)(MPI_File fh, void *buf, COUNT count, MPI_Datatype type,
				       MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .where = AT_SHARED, .buf = buf, .count = count, .type = type };

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_read_shared))(fh, buf, count, type, st);
}
ALIAS(NAME(MPI_File_read_shared), NAME(PMPI_File_read_shared));

EXPORT int NAME(PMPI_File_write_shared)(MPI_File fh, const void *buf, COUNT count,
					MPI_Datatype type, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .where = AT_SHARED,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_run(f, &c, st)) :
		   NEXT(NAME(File_write_shared))(fh, buf, count, type, st);
}
ALIAS(NAME(MPI_File_write_shared), NAME(PMPI_File_write_shared));

EXPORT int NAME(PMPI_File_iread_shared)(MPI_File fh, void *buf, COUNT count, MPI_Datatype type,
					MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .where = AT_SHARED, .buf = buf, .count = count, .type = type };

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iread_shared))(fh, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iread_shared), NAME(PMPI_File_iread_shared));

EXPORT int NAME(PMPI_File_iwrite_shared)(MPI_File fh, const void *buf, COUNT count,
					 MPI_Datatype type, MPI_Request *req)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .where = AT_SHARED,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_start(f, &c, req)) :
		   NEXT(NAME(File_iwrite_shared))(fh, buf, count, type, req);
}
ALIAS(NAME(MPI_File_iwrite_shared), NAME(PMPI_File_iwrite_shared));

EXPORT int NAME(PMPI_File_read_ordered)(MPI_File fh, void *buf, COUNT count, MPI_Datatype type,
					MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .where = AT_SHARED, .buf = buf, .count = count, .type = type };

	return f ? merror_raise(fh, mcall_ordered(f, &c, st)) :
		   NEXT(NAME(File_read_ordered))(fh, buf, count, type, st);
}
ALIAS(NAME(MPI_File_read_ordered), NAME(PMPI_File_read_ordered));

EXPORT int NAME(PMPI_File_write_ordered)(MPI_File fh, const void *buf, COUNT count,
					 MPI_Datatype type, MPI_Status *st)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .where = AT_SHARED,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_ordered(f, &c, st)) :
		   NEXT(NAME(File_write_ordered))(fh, buf, count, type, st);
}
ALIAS(NAME(MPI_File_write_ordered), NAME(PMPI_File_write_ordered));

EXPORT int NAME(PMPI_File_read_at_all_begin)(MPI_File fh, MPI_Offset offset, void *buf, COUNT count,
					     MPI_Datatype type)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .collective = true,
				 .where = AT_OFFSET,
				 .offset = offset,
				 .buf = buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_begin(f, &c, SPLIT_READ_AT_ALL)) :
		   NEXT(NAME(File_read_at_all_begin))(fh, offset, buf, count, type);
}
ALIAS(NAME(MPI_File_read_at_all_begin), NAME(PMPI_File_read_at_all_begin));

EXPORT int NAME(PMPI_File_read_all_begin)(MPI_File fh, void *buf, COUNT count, MPI_Datatype type)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = {
		.collective = true, .where = AT_POINTER, .buf = buf, .count = count, .type = type
	};

	return f ? merror_raise(fh, mcall_begin(f, &c, SPLIT_READ_ALL)) :
		   NEXT(NAME(File_read_all_begin))(fh, buf, count, type);
}
ALIAS(NAME(MPI_File_read_all_begin), NAME(PMPI_File_read_all_begin));

EXPORT int NAME(PMPI_File_read_ordered_begin)(MPI_File fh, void *buf, COUNT count,
					      MPI_Datatype type)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .where = AT_SHARED, .buf = buf, .count = count, .type = type };

	return f ? merror_raise(fh, mcall_ordered_begin(f, &c, SPLIT_READ_ORDERED)) :
		   NEXT(NAME(File_read_ordered_begin))(fh, buf, count, type);
}
ALIAS(NAME(MPI_File_read_ordered_begin), NAME(PMPI_File_read_ordered_begin));

EXPORT int NAME(PMPI_File_write_at_all_begin)(MPI_File fh, MPI_Offset offset, const void *buf,
					      COUNT count, MPI_Datatype type)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .collective = true,
				 .where = AT_OFFSET,
				 .offset = offset,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_begin(f, &c, SPLIT_WRITE_AT_ALL)) :
		   NEXT(NAME(File_write_at_all_begin))(fh, offset, buf, count, type);
}
ALIAS(NAME(MPI_File_write_at_all_begin), NAME(PMPI_File_write_at_all_begin));

EXPORT int NAME(PMPI_File_write_all_begin)(MPI_File fh, const void *buf, COUNT count,
					   MPI_Datatype type)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .collective = true,
				 .where = AT_POINTER,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_begin(f, &c, SPLIT_WRITE_ALL)) :
		   NEXT(NAME(File_write_all_begin))(fh, buf, count, type);
}
ALIAS(NAME(MPI_File_write_all_begin), NAME(PMPI_File_write_all_begin));

EXPORT int NAME(PMPI_File_write_ordered_begin)(MPI_File fh, const void *buf, COUNT count,
					       MPI_Datatype type)
{
	struct mfile *f = mfile_find(&fh);
	const struct mcall c = { .write = true,
				 .where = AT_SHARED,
				 .buf = (void *)(uintptr_t)buf,
				 .count = count,
				 .type = type };

	return f ? merror_raise(fh, mcall_ordered_begin(f, &c, SPLIT_WRITE_ORDERED)) :
		   NEXT(NAME(File_write_ordered_begin))(fh, buf, count, type);
}
ALIAS(NAME(MPI_File_write_ordered_begin), NAME(PMPI_File_write_ordered_begin));
