/* File names: "sheaf:/path", or a path on a Sheaf mount of this host.
 *
 * A mount tells its cluster file and its directory in the table of mounts. Threads: any. Errors: a
 * name that is not recognized is the MPI library's. */
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "mpiio/mpi_impl.h"

#define PREFIX "sheaf:"

/* The absolute form of a path whose last component may be missing. */
static bool absolute(const char *name, char out[PATH_MAX])
{
	char dir[PATH_MAX];
	const char *last = strrchr(name, '/');
	size_t n = last ? (size_t)(last - name) : 0;

	if (realpath(name, out))
		return true;
	if (n >= sizeof(dir))
		return false;
	memcpy(dir, n ? name : last ? "/" : ".", n ? n : 1);
	dir[n ? n : 1] = 0;
	if (!realpath(dir, out))
		return false;
	n = strlen(out);
	return (size_t)snprintf(out + n, PATH_MAX - n, "/%s", last ? last + 1 : name) <
	       PATH_MAX - n;
}

bool mname_parse(const char *name, struct mname *out)
{
	char path[PATH_MAX], where[PATH_MAX];
	size_t n;

	memset(out, 0, sizeof(*out));
	if (strncmp(name, PREFIX, strlen(PREFIX)) == 0) {
		name += strlen(PREFIX);
		return (size_t)snprintf(out->path, PATH_MAX, "%s%s", *name == '/' ? "" : "/",
					name) < PATH_MAX;
	}
	if (!absolute(name, path) || !mount_of_path(path, where, out->conf))
		return false;
	n = strlen(where);
	snprintf(out->path, PATH_MAX, "%s", path[n] ? path + n : "/");
	return true;
}
