/* server: one target of a file system: its storage, its metadata, its links, its operations.
 *
 * A server is attached to a loop that its caller runs (sheafd's main, embedded mode, the
 * simulation); everything in it runs on that loop's thread. */
#ifndef SHEAF_SERVER_H
#define SHEAF_SERVER_H

#include <stdatomic.h>

#include "core/core.h"
#include "net/net.h"
#include "sieve/sieve.h"

struct server;

/* Reads files into the cache bank that have no writer any more. */
struct server_filler {
	/* on the loop; must not wait */
	void (*settled)(struct server_filler *f, uint64_t ino, uint32_t gen);
	atomic_ullong filled, unfilled; /* files; unfilled: too many waited, or a read failed */
};

struct server_opts {
	struct loop *loop;
	const struct conf *conf;
	uint32_t target; /* index into conf->targets */
	struct loopback_hub *hub; /* for "loop:" addresses, or NULL */
	const char *listen; /* instead of the address in conf, or NULL */
	uint8_t client_key[KEY_BYTES], server_key[KEY_BYTES];
	uint64_t meta_map_bytes; /* 0: default */
	const char *meta_dir; /* instead of STORAGE/meta, or NULL */
	struct server_filler *filler; /* borrowed until server_stop() has returned, or NULL */
	struct {
		size_t open_objects;
		uint64_t fence_slack;
		uint32_t removing; /* files removed at a time */
	} limits; /* 0: the default */
	uint32_t max_floors; /* fences kept in memory; 0: default */
	/* outside of the simulation: measure the cost of moving bytes, and guard copies from
	 * mappings of files that may be cut */
	bool measure;
	bool was_unclean; /* the last stop was no clean one; for the metrics */
	const struct sieve_costs
		*costs; /* for tests: of disk accesses; NULL: measured, or defaults */
};

/* Formats the storage of one target. Refuses storage that belongs to a target already. */
int server_format(struct env *e, const struct conf *c, uint32_t target, char *err, size_t err_len);
/* As server_format(), but succeeds for storage that was formatted for this target before. */
int server_format_again(struct env *e, const struct conf *c, uint32_t target, char *err,
			size_t err_len);
/* For a target that lost its storage, or all objects in it: makes what is missing. Returns 1 if
 * that was needed, else 0. */
int server_format_lost(struct env *e, const struct conf *c, uint32_t target, char *err,
		       size_t err_len);
/* Makes a part of a backup file the metadata of a target. -EBUSY: the target runs. -EEXIST: its
 * metadata changed after the backup was made, and not `force`. */
struct server_part {
	int fd;
	uint64_t off, size;
	uint32_t crc;
	int64_t time;
};
int server_restore(struct env *e, const struct conf *c, uint32_t target,
		   const struct server_part *p, bool force, char *err, size_t err_len);
/* Opens the storage and listens. On failure `err` is one clear line. */
int server_start(const struct server_opts *o, struct server **out, char *err, size_t err_len);
/* Switches to the keys and networks of a newer cluster file, whose keys are loaded, and sets
 * notices for its cache bank if there were none before. c is borrowed
 * until the next call or the end of the server. Closes links whose key is gone, has changed or has
 * another role. */
void server_reread(struct server *s, const struct conf *c, const uint8_t client_key[KEY_BYTES]);
/* Stops accepting requests: new ones get no reply, and clients retransmit them after the
 * restart. */
void server_drain(struct server *s);
bool server_was_unclean(const struct server *s); /* as server_opts said */
bool server_idle(const struct server *s); /* no request in service: server_stop() will not wait */
/* Clean stop: stops accepting requests, finishes those in service (running the loop), syncs,
 * frees. */
int server_stop(struct server *s);
/* Frees everything as a crash would leave it: nothing is finished, synced or answered. */
void server_abandon(struct server *s);

/* Answers GET /metrics on HOST:PORT (IPv4) while the server runs. 0 or -errno. */
int metrics_start(struct server *s, const char *address);
/* The metrics in Prometheus's text format. Allocates *text, which the caller frees. */
int server_metrics(struct server *s, char **text, size_t *len);

#endif
