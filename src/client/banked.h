/* Reads through the cache bank. Private to src/client. */
#ifndef SHEAF_BANKED_H
#define SHEAF_BANKED_H

#include "cache/cache.h"
#include "client/transfer.h"

/* The answer to an open: may reads of f use the bank? */
void file_use_bank(struct cfile *f, const struct wire_open_res *r);
/* From now on our reads of this file want what the servers have, until it is not open any more. */
void file_leave_bank(struct client *c, uint64_t ino);
/* The same, if these attributes are not those that the file had at its opens. */
void file_learn(struct client *c, const struct wire_attr *at);
/* Starts a read through the bank, as client_read(). False: it was not started, since the bank is
 * not for it or would not pay. */
bool banked_read(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		 const struct extent *ext, size_t n_ext);
/* With op->plain_began: notes how long the servers took, and measures the bank if it is time to. */
void banked_note_plain(struct cop *op);

/* ---- banked_attrs.c ---- */
/* Before a stat asks a server: false: ask it. True: q goes on when the bank has answered, then
 * attrs_found() says whether op->attr is set. */
bool attrs_find(struct cop *op);
bool attrs_found(struct cop *op);
/* At the end of any operation on names or attributes. */
void attrs_end(struct cop *op, int error);
/* This client has changed an inode; names, or permissions of directories. */
void attrs_changed(struct client *c, uint64_t ino);
void attrs_changed_names(struct client *c);
/* A metadata server tells for how long it has changed nothing. */
void attrs_session(struct peer *p, const struct wire_session_res *r);

/* Makes an entry of these attributes; stamp: wall clock before the server was asked. False: they
 * do not fit. */
bool attrs_fill(struct bank_call *look, const struct wire_attr *at, uint64_t incarnation,
		uint64_t stamp);

/* ---- banked_whole.c: small files whose bytes came with their attributes ---- */
bool whole_wanted(struct client *c); /* are they read often enough to fetch them? */
void whole_keep(struct client *c, const struct bank_whole *w);
/* What is kept; NULL: nothing of this state. */
const struct bank_whole *whole_find(struct client *c, const struct bank_state *s);
const struct bank_whole *whole_of(const struct client *c, uint64_t incarnation, uint64_t ino,
				  uint64_t change);
void whole_take(struct client *c, const struct bank_whole *w, struct bank_call *call);
/* After a fill: stores attributes and bytes, if these blocks are all of a small file. */
void whole_store(struct cop *op, const struct bank_call *call);

/* ---- transfer.c ---- */
/* client_read() without the bank. */
void read_plain(struct cop *op, struct cfile *f, const struct iovec *mem, size_t n_mem,
		const struct extent *ext, size_t n_ext);

#endif
