/* Texts for errno values in terms of this file system. */
#include "base/base.h"

#include <stdio.h>

static const struct {
	int err;
	const char *text;
} error_texts[] = {
	{ 0, "done" },
	{ EACCES, "permission denied" },
	{ EPERM, "not allowed for this user" },
	{ ENOENT, "no such file or directory" },
	{ EEXIST, "it exists already" },
	{ ENOTDIR, "a part of the path is not a directory" },
	{ EISDIR, "it is a directory" },
	{ ENOTEMPTY, "the directory is not empty" },
	{ ENOSPC, "no space left on a storage server" },
	{ EDQUOT, "the quota on a storage server is used up" },
	{ EROFS, "the storage is read-only" },
	{ EFBIG, "larger than a file may be" },
	{ E2BIG, "too long, or nested too deeply" },
	{ ENAMETOOLONG, "the name is too long (255 bytes a name, 4095 a path)" },
	{ ELOOP, "too many symbolic links in the path" },
	{ EXDEV, "not possible between two servers" },
	{ EREMCHG, "another server, or one of another file system, answers at this address" },
	{ EDESTADDRREQ, "the name of the host cannot be resolved" },
	{ EHOSTDOWN, "the name of the host cannot be resolved: the resolver does not answer" },
	{ EINVAL, "not a valid argument" },
	{ EIO, "a storage server could not read or write its disk, or lost unsynced data" },
	{ EFAULT, "the memory passed to the call is not mapped" },
	{ EBADF, "the file is not open for this" },
	{ ESTALE, "the file was removed meanwhile" },
	{ ENOMEM, "out of memory" },
	{ ETIMEDOUT, "the server did not answer in time; see 'sheaf status'" },
	{ ECONNREFUSED, "no server listens at this address; is it started?" },
	{ ECONNRESET, "the server closed the connection" },
	{ ENOTCONN, "not connected to the server" },
	{ EHOSTUNREACH, "the server's host cannot be reached" },
	{ ENETUNREACH, "the server's network cannot be reached" },
	{ EADDRINUSE, "the address is in use by another program" },
	{ EADDRNOTAVAIL, "the address does not belong to this host" },
	{ EKEYREJECTED, "the key was refused: this client's key file is not the cluster's" },
	{ EUSERS, "a server has reached its limit of clients; try again later" },
	{ EPROTO, "the other side does not follow the protocol; are the versions the same?" },
	{ EPROTONOSUPPORT, "the other side has another version of the protocol" },
	{ ENONET,
	  "RDMA is required (SHEAF_NET=rdma), but cannot be used: see 'sheaf status --json'" },
	{ EBADMSG, "a message could not be decoded" },
	{ EMSGSIZE, "a message is too large" },
	{ EREMOTE, "it is on another server" },
	{ EBUSY, "it is in use" },
	{ EAGAIN, "not possible right now; try again" },
	{ ECANCELED, "cancelled" },
	{ EINTR, "interrupted" },
	{ ENOSYS, "not implemented" },
	{ EOPNOTSUPP, "not supported" },
	{ EMFILE, "too many open files in this process or connection" },
	{ ENFILE, "too many open files on this host or a server" },
	{ EMLINK, "too many links" },
	{ ENODATA, "no such attribute" },
	{ ERANGE, "out of range" },
	{ EOVERFLOW, "too large for the type that holds it" },
};

const char *error_text(int err)
{
	const char *text;

	if (err < 0)
		err = err == INT32_MIN ? 0x7fffffff : -err;
	for (size_t i = 0; i < ARRAY_LEN(error_texts); i++)
		if (error_texts[i].err == err)
			return error_texts[i].text;
	text = strerrordesc_np(err);
	return text ? text : "unknown error";
}

int error_explain(char *err, size_t err_len, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, err_len, fmt, ap);
	va_end(ap);
	return rc;
}
