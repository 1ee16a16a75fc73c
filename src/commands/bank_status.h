/* The daemons of the cache bank, and its state as commands show it. */
#ifndef SHEAF_BANK_STATUS_H
#define SHEAF_BANK_STATUS_H

#include "commands/commands.h"

#define BANK_ANSWER_MAX (16 * KIB)

struct bank_daemon {
	const char *address;
	char host[CONF_ADDR_MAX], port[8];
};
void bank_daemon_split(struct bank_daemon *d); /* sets host and port */
struct addrinfo;
struct addrinfo *bank_daemon_resolve(const struct bank_daemon *d); /* NULL: not known */
/* The text of `stats`; 0 or -errno. */
int bank_daemon_ask(const struct bank_daemon *d, char out[BANK_ANSWER_MAX]);
uint64_t bank_daemon_number(const char *stats, const char *name);

struct bank_daemon_now {
	struct bank_daemon at;
	int error; /* 0: it has answered */
	uint64_t answer_ns, entries, bytes, limit, hits, misses, evictions;
};
struct bank_state_now {
	uint32_t n, n_up; /* daemons */
	struct bank_daemon_now *rows; /* the caller frees it */
	struct json_object *daemons, *servers; /* parts of the result */
	uint32_t n_meta, n_tell; /* metadata servers; those that set notices */
	char silent[32]; /* one that does not, or "" */
	uint64_t hits, misses, bytes, errors, answer_ns; /* answer_ns: of the slowest daemon */
};
/* Asks all daemons, and with fs the metadata servers. */
struct json_object *bank_state_take(struct bank_state_now *s, const struct conf *conf,
				    struct sheaf *fs);
void bank_state_line(const struct bank_state_now *s, FILE *f); /* for people */

#endif
