/* When the loop may write to a file on ext4 itself, instead of handing the write to a thread.
 * Private to src/core. */
#ifndef SHEAF_INLINE_WRITE_H
#define SHEAF_INLINE_WRITE_H

#include "core/core.h"

struct inline_writes {
	bool on, never; /* all directories are on ext4; one is not */
	int vmstat; /* open file; 0: not opened yet */
	uint64_t checked; /* when the system's dirty memory was read last */
	uint64_t left; /* bytes that may be written until it is read again */
	uint64_t paused_until; /* after a stall */
	uint64_t began; /* when the batch began, or its last write ended */
	bool stalled; /* in this batch: the rest of it is handed over */
	/* pages that are cached, for the accesses of one submit */
	uint64_t lo, hi;
};

void inline_writes_add(struct inline_writes *w, int dir); /* one more storage directory */
void inline_writes_fini(struct inline_writes *w);
/* Begins a batch of writes to one file. False: none of them is for the loop. */
bool inline_writes_begin(struct inline_writes *w, struct env *e, struct loop *l,
			 const struct io *ios, size_t n);
/* True: this write of the batch does not block, as far as can be known. */
bool inline_writes_may(const struct inline_writes *w, struct env *e, struct loop *l,
		       const struct io *io);
/* A write of the batch has ended. If it took long: counts a stall, and pauses after it. */
void inline_writes_performed(struct inline_writes *w, struct loop *l);

#endif
