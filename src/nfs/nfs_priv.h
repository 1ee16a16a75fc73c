/* Shared by the files of the gateway. Private to src/nfs.
 *
 * One thread does everything: it waits for clients and servers (gateway.c), receives calls
 * (rpc_tcp.c, rpc_udp.c), executes each on a task (nfs_tasks.c), and sends replies. A call that
 * waits for a server parks its task. */
#ifndef SHEAF_NFS_PRIV_H
#define SHEAF_NFS_PRIV_H

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/base.h"
#include "base/mac.h"
#include "core/core.h"
#include "sheaf_handle.h"
#include "xdr/sunrpc.h"

#define RECORD_MAX (NFS3_DATA_MAX + 64 * KIB) /* bytes of one call */
#define REPLY_SMALL (8 * KIB) /* bytes of a reply without bulk data or a listing */
#define MEMORY_MIN (4 * RECORD_MAX) /* half for messages, half for data of READs */
#define LISTING_MAX (64 * KIB) /* bytes of entries in a reply */
#define TASKS_MAX 256 /* calls in progress */
#define HANDLE_BYTES 40
#define OFFSET_MAX (UINT64_MAX >> 1) /* in a file */
#define GIDS_MAX 32

struct gateway;
struct http;
struct nfs_call;

/* ---- nfs_memory.c: buffers of calls, counted against g->memory_max ---- */

struct nfs_buf {
	struct nfs_buf *next; /* while free */
	size_t size;
	uint8_t p[];
};
#define BUF_SMALL 0
#define BUF_LISTING 1
#define BUF_LARGE 2
#define BUF_CLASSES 3
struct nfs_buf *buf_take(struct gateway *g, size_t size); /* size <= RECORD_MAX; or NULL */
void buf_give(struct gateway *g, struct nfs_buf *b); /* b may be NULL */
bool memory_has_room(const struct gateway *g); /* for one more call of any size */
/* Buffers for the data of READs, for which room was reserved before. */
struct nfs_buf *data_take(struct gateway *g, size_t size);
void data_give(struct gateway *g, struct nfs_buf *b); /* b may be NULL */
/* For a connection that has so much reserved already: it gets no more than it leaves for others, so
 * that clients that do not read their replies leave some. False: there is no room, or another READ
 * waits for it; streams_resume() begins anew. */
bool data_reserve(struct gateway *g, size_t has, size_t bytes);
void data_release(struct gateway *g, size_t bytes);
void memory_end(struct gateway *g); /* frees the free buffers */

/* ---- gateway.c ---- */

/* A descriptor that the gateway waits for, on its loop. */
struct nfs_source {
	struct source on;
	int fd; /* -1: closed */
	unsigned events; /* EV_IN, EV_OUT */
	void (*ready)(struct nfs_source *s, unsigned events);
	struct gateway *g;
};
int source_add(struct gateway *g, struct nfs_source *s, int fd, unsigned events,
	       void (*ready)(struct nfs_source *s, unsigned events));
int source_want(struct nfs_source *s, unsigned events);
void source_close(struct nfs_source *s);

struct nfs_counts {
	uint64_t calls, errors; /* errors: refused or failed */
	uint64_t ns; /* time of all of them, from receipt to reply */
};
#define PROCEDURES_MAX 32
#define PROGRAMS_MAX 8

/* A cluster file, kept while calls point into it. */
struct nfs_conf {
	struct conf *conf;
	unsigned refs;
};

#define LOSSES_MAX 256
/* Servers refused an access to this file, or could not sync it, since data of it are lost. */
struct nfs_loss {
	uint64_t ino, gen;
	uint64_t since; /* its beginning, or the last progress of the client that writes again */
	uint64_t at; /* the lowest offset of a refused WRITE; UINT64_MAX: only a sync has failed */
	uint64_t reached; /* where the writes below `at` have got to since then */
	bool refused; /* a WRITE was refused since the last sync with data */
};

#define DIR_STATES 4096
struct dir_state {
	uint64_t ino, change; /* ino 0: empty */
	struct wire_before3 state;
};

/* The session of a client at the servers. */
struct nfs_session {
	struct hnode node;
	struct list link; /* in g->sessions_by_use or g->lost_sessions while refs is 0 */
	struct gateway *g;
	struct origin from, to; /* the client, and the address at which it called */
	struct sheaf *fs;
	unsigned refs, locked_files;
	uint64_t used;
	bool is_listed; /* by holders_add() */
	bool is_forgotten; /* not in g->sessions any more */
};

struct gateway {
	struct sheaf *fs;
	const char *conf_path;
	struct conf *conf; /* that of `conf_now` */
	struct nfs_conf *conf_now;
	uint16_t port;
	bool no_portmap; /* clients are given the port */
	bool has_ipv4, has_ipv6; /* addresses of these kinds are served */
	uint64_t fsid;
	struct mac_key *handle_key;
	struct loop *loop; /* its clients', not libsheaf's */
	struct nfs_source signals, control;
	struct list listeners, conns, paused, unsent, dead_conns;
	unsigned n_conns, n_receiving, n_calls;
	bool stopping;
	struct list executing; /* calls that run on tasks or whose replies are sent */
	uint64_t swept; /* when idle files and stuck connections were looked for */
	/* nfs_tasks.c */
	struct list all_tasks, idle_tasks, ready_tasks, waiting_calls;
	pthread_mutex_t ready_lock; /* guards ready_tasks */
	pthread_t thread;
	struct fiber main;
	unsigned n_tasks, n_idle; /* n_tasks: including idle ones */
	/* nfs_memory.c */
	size_t memory_used, data_used, memory_max; /* at most half of it each */
	bool data_is_awaited; /* a READ waits for room */
	struct nfs_buf *free_bufs[BUF_CLASSES];
	unsigned n_free[BUF_CLASSES];
	/* nfs_files.c */
	struct htab files;
	struct list idle_files; /* by time of use */
	uint64_t next_mark;
	struct nfs_loss losses[LOSSES_MAX];
	unsigned n_losses;
	struct dir_state dirs[DIR_STATES]; /* nfs_dirs.c */
	/* nlm_files.c, nlm_wait.c */
	struct htab locked_files;
	struct list lock_waits;
	unsigned n_lock_waits;
	/* rpc_ask.c */
	struct list asking;
	uint32_t next_xid;
	/* replay.c */
	struct htab replays;
	struct list replays_by_age;
	size_t n_replays;
	uint64_t n_replayed;
	/* nfs_sessions.c */
	struct htab sessions;
	struct list sessions_by_use, lost_sessions; /* those without calls and files */
	struct nfs_session own; /* of the gateway, and of clients for which there is no room */
	bool only; /* it listens at one address: */
	struct origin listens;
	uint64_t host_number;
	unsigned n_telling; /* tasks of nfs_holders.c */
	/* nfs_clients.c */
	struct htab clients;
	struct list clients_by_use;
	/* nfs_metrics.c */
	struct http *http; /* or NULL */
	struct nfs_source metrics;
	bool http_waits; /* it is to be run within a second */
	struct nfs_counts counts[PROGRAMS_MAX][PROCEDURES_MAX];
};

/* Takes over a cluster file, which may replace another one. */
int gateway_use(struct gateway *g, struct conf *c);
struct nfs_conf *conf_take(struct gateway *g);
void conf_give(struct nfs_conf *c); /* NULL is allowed */

static inline uint64_t gateway_now(const struct gateway *g)
{
	return g->loop->env->clock->now(g->loop->env);
}

/* Everything but listening; `fd` is readable when the loop has events, or -1. */
int gateway_init(struct gateway *g, int fd);
int gateway_listen(struct gateway *g);
/* One turn without waiting: runs what became ready. */
void gateway_turn(struct gateway *g);
void gateway_run(struct gateway *g); /* until g->stopping */
void gateway_end(struct gateway *g);

/* ---- nfs_tasks.c ---- */

int nfs_tasks_init(struct gateway *g, int fd);
/* Executes the call on a task, now or when one is free; call_execute() is called there. */
void nfs_task_submit(struct nfs_call *c);
/* Calls run(arg) on a task, at once and until it is parked. -ENOMEM: no task is free. */
int nfs_task_start(struct gateway *g, void (*run)(void *arg), void *arg);
/* The same, but not before the running task is parked or has ended. */
int nfs_task_later(struct gateway *g, void (*run)(void *arg), void *arg);
bool nfs_task_is_free(struct gateway *g);
/* For waits of a task that are none of libsheaf's: nfs_task_wake(), from any thread, ends the
 * nfs_task_sleep() of nfs_task_self(), also if it comes first. */
void *nfs_task_self(void);
void nfs_task_sleep(void);
void nfs_task_wake(void *task);
void nfs_tasks_run_ready(struct gateway *g);
bool nfs_tasks_are_ready(struct gateway *g);
void nfs_tasks_end(struct gateway *g);
void nfs_tasks_free(struct gateway *g); /* of tasks that wait, only the memory ends */

/* ---- rpc_call.c: one call ---- */

struct rpc_proc {
	const char *name;
	xdr_any args, res; /* NULL: void */
	size_t args_size, res_size;
	void (*run)(struct nfs_call *c); /* fills c->res; NULL: an answer without content */
	bool once; /* not idempotent: a retransmission gets the first reply */
};
struct rpc_program {
	const char *name;
	uint32_t number, version;
	const struct rpc_proc *procs;
	uint32_t n_procs;
	bool in_session; /* executed in the client's session, not in the gateway's own */
};
/* A row of a program's table. */
#define RPC_PROC(title, arguments, result, function, is_once) \
	{ \
		.name = title, .args = XDR_ANY(xdr_wire_##arguments), \
		.res = XDR_ANY(xdr_wire_##result), .args_size = sizeof(struct wire_##arguments), \
		.res_size = sizeof(struct wire_##result), .run = function, .once = is_once \
	}
extern const struct rpc_program *const rpc_programs[];

/* How replies get back. send() owns the call from then on. */
struct rpc_transport {
	const char *name;
	void (*send)(struct nfs_call *c);
	void (*drop)(struct nfs_call *c); /* instead of a reply: what came was no call */
	void (*forget)(struct nfs_call *c); /* the call is being freed */
};

struct nfs_call {
	struct gateway *g;
	struct list link; /* waits for a task, or to be sent */
	struct list executing; /* in g->executing */
	const struct rpc_transport *transport;
	void *conn; /* of the transport */
	struct sockaddr_storage peer; /* UDP: where the reply goes */
	struct origin from, to;
	uint16_t port; /* of the client */
	struct nfs_session *session; /* or NULL */
	struct sheaf *fs; /* of the session, or g->fs */
	uint64_t began;
	struct nfs_buf *in; /* the message */
	size_t in_len, args_at; /* args_at: where the arguments begin */
	uint8_t call_id[16]; /* of a procedure with `once`: see replay.c */
	struct arena arena;
	struct wire_rpc_call head;
	const struct rpc_program *program;
	const struct rpc_proc *proc;
	uint32_t uid, gid, n_gids, gids[GIDS_MAX]; /* the caller; after export_enter() squashed */
	struct sheaf_cred cred; /* the same for libsheaf */
	struct nfs_conf *conf; /* while it is executed */
	const struct conf_export *export; /* after handle_enter() */
	uint64_t ino; /* of the last handle_enter() */
	void *args, *res;
	struct nfs_buf *out; /* RECORD_MARK bytes, then the reply */
	size_t out_len;
	struct nfs_buf *data; /* READ: sent behind `out`, padded */
	size_t data_len;
	size_t data_wanted, data_room; /* bytes that a READ asks for; that are reserved for it */
	size_t sent; /* bytes of both */
	size_t reply_room; /* for the encoded reply */
	bool failed; /* for the counters */
	bool running; /* was passed to a task */
};
#define RECORD_MARK 4

struct nfs_call *call_new(struct gateway *g, const struct rpc_transport *t, void *conn);
void call_free(struct nfs_call *c);
void call_execute(struct nfs_call *c); /* on a task; ends with send() or drop() */
void *call_alloc(struct nfs_call *c, size_t n); /* of the call's arena; or NULL */
void counts_add(struct nfs_counts *n, const struct nfs_call *c, uint64_t ns);

/* ---- rpc_stream.c: connections ---- */

/* A connection has come; its descriptor is closed with it, or at once. */
void stream_start(struct gateway *g, int fd, const struct origin *from, const struct origin *to,
		  uint16_t port);
void streams_flush(struct gateway *g);
void streams_resume(struct gateway *g); /* those that wait for memory */
void streams_sweep(struct gateway *g, uint64_t now); /* closes stuck ones */
void streams_end(struct gateway *g);

/* ---- rpc_tcp.c, rpc_udp.c: sockets ---- */

int rpc_tcp_listen(struct gateway *g, const struct sockaddr *a, socklen_t len);
void rpc_tcp_end(struct gateway *g); /* listens no more */
int rpc_udp_listen(struct gateway *g, const struct sockaddr *a, socklen_t len);
/* IPv4 addresses become mapped ones. */
void origin_of(const struct sockaddr_storage *a, struct origin *o, uint16_t *port);

/* ---- rpc_ask.c: calls to clients ---- */

struct rpc_question {
	uint32_t program, version, procedure;
	xdr_any args, res;
	void *a, *r; /* the result must not hold bytes or arrays that are used */
};
/* Asks over UDP, on a task. 0, -ETIMEDOUT after some seconds, or another -errno. */
int rpc_ask(struct gateway *g, const struct origin *to, uint16_t port,
	    const struct rpc_question *q);
void rpc_ask_sweep(struct gateway *g); /* once a second: repeats questions */

/* ---- portmap.c ---- */

void portmap_start(struct gateway *g, const struct sockaddr *a, socklen_t len);
/* Is it served over this protocol (IPPROTO_TCP, IPPROTO_UDP)? */
bool program_is_served(const struct rpc_program *p, uint32_t protocol);
/* Asks the portmapper of this host; a `portmap_done` answers. 0 or -errno. */
int portmap_ask(struct gateway *g, uint32_t version, uint32_t procedure, xdr_any args, void *a);

/* The UDP port of a program at another host; 0: its portmapper does not say. On a task. */
uint16_t portmap_port_of(struct gateway *g, const struct origin *host, uint32_t program,
			 uint32_t version);

/* ---- rpcbind.c: the portmapper for clients of IPv6 ---- */

/* Registers a program for IPv6, or all of its transports no more. On a task. */
void rpcbind_set(struct gateway *g, const struct rpc_program *p);
void rpcbind_unset(struct gateway *g, const struct rpc_program *p);

/* ---- nlm_files.c, nlm_wait.c ---- */

/* Forgets its locks, which the servers have taken away. */
void nlm_forget_session(struct nfs_session *s);

void nlm_cancel_all(struct gateway *g); /* no lock is waited for any more */

/* ---- replay.c: replies to calls that must not be executed twice ---- */

int replay_init(struct gateway *g);
/* Sets call_id: the same for a retransmission, at every gateway of the cluster. */
void replay_name(struct nfs_call *c);
/* True: this is a retransmission, and the call is not the caller's any more: it gets the first
 * reply, when there is one. False: the call is new, and noted. */
bool replay_find(struct nfs_call *c);
void replay_store(struct nfs_call *c);
/* There is no reply. The next retransmission is executed: the servers have the answer. */
void replay_fail(struct nfs_call *c);
void replay_end(struct gateway *g);

/* ---- nfs_sessions.c ---- */

int nfs_sessions_init(struct gateway *g);
/* nfs_session_put() after use. */
struct nfs_session *nfs_session_get(struct gateway *g, const struct origin *from,
				    const struct origin *to);
void nfs_session_put(struct nfs_session *s);
bool nfs_session_exists(struct gateway *g, const struct origin *from, const struct origin *to);
void nfs_sessions_sweep(struct gateway *g, uint64_t now); /* ends idle ones */
/* Ends those of clients that use an address which this host does not have any more. */
void nfs_sessions_leave(struct gateway *g);
void nfs_sessions_end(struct gateway *g);
/* Does a client reach this gateway at this address? */
bool address_is_ours(const struct gateway *g, const struct origin *o);
/* A number of this host for an address that other hosts have, too (127.0.0.1); else 0. */
uint64_t address_place(const struct gateway *g, const struct origin *o);

/* ---- nfs_holders.c: clients that hold locks ---- */

void holders_add(struct nfs_session *s); /* before its first lock */
/* Is the client listed? Asks a server. */
bool holders_know(struct gateway *g, const struct origin *from, const struct origin *to);
/* Makes the sessions of listed clients that use an address of this host. */
void holders_resume(struct gateway *g);

/* ---- nfs_clients.c: counters by client ---- */

struct nfs_client {
	struct hnode node;
	struct list link; /* in g->clients_by_use, the last caller at the end */
	struct origin from;
	struct nfs_counts counts;
	uint64_t received, sent; /* bytes */
};
int clients_init(struct gateway *g);
void clients_count(struct nfs_call *c, uint64_t ns);
void clients_end(struct gateway *g);

/* ---- nfs_metrics.c ---- */

int nfs_metrics_start(struct gateway *g); /* at g->conf->nfs.metrics */
void nfs_metrics_run(struct gateway *g); /* does nothing without metrics */

/* ---- groups.c ---- */

void groups_look_up(struct nfs_call *c); /* replaces the groups of the caller by the host's */

/* ---- exports.c ---- */

const struct conf_export *export_by_name(const struct conf *c, const char *name, size_t len);
/* Does any export admit this client at all? */
bool exports_admit(const struct conf *c, const struct origin *from);
bool export_admits(const struct conf_export *e, const struct origin *from);
/* Does any export admit it from this port? */
bool exports_trust(const struct conf *c, const struct origin *from, uint16_t port);
/* The call is about this export: checks client and port, and squashes the caller. An nfs3_status
 * (NFS3_EACCES, NFS3_EPERM). */
uint32_t export_enter(struct nfs_call *c, const struct conf_export *e);
/* Walks `path` (components between '/') from the root of the export. 0 or -errno. */
int export_walk(struct nfs_call *c, const struct conf_export *e, const char *path,
		struct sheaf_handle *out);

/* The directory above `dir`; above the root of the export is the root itself. */
int find_up(struct nfs_call *c, struct sheaf_handle dir, struct sheaf_handle *up, struct stat *st);

/* ---- handles.c: file handles ---- */

int handles_init(struct gateway *g, char *err, size_t err_len);
/* HANDLE_BYTES of the call's arena, which *out refers to; false: out of memory. */
bool handle_make(struct nfs_call *c, const struct sheaf_handle *h, struct wire_bytes *out);
/* Checks a handle and its export; an nfs3_status. */
uint32_t handle_enter(struct nfs_call *c, const struct wire_bytes *wire, struct sheaf_handle *out);

/* ---- nfs_files.c: open files ---- */

struct nfs_file {
	struct hnode node;
	struct list link; /* in idle_files while refs is 0 */
	struct sheaf_handle h;
	struct nfs_session *session;
	bool writes;
	uint32_t uid, gid, n_gids, gids[GIDS_MAX]; /* that it was opened for */
	struct sheaf_file *f;
	unsigned refs;
	uint64_t used;
	bool dropped; /* not in the table any more: closed with the last reference */
	bool unsynced; /* written since the last sync */
	uint64_t verifier; /* before the first of these writes; 0: there is none */
	uint64_t mark; /* of the last sync */
};
#define NO_VERIFIER (UINT64_C(1) << 63) /* no file's verifier has this bit */
int nfs_files_init(struct gateway *g);
/* Opens the file for the caller, or finds it open. 0 or -errno; nfs_file_put() after use. */
int nfs_file_get(struct nfs_call *c, const struct sheaf_handle *h, bool writes,
		 struct nfs_file **out);
void nfs_file_put(struct gateway *g, struct nfs_file *f);
/* Forgets an open that the servers no longer know; the caller still puts it. */
void nfs_file_drop(struct gateway *g, struct nfs_file *f);
/* A WRITE at `at`, or a sync (UINT64_MAX), failed with EIO: have servers lost data that clients
 * will write again? `before`: the verifier under which data were written through this open; 0: none
 * were. Only if that has changed: else the disk has failed. And only until 30 s have passed without
 * progress, whatever opens there were: then the file is damaged for good. */
bool nfs_file_has_lost(struct nfs_file *f, uint64_t before, uint64_t verifier, uint64_t at);
/* Data were written: progress, or the end of the loss. */
void nfs_file_wrote(struct nfs_file *f, uint64_t at, uint64_t len);
/* Is it being written through this gateway? */
bool nfs_files_is_written(struct gateway *g, const struct sheaf_handle *h);
/* Brings all data of the file to disk, whichever gateway wrote them. *verifier: the file's
 * afterwards. 0 or -errno; lost data are no error if the verifier shows them. */
int nfs_files_sync(struct nfs_call *c, const struct sheaf_handle *h, uint64_t *verifier);
void nfs_files_sweep(struct gateway *g, uint64_t now); /* closes idle ones */
void nfs_files_close(struct gateway *g); /* begins to close all that nobody uses */
void nfs_files_end(struct gateway *g);
extern const struct sheaf_cred cred_gateway; /* root */

/* ---- nfs_access.c: what a caller may do, as far as the gateway decides ---- */

/* Rights (ACCESS3_*) that mode and access control list give the caller. Asks a server. */
uint32_t access_of(struct nfs_call *c, const struct sheaf_handle *h, const struct stat *st);
/* The caller owns the file: NFS lets the owner access it whatever its mode says. */
bool caller_owns(struct nfs_call *c, const struct sheaf_handle *h);
bool caller_executes(struct nfs_call *c, const struct sheaf_handle *h);

/* ---- nfs3_attr.c ---- */

uint32_t nfs3_status_of(int r); /* 0 or -errno; counts nothing */
void attr3_of(const struct gateway *g, const struct stat *st, struct wire_attr3 *a);
/* Attributes in the call's arena, or NULL: they are optional in replies. */
struct wire_attr3 *attr3_copy(struct nfs_call *c, const struct stat *st);
int attr3_ask(struct nfs_call *c, const struct sheaf_handle *h, struct stat *st); /* 0 or -errno */
struct wire_attr3 *attr3_get(struct nfs_call *c, const struct sheaf_handle *h);
/* A name as libsheaf takes it; an nfs3_status. */
#define NAME_BUF (NFS3_NAME_MAX + 1)
uint32_t name3_copy(const struct wire_bytes *n, char out[NAME_BUF]);
/* What a SETATTR or CREATE asks for besides the size: SHEAF_SET_*; 0: nothing. */
unsigned set3_of(const struct wire_new_attr3 *a, struct stat *st);
/* Applies it; with the owner's rights where the caller has them. 0 or -errno. */
int set3_apply(struct nfs_call *c, const struct sheaf_handle *h, const struct wire_new_attr3 *a,
	       struct stat *out);

/* ---- nfs_dirs.c: states of directories ---- */

/* The directory was seen in this state. */
void dir3_seen(struct gateway *g, uint64_t ino, uint64_t change, const struct stat *st);
/* The state of a directory before and after the change of names that this call has just made. */
void dir3_changed(struct nfs_call *c, const struct sheaf_handle *dir, struct wire_change3 *out);

/* ---- the programs ---- */

extern const struct rpc_program nfs3_program, mount3_program, nlm4_program, nsm_program,
	portmap_program, rpcbind3_program, rpcbind4_program;
/* Bytes of data that the call in c->in, which is not decoded yet, asks for: those of a READ. */
size_t nfs3_read_wants(struct nfs_call *c);
/* clang-format off */
#define NFS3_OPS(OP) \
	OP(getattr) OP(setattr) OP(lookup) OP(access) OP(readlink) OP(read) OP(write) OP(create) \
	OP(mkdir) OP(symlink) OP(mknod) OP(remove) OP(rmdir) OP(rename) OP(link) OP(readdir) \
	OP(readdirplus) OP(fsstat) OP(fsinfo) OP(pathconf) OP(commit)
/* clang-format on */
#define DECLARE_NFS3_OP(name) void nfs3_##name(struct nfs_call *c);
NFS3_OPS(DECLARE_NFS3_OP)

/* ---- nfs_control.c: `sheaf nfs` asks a running gateway ---- */

int control_listen(struct gateway *g);

#endif
