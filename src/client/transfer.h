/* Transfers, their lanes and parts. Private to src/client.
 *
 * Each object that an access touches has one or two lanes. A lane takes the next part of the access
 * that belongs to its object (parts.c), sends it and waits for the reply (lanes.c). */
#ifndef SHEAF_TRANSFER_H
#define SHEAF_TRANSFER_H

#include "client/file_impl.h"

#define PART_BYTES (64 * MIB) /* in one request */
#define MAX_REFRESH 1000

enum kind { READ, WRITE, ALLOCATE, COPY };

struct epochs {
	uint64_t oldest, newest;
};

/* What the lanes of one object share. */
struct transfer_object {
	struct cursor next;
	struct copy_cursor next_copy;
	uint64_t end; /* the lowest end of the object in any reply */
	bool shortened; /* a part of the access lies behind that end */
};

struct lane {
	struct req q;
	struct list spare;
	struct cop *op;
	struct transfer_object *object;
	uint32_t index;
	struct view view;
	union { /* n entries */
		void *list;
		struct extent *ext;
		struct copy_piece *pieces; /* of a copy */
	};
	size_t n, cap_list; /* cap_list: bytes allocated for list */
	bool typed; /* sent as a pattern, not as the list */
	struct wire_pattern pattern;
	uint64_t upto; /* position in the access behind the pattern */
	uint32_t source_index; /* object of the other file that the pieces of a copy come from */
	uint32_t refreshes;
	struct space_wait space_wait;
	bool small; /* data travel inside the message */
	/* A read: bytes that are not sent must keep their values. Also in later parts of the lane:
	 * most of them are behind the end of the object, too. */
	bool may_be_short;
	bool refreshes_source; /* the capability of the copy's source is being refreshed */
	uint64_t epoch, source_epoch; /* of the capabilities sent */
	uint64_t sent_at; /* when the part was sent */
	struct call call;
	union wire_op_args args;
	union {
		struct wire_read_res read;
		struct wire_write_res write;
	} res;
	/* lane_new() zeroes all fields above */
	uint8_t *small_data; /* of a small write: small_capacity bytes, or NULL */
	size_t small_capacity;
};

/* The file side of an access as a pattern. */
struct shape {
	struct wire_bytes type; /* encoded; empty: lists are sent */
	int64_t base; /* file offset where the pattern begins */
	uint64_t end; /* upper bound of where it ends */
};

struct transfer {
	enum kind kind;
	enum net_method mover;
	uint32_t mode; /* of ALLOCATE */
	struct cfile *source; /* of COPY: the source */
	struct copy copy;
	uint64_t want; /* of COPY: bytes asked for, before the source's size was known */
	bool placed; /* of an append: its place is valid under place_epoch only */
	uint64_t place_epoch;
	bool sized; /* second pass of a read, after the size was asked for */
	struct epochs epochs, source_epochs; /* of the parts written, and of the source of a copy */
	uint32_t tries;
	struct transfer_object *objects; /* one per object */
	const struct typed *typed; /* or NULL */
	struct shape shape; /* of its file side; empty: too long, or the list is irregular */
};

/* ---- lanes.c ---- */
struct lane *lane_new(struct cop *op, uint32_t index); /* NULL: no memory */
void lane_free(struct lane *l);
/* Starts a lane for an object; holds op->q until the lane has ended. */
void lane_start(struct cop *op, uint32_t index);

/* ---- parts.c ---- */
/* Takes the next part of the lane's object. 0: there is one; 1: none is left; or -errno. */
int part_take(struct lane *l);

/* ---- shape.c ---- */
void shape_of_type(struct cop *op, const struct type *type, struct shape *out); /* sets type only */
void shape_of_list(struct cop *op, struct shape *out); /* of op->access */

#endif
