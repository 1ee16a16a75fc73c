/* A bank of memcached daemons, as struct env offers it. The simulation has its own.
 *
 * Calls block, each for little more than the timeout, so they are made by workers. One worker uses
 * a handle. A daemon that did not answer is not asked again for a while: its entries are missing,
 * and changes of them are dropped. */
#ifndef SHEAF_BANK_H
#define SHEAF_BANK_H

#include "core/core.h"

#define BANK_KEY 43 /* characters of a key: letters, digits, - and _ */
#define BANK_VALUE_MAX (MIB + 64)
#define BANK_BATCH 64 /* entries of one get() */

struct bank_setup {
	const char (*servers)[CONF_ADDR_MAX]; /* HOST:PORT; lent until close() */
	uint32_t n_servers;
	uint32_t timeout_ms;
	bool modulo;
};

struct bank_entry {
	char key[BANK_KEY];
	void *value; /* get: room for `length` bytes */
	size_t length; /* get: then the bytes of the value; 0: not there, or longer */
};

struct bank_ops {
	/* 0, or -errno and the reason with the remedy. Connects to no daemon yet. */
	int (*open)(struct env *e, const struct bank_setup *s, void **handle, char *why,
		    size_t why_len);
	void (*close)(void *handle);
	/* Fills the entries that are there, n <= BANK_BATCH. Returns how many of the daemons that
	 * have them failed, or were not asked. */
	int (*get)(void *handle, struct bank_entry *entries, size_t n);
	/* 0 or -errno. seconds 0: until the daemon needs the memory. */
	int (*set)(void *handle, const struct bank_entry *entry, uint32_t seconds);
	/* As set() if there is no such entry; else -EEXIST. */
	int (*add)(void *handle, const struct bank_entry *entry, uint32_t seconds);
	int (*remove)(void *handle, const struct bank_entry *entry);
};

#endif
