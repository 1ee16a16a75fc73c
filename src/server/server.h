/* server: one target of a file system: its storage, its metadata, its links, its operations.
 *
 * A server hangs on a loop that somebody else turns (sheafd's main, embedded mode, the simulation);
 * everything in it runs on that loop's thread. */
#ifndef SHEAF_SERVER_H
#define SHEAF_SERVER_H

#include "core/core.h"
#include "net/net.h"

struct server;

struct server_opts {
	struct loop *loop;
	const struct conf *conf;
	uint32_t target; /* index into conf->targets */
	struct loop_hub *hub; /* for "loop:" addresses, or NULL */
	const char *listen; /* instead of the address in conf, or NULL */
	uint8_t client_key[KEY_BYTES], server_key[KEY_BYTES];
	uint64_t meta_map_bytes; /* 0: default */
	const char *meta_dir; /* instead of STORAGE/meta, or NULL */
	struct {
		size_t open_objects;
		uint64_t fence_slack;
		uint32_t removing; /* files at a time */
	} limits; /* 0: the default of each */
	uint32_t max_floors; /* of fences in memory; 0: default */
	bool measure; /* in the real world: what moving bytes costs; files may be cut under a mapping */
};

/* Formats the storage of one target: refuses what is somebody's already. */
int server_format(struct env *e, const struct conf *c, uint32_t target, char *err, size_t err_len);
/* Formatted before for this very target is fine. */
int server_format_again(struct env *e, const struct conf *c, uint32_t target, char *err,
			size_t err_len);
/* Of a target that lost its storage, or all objects in it: makes what is missing. 1: that was
 * needed; 0: not. */
int server_format_lost(struct env *e, const struct conf *c, uint32_t target, char *err,
		       size_t err_len);
/* A part of a backup file becomes the metadata of a target that does not run (-EBUSY). -EEXIST: what is there changed
 * after the backup was made, and not `force`. */
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
/* Keys and networks are those of a newer cluster file, whose keys are loaded; c is borrowed until the next one
 * comes or the server is gone. Links whose key is gone, another one or of another role are closed. */
void server_reread(struct server *s, const struct conf *c, const uint8_t client_key[KEY_BYTES]);
/* Takes no new requests from now on: they are not answered, and repeated after the restart. */
void server_drain(struct server *s);
bool server_idle(const struct server *s); /* nothing is in service: server_stop() will not wait */
/* Clean stop: takes no new requests, finishes those in service (turning the loop), syncs, frees. */
int server_stop(struct server *s);
/* Frees everything as a crash would leave it: nothing is finished, synced or answered. */
void server_abandon(struct server *s);

/* Answers GET /metrics on HOST:PORT (IPv4) as long as the server runs. 0, or why not. */
int metrics_start(struct server *s, const char *address);
/* What Prometheus scrapes: allocates *text, which the caller frees. */
int server_metrics(struct server *s, char **text, size_t *len);

#endif
