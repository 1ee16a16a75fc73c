/* Appends: a place from the metadata server, then a write there. Private to src/client. */
#ifndef SHEAF_APPEND_H
#define SHEAF_APPEND_H

#include "client/file_impl.h"

/* An append under way, or an allocation that may make the file longer. */
struct append {
	struct list link; /* in f->appends */
	uint64_t id, length, offset, epoch;
	bool placed; /* the server gave it `offset`, under this epoch */
	uint32_t places; /* how often it asked for a place again */
	const struct iovec *mem;
	size_t n_mem;
	struct extent ext;
	bool allocates; /* ext, as client_allocate(); its place is the part behind the end */
	uint32_t mode;
	struct cop *write;
	struct wire_append_args args;
	struct wire_append_res res;
	struct wire_appended_args done_args;
	int64_t result;
};
/* `a` says what is written, and must live as long as op. */
void append_start(struct cop *op, struct append *a, struct cfile *f);
/* Writes or allocates at the place that the append was given. -EAGAIN: the place may be gone. */
void append_there(struct cop *op, struct cfile *f, const struct append *a);

#endif
