/* Helpers of the tests of src/reg: a device that pins nothing and counts, and the io_uring device
 * with a file to move bytes through.
 *
 * Threads: any for the devices. Errors: failed checks. */
#ifndef SHEAF_TEST_REG_FIXTURE_H
#define SHEAF_TEST_REG_FIXTURE_H

#include <stdatomic.h>

#include "reg/reg.h"

/* Registers what is mapped, as long as no limit is reached. */
struct fake_device {
	atomic_uint made, refused, dropped, live;
	uint64_t fails_above; /* -ENOMEM when more than these bytes are live; 0: never */
	_Atomic uint64_t live_bytes;
};
extern const struct reg_ops fake_ops;

/* The io_uring device with its cache, and a file of scratch bytes. */
struct pinned {
	struct reg_iouring *device;
	struct reg *reg;
	int fd;
};
#define PINNED_FILE (8 * MIB)
/* False: this host has no io_uring. */
bool pinned_start(struct pinned *x, uint64_t limit, unsigned flags);
void pinned_end(struct pinned *x);
/* Moves the piece through the device to the file, and compares it with the memory. */
void pinned_check_out(struct pinned *x, const struct reg_use *u, size_t i,
		      const struct iovec *piece);
/* Moves random bytes into the piece through the device, and compares it. */
void pinned_check_in(struct pinned *x, const struct reg_use *u, size_t i, const struct iovec *piece,
		     uint64_t *seed);
/* Acquires a piece, checks both directions, releases it. Returns what reg_acquire() returned. */
int pinned_check(struct pinned *x, void *addr, size_t len);

/* n pages of private memory, filled with a pattern. */
char *pages_map(size_t n);
void pages_fill(char *p, size_t len, uint64_t seed);

#endif
