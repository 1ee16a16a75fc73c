/* Open files: the table of handles, open, close, delete, sizes, sync.
 *
 * A collective open asks the metadata server once: process 0 opens the file and gives the others a
 * ticket, with which they become its guests. In atomic mode every process has an open of its own,
 * because it takes locks.
 *
 * Threads: the table has a lock; the rest is the caller's. Errors: an MPI class. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "mpiio/mpi_impl.h"

/* ---- the table ---- */

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct htab table;
static bool has_table;

static uint64_t hash_of(MPI_File h)
{
	uint64_t key = 0;

	memcpy(&key, &h, MIN(sizeof(key), sizeof(h)));
	return hash_u64(key);
}

static struct mfile *find(MPI_File h)
{
	struct hnode *n = has_table ? htab_first(&table, hash_of(h)) : NULL;

	while (n && container_of(n, struct mfile, node)->handle != h)
		n = htab_next(n);
	return n ? container_of(n, struct mfile, node) : NULL;
}

/* Handles that were closed: the MPI library looks into the memory of such a handle, which is free.
 */
#define CLOSED 64
static MPI_File closed[CLOSED];
static unsigned n_closed; /* so far; the last ones are kept */

static MPI_File *find_closed(MPI_File h)
{
	for (unsigned i = 0; i < MIN(n_closed, (unsigned)CLOSED); i++)
		if (closed[i] == h)
			return &closed[i];
	return NULL;
}

struct mfile *mfile_find(MPI_File *h)
{
	struct mfile *f;

	pthread_rwlock_rdlock(&lock);
	f = find(*h);
	if (!f && find_closed(*h))
		*h = MPI_FILE_NULL;
	pthread_rwlock_unlock(&lock);
	return f;
}

/* With the lock. */
static void forget_closed(MPI_File h)
{
	MPI_File *at = find_closed(h);

	if (at)
		*at = MPI_FILE_NULL;
}

void mfile_is_foreign(MPI_File h)
{
	pthread_rwlock_wrlock(&lock);
	forget_closed(h);
	pthread_rwlock_unlock(&lock);
}

static int table_add(struct mfile *f)
{
	int r = 0;

	pthread_rwlock_wrlock(&lock);
	if (!has_table) {
		r = htab_init(&table);
		has_table = !r;
	}
	if (!r)
		r = htab_insert(&table, &f->node, hash_of(f->handle));
	forget_closed(f->handle);
	pthread_rwlock_unlock(&lock);
	return r ? MPI_ERR_NO_MEM : MPI_SUCCESS;
}

static void table_remove(struct mfile *f)
{
	pthread_rwlock_wrlock(&lock);
	if (find(f->handle) == f) {
		htab_remove(&table, &f->node);
		closed[n_closed++ % CLOSED] = f->handle;
	}
	pthread_rwlock_unlock(&lock);
}

/* ---- open ---- */

/* The result of process 0, for all. */
struct opened {
	int class;
	char why[256];
	int64_t size; /* for MPI_MODE_APPEND */
	uint64_t id; /* for the names of the shared pointer */
	int64_t ticket_bytes;
	uint8_t ticket[SHEAF_TICKET_MAX];
	struct mtrial trials[2][MTRIALS];
};

static int check_amode(int amode)
{
	int access = amode & (MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR);
	int all = MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR | MPI_MODE_CREATE |
		  MPI_MODE_EXCL | MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_UNIQUE_OPEN |
		  MPI_MODE_SEQUENTIAL | MPI_MODE_APPEND;

	if (access != MPI_MODE_RDONLY && access != MPI_MODE_WRONLY && access != MPI_MODE_RDWR)
		return MPI_ERR_AMODE;
	if (access == MPI_MODE_RDONLY && (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)))
		return MPI_ERR_AMODE;
	if (access == MPI_MODE_RDWR && (amode & MPI_MODE_SEQUENTIAL))
		return MPI_ERR_AMODE;
	return amode & ~all ? MPI_ERR_AMODE : MPI_SUCCESS;
}

static int open_flags(int amode)
{
	int flags = amode & MPI_MODE_RDONLY ? O_RDONLY :
		    amode & MPI_MODE_WRONLY ? O_WRONLY :
					      O_RDWR;

	return flags | (amode & MPI_MODE_CREATE ? O_CREAT : 0) |
	       (amode & MPI_MODE_EXCL ? O_EXCL : 0);
}

static mode_t umask_now(void)
{
	mode_t m = umask(022);

	umask(m);
	return m;
}

static int open_path(struct mfile *f, int flags)
{
	struct sheaf_layout l = { .size = sizeof(l),
				  .stripe_unit = f->hints.striping_unit,
				  .width = f->hints.striping_factor };

	return sheaf_open(f->fs, f->name.path, flags, 0666 & ~umask_now(), &l, &f->f);
}

static int connect(struct mfile *f, struct opened *o)
{
	const char *why;
	int r = mconnect(f->name.conf, &f->fs, &why);

	if (r)
		snprintf(o->why, sizeof(o->why), "%s", *why ? why : sheaf_strerror(r));
	return r;
}

/* Process 0 opens the file. */
static void open_first(struct mfile *f, struct opened *o)
{
	struct stat st;
	int r = connect(f, o);

	if (r) { /* the file is not the reason */
		o->class = MPI_ERR_IO;
		return;
	}
	r = open_path(f, open_flags(f->amode));
	if (!r && (f->amode & MPI_MODE_APPEND)) {
		r = sheaf_fstat(f->f, &st);
		o->size = st.st_size;
	}
	if (!r && f->n_ranks > 1) {
		o->ticket_bytes = sheaf_share(f->f, 0, o->ticket, sizeof(o->ticket));
		r = o->ticket_bytes < 0 ? (int)o->ticket_bytes : 0;
	}
	if (getrandom(&o->id, sizeof(o->id), 0) != sizeof(o->id))
		o->id = (uint64_t)getpid();
	f->is_owner = true;
	o->class = merror_class(r);
	mchoice_recall(f, o->trials);
}

/* The others become guests, or open the file themselves where that is not possible. */
static int open_guest(struct mfile *f, struct opened *o)
{
	int r = connect(f, o);

	if (r)
		return MPI_ERR_IO;
	r = sheaf_open_shared(f->fs, o->ticket, (size_t)o->ticket_bytes, &f->f);
	if (r == -ESTALE)
		r = open_path(f, open_flags(f->amode & ~(MPI_MODE_CREATE | MPI_MODE_EXCL)));
	return merror_class(r);
}

static void say_why(const struct mfile *f, const struct opened *o)
{
	if (*o->why)
		fprintf(stderr, "libsheaf-mpiio: process %d cannot open sheaf:%s: %s\n", f->rank,
			f->name.path, o->why);
}

/* Collective: the class of all; the lowest process with an error says why. */
static int agree(const struct mfile *f, const struct opened *o, int class)
{
	int mine = class ? f->rank : f->n_ranks, first = f->n_ranks;
	int all = merror_all(f->comm, class);

	if (all && !PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, f->comm) && first == f->rank)
		say_why(f, o);
	return all;
}

static int open_all(struct mfile *f, struct opened *o)
{
	int r;

	if (f->rank == 0)
		open_first(f, o);
	if (PMPI_Bcast(o, sizeof(*o), MPI_BYTE, 0, f->comm))
		return MPI_ERR_OTHER;
	r = f->rank && !o->class ? open_guest(f, o) : o->class;
	return agree(f, o, r);
}

/* Are the names and modes of all processes the same, and valid? */
static int check_same(const struct mfile *f)
{
	struct {
		int amode;
		char path[PATH_MAX];
	} first;
	int r = check_amode(f->amode);

	memset(&first, 0, sizeof(first));
	first.amode = f->amode;
	strcpy(first.path, f->name.path);
	if (PMPI_Bcast(&first, sizeof(first), MPI_BYTE, 0, f->comm))
		return MPI_ERR_OTHER;
	if (!r && (first.amode != f->amode || strcmp(first.path, f->name.path) != 0))
		r = MPI_ERR_NOT_SAME;
	return merror_all(f->comm, r);
}

static void name_pointer(struct mfile *f, uint64_t id)
{
	const char *last = strrchr(f->name.path, '/');
	int dir = (int)(last - f->name.path);

	snprintf(f->pointer_path, sizeof(f->pointer_path), "%.*s/.%.200s.shfp.%016llx", dir,
		 f->name.path, last + 1, (unsigned long long)id);
}

void mfile_free(struct mfile *f)
{
	table_remove(f);
	if (f->guest)
		sheaf_close(f->guest);
	if (f->f)
		sheaf_close(f->f);
	if (f->pointer)
		sheaf_close(f->pointer);
	if (f->handle != MPI_FILE_NULL)
		NEXT(File_close)(&f->handle);
	mview_free(&f->view);
	if (f->info != MPI_INFO_NULL)
		PMPI_Info_free(&f->info);
	if (f->comm != MPI_COMM_NULL)
		PMPI_Comm_free(&f->comm);
	free(f);
}

static int start(struct mfile *f, MPI_Info info)
{
	struct opened *o = calloc(1, sizeof(*o));
	int r = o ? MPI_SUCCESS : MPI_ERR_NO_MEM;

	if (!r)
		r = mview_default(&f->view);
	if (!r &&
	    NEXT(File_open)(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDWR, MPI_INFO_NULL, &f->handle))
		r = MPI_ERR_OTHER;
	r = merror_all(f->comm, r);
	r = r ? r : check_same(f);
	r = r ? r : mhints_take(f, info);
	r = r ? r : open_all(f, o);
	if (!r) {
		name_pointer(f, o->id);
		memcpy(f->trials, o->trials, sizeof(f->trials));
		f->stats.requests_before = mconnect_requests(f->fs);
		f->pos = f->amode & MPI_MODE_APPEND ? o->size : 0;
		r = merror_all(f->comm, table_add(f));
	}
	if (!r && (f->amode & MPI_MODE_APPEND))
		f->pointer_start = o->size;
	free(o);
	return r;
}

int mfile_open(MPI_Comm comm, const struct mname *name, int amode, MPI_Info info, MPI_File *out)
{
	struct mfile *f;
	MPI_Comm own;
	int r, is_inter = 0;

	if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &is_inter) || is_inter ||
	    PMPI_Comm_dup(comm, &own))
		return MPI_ERR_COMM;
	PMPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
	f = calloc(1, sizeof(*f));
	r = merror_all(own, f ? MPI_SUCCESS : MPI_ERR_NO_MEM);
	if (r) {
		PMPI_Comm_free(&own);
		free(f);
		return r;
	}
	f->comm = own;
	f->handle = MPI_FILE_NULL;
	f->info = MPI_INFO_NULL;
	f->view.etype = f->view.filetype = MPI_DATATYPE_NULL;
	f->name = *name;
	f->amode = amode;
	PMPI_Comm_rank(f->comm, &f->rank);
	PMPI_Comm_size(f->comm, &f->n_ranks);
	r = start(f, info);
	if (r) {
		mfile_free(f);
		return r;
	}
	*out = f->handle;
	return MPI_SUCCESS;
}

/* ---- close, delete ---- */

/* Guests close first: the owner's close lets the metadata server ask how far they wrote. */
static int close_all(struct mfile *f)
{
	int mine = f->pointer_used, used = 0, r = 0, class;

	if (f->guest)
		r = sheaf_close(f->guest);
	f->guest = NULL;
	if (!f->is_owner) {
		r = sheaf_close(f->f);
		f->f = NULL;
	}
	class = merror_all(f->comm, merror_class(r));
	PMPI_Allreduce(&mine, &used, 1, MPI_INT, MPI_LOR, f->comm);
	mshared_close(f, used);
	if (f->is_owner) {
		r = sheaf_close(f->f);
		f->f = NULL;
	}
	if (f->rank == 0 && (f->amode & MPI_MODE_DELETE_ON_CLOSE))
		r = r ? r : sheaf_unlink(f->fs, f->name.path);
	return merror_all(f->comm, MAX(class, merror_class(r)));
}

/* A process with a split access under way keeps the file open in all. */
int mfile_close(struct mfile *f)
{
	int r = msame(f, MKIND_CLOSE, f->split_call ? MPI_ERR_OTHER : MPI_SUCCESS, NULL);

	if (r && r != MPI_ERR_INTERN)
		return r;
	f->is_closed = true;
	mchoice_keep(f);
	mstats_print(f);
	return close_all(f);
}

int mfile_delete(const struct mname *name)
{
	struct sheaf *fs;
	const char *why;
	int r = mconnect(name->conf, &fs, &why);

	if (r) {
		fprintf(stderr, "libsheaf-mpiio: sheaf:%s cannot be deleted: %s\n", name->path,
			*why ? why : sheaf_strerror(r));
		return MPI_ERR_IO;
	}
	return merror_class(sheaf_unlink(fs, name->path));
}

/* ---- sizes ---- */

/* All processes name the same size. */
static int check_size(struct mfile *f, enum mkind kind, MPI_Offset size)
{
	int64_t most[MSAME_VALUES] = { size, -size };
	int r = MPI_SUCCESS;

	if (f->amode & MPI_MODE_RDONLY)
		r = MPI_ERR_READ_ONLY;
	else if (f->amode & MPI_MODE_SEQUENTIAL)
		r = MPI_ERR_UNSUPPORTED_OPERATION;
	else if (size < 0)
		r = MPI_ERR_ARG;
	r = msame(f, kind, r, most);
	return r || most[0] == -most[1] ? r : MPI_ERR_NOT_SAME;
}

/* After a change of the size by process 0, the others need its new capability. */
static int share_again(struct mfile *f, int err)
{
	struct opened *o = calloc(1, sizeof(*o));
	int r = o ? MPI_SUCCESS : MPI_ERR_NO_MEM;

	r = merror_all(f->comm, r);
	if (!r && f->rank == 0) {
		if (!err && f->n_ranks > 1)
			o->ticket_bytes = sheaf_share(f->f, 1, o->ticket, sizeof(o->ticket));
		o->class = merror_class(err ? err : (int)MIN(o->ticket_bytes, 0));
	}
	if (!r && PMPI_Bcast(o, sizeof(*o), MPI_BYTE, 0, f->comm))
		r = MPI_ERR_OTHER;
	r = r ? r : o->class;
	if (!r && !f->is_owner) /* without it, the process asks for a capability of its own */
		(void)sheaf_share_renew(f->f, o->ticket, (size_t)o->ticket_bytes);
	free(o);
	return r;
}

int mfile_set_size(struct mfile *f, MPI_Offset size)
{
	int err = 0, r = check_size(f, MKIND_SET_SIZE, size);

	if (r)
		return r;
	if (f->rank == 0)
		err = sheaf_ftruncate(f->f, size);
	return share_again(f, err);
}

/* Servers whose file systems cannot allocate space extend the file. */
static int preallocate(struct mfile *f, MPI_Offset size)
{
	struct stat st;
	int r = size ? sheaf_fallocate(f->f, 0, 0, size) : 0;

	if (r != -EOPNOTSUPP)
		return r;
	r = sheaf_fstat(f->f, &st);
	return r || st.st_size >= size ? r : sheaf_ftruncate(f->f, size);
}

int mfile_preallocate(struct mfile *f, MPI_Offset size)
{
	int err = 0, r = check_size(f, MKIND_PREALLOCATE, size);

	if (r)
		return r;
	if (f->rank == 0)
		err = preallocate(f, size);
	return share_again(f, err);
}

int mfile_get_size(struct mfile *f, MPI_Offset *size)
{
	struct stat st;
	int r = sheaf_fstat(f->f, &st);

	if (r)
		return merror_class(r);
	*size = st.st_size;
	return MPI_SUCCESS;
}

/* Guests first: the owner reports sizes after all data are on disk. */
int mfile_sync(struct mfile *f)
{
	int r = f->amode & MPI_MODE_RDONLY || f->is_owner ? 0 : sheaf_fsync(f->f);
	int class = msame(f, MKIND_SYNC, merror_class(r), NULL);

	if (class == MPI_ERR_NOT_SAME)
		return class;
	if (f->is_owner && !(f->amode & MPI_MODE_RDONLY))
		r = sheaf_fsync(f->f);
	return merror_all(f->comm, MAX(class, merror_class(r)));
}

/* Locks need an open of the process itself. */
int mfile_open_own(struct mfile *f)
{
	struct sheaf_file *own;
	int flags = open_flags(f->amode & ~(MPI_MODE_CREATE | MPI_MODE_EXCL)), r;

	if (f->is_owner)
		return 0;
	r = sheaf_h_open(f->fs, NULL, sheaf_file_handle(f->f), NULL, flags, 0, NULL, &own);
	if (r)
		return r;
	f->guest = f->f; /* transfers may be under way there */
	f->f = own;
	f->is_owner = true;
	return 0;
}

int mfile_set_atomicity(struct mfile *f, int flag)
{
	int64_t most[MSAME_VALUES] = { flag != 0, -(flag != 0) };
	int r = msame(f, MKIND_SET_ATOMICITY, MPI_SUCCESS, most);

	if (r || most[0] != -most[1])
		return r ? r : MPI_ERR_NOT_SAME;
	r = merror_class(flag ? mfile_open_own(f) : 0);
	r = merror_all(f->comm, r);
	if (!r)
		f->is_atomic = flag;
	return r;
}
