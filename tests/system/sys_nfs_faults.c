/* The NFS gateway and its clients when something fails: retransmissions of calls that are under way
 * or were answered, full disks, handles of other clusters and of removed files, unknown users. */
#include <sched.h>
#include <sys/mount.h>

#include "nfs_client.h"
#include "small_disk.h"

static const char export[] = "[export.all]\npath = /\nsquash = none\ninsecure = yes\n"
			     "[export.groups]\npath = /\ninsecure = yes\nmanage_gids = yes\n"
			     "[export.home]\npath = /home\nsquash = none\ninsecure = yes\n"
			     "[export.ro]\npath = /home\nro = yes\nsquash = none\ninsecure = yes\n";

/* A cluster with a gateway, and a client of it. */
struct served {
	struct cluster c;
	uint32_t port;
	pid_t gateway;
	struct nfs_client n;
	struct nfs_handle top;
};

static void serve(struct served *s)
{
	nfs_exports(&s->c, export);
	s->port = free_ports(1);
	s->gateway = nfs_gateway_start(&s->c, s->port);
	nfs_dial(&s->n, s->port, 0);
	CHECK_EQ(nfs_mount(&s->n, "/all", &s->top), MOUNT_OK);
}

static void serve_new(struct served *s, uint32_t servers)
{
	cluster_create(&s->c, &(struct cluster_opts){ .servers = servers });
	cluster_start(&s->c);
	serve(s);
}

static void serve_no_more(struct served *s)
{
	nfs_hang_up(&s->n);
	kill(s->gateway, SIGTERM);
	CHECK_EQ(process_wait(s->gateway), 0);
}

/* ---- retransmissions ---- */

static struct nfs_handle dir;

static int encode_create(struct nfs_client *n, const char *name)
{
	static uint32_t mode = 0600;
	struct wire_create3_args a = { .where = { nfs_bytes(&dir), wire_text(name) },
				       .how.mode = CREATE3_GUARDED };

	a.how.guarded.mode = &mode;
	nfs_encode(n, NFS3_PROGRAM, NFS3_VERSION, NFS3_CREATE, XDR_ANY(xdr_wire_create3_args), &a);
	return 0;
}

static int encode_remove(struct nfs_client *n, const char *name)
{
	struct wire_remove3_args a = { { nfs_bytes(&dir), wire_text(name) } };

	nfs_encode(n, NFS3_PROGRAM, NFS3_VERSION, NFS3_REMOVE, XDR_ANY(xdr_wire_remove3_args), &a);
	return 0;
}

static int encode_rename(struct nfs_client *n, const char *name)
{
	struct wire_rename3_args a = { { nfs_bytes(&dir), wire_text(name) },
				       { nfs_bytes(&dir), wire_text("renamed") } };

	nfs_encode(n, NFS3_PROGRAM, NFS3_VERSION, NFS3_RENAME, XDR_ANY(xdr_wire_rename3_args), &a);
	return 0;
}

/* The status that the reply has; all of these replies begin with it. */
static uint32_t status_of_reply(struct nfs_client *n)
{
	const uint8_t *at;
	uint32_t status;

	CHECK(nfs_receive(n));
	CHECK_EQ(nfs_decode(n, NULL, NULL, &at), RPC_SUCCESS);
	memcpy(&status, at, sizeof(status));
	return ntohl(status);
}

enum { ANSWERED = 0, STOPPED = 1, KILLED = 2 };

static void kill_gateway(struct served *s)
{
	CHECK_EQ(kill(s->gateway, SIGKILL), 0);
	CHECK_EQ(waitpid(s->gateway, NULL, 0), s->gateway);
}

/* Sends a call, breaks the connection before the reply, and sends it again over others: the answer
 * is that of the first execution. STOPPED: the server does not execute it meanwhile. KILLED: the
 * gateway dies, and another process takes its place. */
static void send_again(struct served *s, int (*encode)(struct nfs_client *n, const char *name),
		       const char *name, int how)
{
	struct nfs_client again[3];
	bool stopped = how & STOPPED;
	uint32_t xid;

	if (stopped)
		CHECK_EQ(kill(s->c.pid[0], SIGSTOP), 0);
	encode(&s->n, name);
	xid = s->n.xid;
	nfs_send(&s->n);
	if (!stopped)
		CHECK_EQ(status_of_reply(&s->n), NFS3_OK);
	nfs_hang_up(&s->n);
	if (how & KILLED) {
		if (stopped)
			usleep(20000); /* mostly the call is on its way to the server */
		kill_gateway(s);
		if (stopped)
			CHECK_EQ(kill(s->c.pid[0], SIGCONT), 0);
		stopped = false;
		s->gateway = nfs_gateway_start(&s->c, s->port);
	}
	for (size_t i = 0; i < ARRAY_LEN(again); i++) {
		nfs_dial(&again[i], s->port, 0);
		again[i].xid = xid - 1;
		encode(&again[i], name);
		nfs_send(&again[i]);
		if (!stopped)
			CHECK_EQ(status_of_reply(&again[i]), NFS3_OK);
		if (i + 1 < ARRAY_LEN(again))
			nfs_hang_up(&again[i]);
	}
	s->n = again[ARRAY_LEN(again) - 1];
	if (!stopped)
		return;
	CHECK_EQ(kill(s->c.pid[0], SIGCONT), 0);
	CHECK_EQ(status_of_reply(&s->n), NFS3_OK);
}

static void retransmissions_are_not_executed_again(uint32_t servers)
{
	struct served s;
	struct nfs_handle h;

	serve_new(&s, servers);
	for (int how = ANSWERED; how <= (KILLED | STOPPED); how++) {
		dir = s.top;
		send_again(&s, encode_create, "made", how);
		CHECK_EQ(nfs_lookup(&s.n, &s.top, "made", &h), NFS3_OK);
		send_again(&s, encode_rename, "made", how);
		CHECK_EQ(nfs_lookup(&s.n, &s.top, "made", &h), NFS3_ENOENT);
		CHECK_EQ(nfs_lookup(&s.n, &s.top, "renamed", &h), NFS3_OK);
		send_again(&s, encode_remove, "renamed", how);
		CHECK_EQ(nfs_lookup(&s.n, &s.top, "renamed", &h), NFS3_ENOENT);
	}
	serve_no_more(&s);
	cluster_stop(&s.c);
}

static void retransmissions_to_any_gateway_are_not_executed_again(void)
{
	retransmissions_are_not_executed_again(1);
	retransmissions_are_not_executed_again(3);
}

/* A gateway that never saw the call gets it, with another time in the credential. */
static void another_gateway_gives_the_first_answer(void)
{
	struct served s;
	struct nfs_client other;
	uint32_t port;
	pid_t second;

	serve_new(&s, 1);
	port = free_ports(1);
	second = nfs_gateway_start(&s.c, port);
	nfs_dial(&other, port, 0);
	dir = s.top;
	for (int i = 0; i < 20; i++) {
		encode_create(&s.n, "made");
		nfs_send(&s.n);
		CHECK_EQ(status_of_reply(&s.n), NFS3_OK);
		other.xid = s.n.xid - 1;
		other.stamp = s.n.stamp + 1;
		encode_create(&other, "made");
		nfs_send(&other);
		CHECK_EQ(status_of_reply(&other), NFS3_OK);
		other.xid = s.n.xid; /* a new call */
		encode_create(&other, "made");
		nfs_send(&other);
		CHECK_EQ(status_of_reply(&other), NFS3_EEXIST);
		s.n.xid = other.xid;
		CHECK_EQ(nfs_remove(&s.n, &s.top, "made"), NFS3_OK);
	}
	nfs_hang_up(&other);
	kill(second, SIGTERM);
	CHECK_EQ(process_wait(second), 0);
	serve_no_more(&s);
	cluster_stop(&s.c);
}

static int encode_empty(struct nfs_client *n, const char *name)
{
	static uint64_t size;
	struct wire_create3_args a = { .where = { nfs_bytes(&dir), wire_text(name) },
				       .how.mode = CREATE3_UNCHECKED };

	a.how.unchecked.size = &size;
	nfs_encode(n, NFS3_PROGRAM, NFS3_VERSION, NFS3_CREATE, XDR_ANY(xdr_wire_create3_args), &a);
	return 0;
}

/* The size that the reply to a CREATE has. */
static uint64_t made_size(struct nfs_client *n)
{
	struct wire_create3_res r;

	CHECK(nfs_receive(n));
	CHECK_EQ(nfs_decode(n, XDR_ANY(xdr_wire_create3_res), &r, NULL), RPC_SUCCESS);
	CHECK_EQ(r.status, NFS3_OK);
	CHECK(r.created.attributes && r.created.object);
	return r.created.attributes->size;
}

/* A CREATE that empties an existing file makes two changes at the servers, each with an answer of
 * its own. Repeated at another gateway it has the new size, and cuts nothing written since. */
static void a_repeated_create_empties_a_file_once(void)
{
	struct nfs_client other;
	struct nfs_handle h;
	struct served s;
	uint32_t port, n;
	uint8_t b[8];
	pid_t second;

	serve_new(&s, 1);
	port = free_ports(1);
	second = nfs_gateway_start(&s.c, port);
	nfs_dial(&other, port, 0);
	dir = s.top;
	CHECK_EQ(nfs_create(&s.n, &s.top, "full", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(nfs_write(&s.n, &h, 0, "content", 7, STABLE3_FILE, NULL), NFS3_OK);
		encode_empty(&s.n, "full");
		nfs_send(&s.n);
		CHECK_EQ(made_size(&s.n), 0);
		other.xid = s.n.xid - 1;
		if (i % 2) /* the call comes late */
			CHECK_EQ(nfs_write(&s.n, &h, 0, "new", 3, STABLE3_FILE, NULL), NFS3_OK);
		encode_empty(&other, "full");
		nfs_send(&other);
		CHECK_EQ(made_size(&other), i % 2 ? 3 : 0);
		if (i % 2 == 0)
			CHECK_EQ(nfs_write(&s.n, &h, 0, "new", 3, STABLE3_FILE, NULL), NFS3_OK);
		n = sizeof(b);
		CHECK_EQ(nfs_read(&other, &h, 0, b, &n, NULL), NFS3_OK);
		CHECK(n == 3 && memcmp(b, "new", 3) == 0);
	}
	nfs_hang_up(&other);
	kill(second, SIGTERM);
	CHECK_EQ(process_wait(second), 0);
	serve_no_more(&s);
	cluster_stop(&s.c);
}

/* ---- calls at once ---- */

/* Each of these calls finds the file closed and opens it, since the server is stopped meanwhile.
 * All but one of the opens are closed again, while the gateway uses the other one. */
static void calls_at_once_open_a_file_once(void)
{
	enum { CALLS = 8 };
	struct nfs_client n[CALLS];
	struct nfs_handle h;
	struct served s;
	uint8_t b[CALLS];
	uint32_t len = sizeof(b);

	serve_new(&s, 1);
	CHECK_EQ(nfs_create(&s.n, &s.top, "shared", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	for (uint32_t i = 0; i < CALLS; i++)
		nfs_dial(&n[i], s.port, 0);
	CHECK_EQ(kill(s.c.pid[0], SIGSTOP), 0);
	for (uint32_t i = 0; i < CALLS; i++) {
		uint8_t byte = (uint8_t)('a' + i);
		struct wire_write3_args a = { nfs_bytes(&h), i, 1, STABLE3_FILE, { 1, &byte } };

		nfs_encode(&n[i], NFS3_PROGRAM, NFS3_VERSION, NFS3_WRITE,
			   XDR_ANY(xdr_wire_write3_args), &a);
		nfs_send(&n[i]);
	}
	pause_ms(100); /* mostly all opens have been sent */
	CHECK_EQ(kill(s.c.pid[0], SIGCONT), 0);
	for (uint32_t i = 0; i < CALLS; i++) {
		CHECK_EQ(status_of_reply(&n[i]), NFS3_OK);
		nfs_hang_up(&n[i]);
	}
	pause_ms(4500); /* files that were used are closed after 3 s */
	CHECK_EQ(nfs_read(&s.n, &h, 0, b, &len, NULL), NFS3_OK);
	CHECK(len == CALLS && memcmp(b, "abcdefgh", CALLS) == 0);
	serve_no_more(&s);
	cluster_stop(&s.c);
}

/* ---- little memory ---- */

static void serve_with_little_memory(struct served *s)
{
	cluster_create(&s->c, NULL);
	cluster_start(&s->c);
	nfs_exports(&s->c, "[nfs]\nmemory = 1m\n"); /* the gateway takes 4 MiB at least */
	serve(s);
}

/* MiB that the process had in memory at most. */
static unsigned long most_memory(pid_t pid)
{
	char path[64], line[256];
	unsigned long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %lu", &kib) == 1)
			break;
	CHECK_EQ(fclose(f), 0);
	return kib / 1024;
}

enum { READS = 64 };

static void send_reads(struct nfs_client *n, const struct nfs_handle *h)
{
	struct wire_read3_args a = { nfs_bytes(h), 0, NFS3_DATA_MAX };

	for (int i = 0; i < READS; i++) {
		nfs_encode(n, NFS3_PROGRAM, NFS3_VERSION, NFS3_READ, XDR_ANY(xdr_wire_read3_args),
			   &a);
		nfs_send(n);
	}
}

/* Replies come in any order. */
static void receive_reads(struct nfs_client *n, uint64_t seed)
{
	struct wire_read3_res r;
	const uint8_t *p;

	for (int i = 0; i < READS; i++) {
		CHECK(nfs_receive(n));
		memcpy(&n->xid, n->in, sizeof(n->xid));
		n->xid = ntohl(n->xid);
		CHECK_EQ(nfs_decode(n, XDR_ANY(xdr_wire_read3_res), &r, &p), RPC_SUCCESS);
		CHECK(r.status == NFS3_OK && r.read.count == NFS3_DATA_MAX);
		CHECK(is_pattern(p, NFS3_DATA_MAX, seed, 0));
	}
}

/* READs ask for much more than the memory of the gateway: all are answered, also while one client
 * does not read its replies yet. */
static void reads_wait_for_memory(void)
{
	static uint8_t b[NFS3_DATA_MAX];
	struct nfs_client slow, n;
	struct nfs_handle h;
	struct served s;
	unsigned long before;
	uint32_t len = sizeof(b);

	serve_with_little_memory(&s);
	fill_pattern(b, sizeof(b), 5, 0);
	CHECK_EQ(nfs_create(&s.n, &s.top, "data", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_write(&s.n, &h, 0, b, sizeof(b), STABLE3_FILE, NULL), NFS3_OK);
	CHECK_EQ(nfs_read(&s.n, &h, 0, b, &len, NULL), NFS3_OK);
	before = most_memory(s.gateway);
	nfs_dial(&slow, s.port, 0);
	send_reads(&slow, &h);
	for (int i = 0; i < 3; i++) {
		nfs_dial(&n, s.port, 0);
		send_reads(&n, &h);
		receive_reads(&n, 5);
		nfs_hang_up(&n);
	}
	receive_reads(&slow, 5);
	nfs_hang_up(&slow);
	CHECK(most_memory(s.gateway) - before < READS / 2);
	serve_no_more(&s);
	cluster_stop(&s.c);
}

/* Sends a call that has no effect; is it answered soon? */
static bool answers_datagrams(int fd, struct nfs_client *n)
{
	uint8_t reply[64];

	nfs_encode(n, MOUNT_PROGRAM, MOUNT_VERSION, MOUNT_NULL, NULL, NULL);
	while (recv(fd, reply, sizeof(reply), MSG_DONTWAIT) > 0) /* answers that came late */
		;
	CHECK_EQ(send(fd, n->out + 4, n->out_len - 4, 0), n->out_len - 4);
	for (int i = 0; i < 20; i++) {
		if (recv(fd, reply, sizeof(reply), MSG_DONTWAIT) > 0)
			return true;
		pause_ms(20);
	}
	return false;
}

/* Records that are begun and not completed take the memory for messages. */
static void without_memory_datagrams_are_dropped(void)
{
	static const uint8_t begun[5] = { 0x80, 0x10, 0, 0, 1 };
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct nfs_client n[4];
	struct served s;
	int fd;

	serve_with_little_memory(&s);
	a.sin_port = htons((uint16_t)s.port);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK(WITHIN(PATIENCE_S, answers_datagrams(fd, &s.n)));
	for (size_t i = 0; i < ARRAY_LEN(n); i++) {
		nfs_dial(&n[i], s.port, 0);
		CHECK_EQ(send(n[i].fd, begun, sizeof(begun), MSG_NOSIGNAL), sizeof(begun));
	}
	CHECK(WITHIN(PATIENCE_S, !answers_datagrams(fd, &s.n)));
	for (size_t i = 0; i < ARRAY_LEN(n); i++)
		nfs_hang_up(&n[i]);
	CHECK(WITHIN(PATIENCE_S, answers_datagrams(fd, &s.n)));
	close(fd);
	serve_no_more(&s);
	cluster_stop(&s.c);
}

/* ---- full disks ---- */

/* Writes until the disk is full; how many bytes were written. */
static uint64_t fill(struct nfs_client *n, const struct nfs_handle *h)
{
	static uint8_t b[256 * KIB];
	uint64_t at = 0;
	uint32_t status = NFS3_OK;

	while (status == NFS3_OK && at < 64 * MIB) {
		fill_pattern(b, sizeof(b), 1, at);
		status = nfs_write(n, h, at, b, sizeof(b), STABLE3_NOT, NULL);
		at += status == NFS3_OK ? sizeof(b) : 0;
	}
	CHECK_EQ(status, NFS3_ENOSPC);
	return at;
}

static bool has_room(struct nfs_client *n, const struct nfs_handle *h)
{
	static uint8_t b[MIB];

	return nfs_write(n, h, 0, b, sizeof(b), STABLE3_FILE, NULL) == NFS3_OK;
}

static void a_full_disk_is_told_and_what_was_written_stays(void)
{
	static uint8_t b[256 * KIB];
	struct nfs_handle big, later;
	struct served s;
	uint8_t verifier[8];
	uint64_t written;
	uint32_t n;

	small_disk_start(&s.c, 1, "8m");
	serve(&s);
	CHECK_EQ(nfs_create(&s.n, &s.top, "big", CREATE3_GUARDED, 0600, &big), NFS3_OK);
	written = fill(&s.n, &big);
	CHECK(written > 3 * MIB);
	CHECK_EQ(nfs_commit(&s.n, &big, verifier), NFS3_OK);
	for (uint64_t at = 0; at < written; at += n) {
		n = sizeof(b);
		CHECK_EQ(nfs_read(&s.n, &big, at, b, &n, NULL), NFS3_OK);
		CHECK(n && is_pattern(b, MIN(n, written - at), 1, at));
	}
	CHECK_EQ(nfs_create(&s.n, &s.top, "later", CREATE3_GUARDED, 0600, &later), NFS3_OK);
	CHECK_EQ(nfs_remove(&s.n, &s.top, "big"), NFS3_OK);
	CHECK(WITHIN(PATIENCE_S,
		     has_room(&s.n, &later))); /* the gateway closes the file after 3 s */
	serve_no_more(&s);
	small_disk_stop(&s.c);
}

/* ---- handles and users ---- */

static void handles_of_removed_files_and_other_clusters_are_refused(void)
{
	struct served s, other;
	struct nfs_handle h, d;
	struct wire_attr3 a;
	uint32_t n = 4;
	uint8_t b[4];

	serve_new(&s, 1);
	serve_new(&other, 1);
	CHECK_EQ(nfs_getattr(&s.n, &other.top, &a), NFS3_EBADHANDLE);
	CHECK_EQ(nfs_create(&s.n, &s.top, "gone", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_mkdir(&s.n, &s.top, "gone_too", &d), NFS3_OK);
	CHECK_EQ(nfs_remove(&s.n, &s.top, "gone"), NFS3_OK);
	CHECK_EQ(nfs_rmdir(&s.n, &s.top, "gone_too"), NFS3_OK);
	CHECK_EQ(nfs_getattr(&s.n, &h, &a), NFS3_ESTALE);
	CHECK_EQ(nfs_read(&s.n, &h, 0, b, &n, NULL), NFS3_ESTALE);
	CHECK_EQ(nfs_write(&s.n, &h, 0, "data", 4, STABLE3_FILE, NULL), NFS3_ESTALE);
	CHECK_EQ(nfs_lookup(&s.n, &d, "x", &h), NFS3_ESTALE);
	CHECK_EQ(nfs_create(&s.n, &d, "x", CREATE3_GUARDED, 0600, &h), NFS3_ESTALE);
	serve_no_more(&s);
	serve_no_more(&other);
	cluster_stop(&s.c);
	cluster_stop(&other.c);
}

/* Names that no file may have, to every procedure that makes, moves or removes names. */
static void bad_names_are_refused_by_all(void)
{
	static const uint8_t longest[256] = { [0 ... 255] = 'n' };
	static const struct {
		struct wire_bytes name;
		uint32_t status;
	} bad[] = { { { 0, longest }, NFS3_EACCES },
		    { { 3, (const uint8_t *)"a/b" }, NFS3_EACCES },
		    { { 2, (const uint8_t *)"/a" }, NFS3_EACCES },
		    { { 3, (const uint8_t *)"a\0b" }, NFS3_EACCES },
		    { { 256, longest }, NFS3_ENAMETOOLONG } };
	struct nfs_handle h;
	struct served s;

	serve_new(&s, 1);
	CHECK_EQ(nfs_create(&s.n, &s.top, "good", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		const struct wire_place3 at = { nfs_bytes(&s.top), bad[i].name };
		const struct wire_place3 good = { nfs_bytes(&s.top), wire_text("good") };
		struct wire_create3_args create = { .where = at };
		struct wire_mkdir3_args mkdir = { .where = at };
		struct wire_symlink3_args symlink = { .where = at, .target = wire_text("good") };
		struct wire_mknod3_args mknod = { .where = at, .what.type = NFS3_FIFO };
		struct wire_remove3_args remove = { at };
		struct wire_rename3_args from = { at, good }, to = { good, at };
		struct wire_link3_args link = { nfs_bytes(&h), at };
		struct wire_create3_res made;
		struct wire_change3_res change;
		struct wire_rename3_res renamed;
		struct wire_link3_res linked;

		NFS3(&s.n, NFS3_CREATE, create3_args, &create, create3_res, &made);
		CHECK_EQ(made.status, bad[i].status);
		NFS3(&s.n, NFS3_MKDIR, mkdir3_args, &mkdir, create3_res, &made);
		CHECK_EQ(made.status, bad[i].status);
		NFS3(&s.n, NFS3_SYMLINK, symlink3_args, &symlink, create3_res, &made);
		CHECK_EQ(made.status, bad[i].status);
		NFS3(&s.n, NFS3_MKNOD, mknod3_args, &mknod, create3_res, &made);
		CHECK_EQ(made.status, bad[i].status);
		NFS3(&s.n, NFS3_REMOVE, remove3_args, &remove, change3_res, &change);
		CHECK_EQ(change.status, bad[i].status);
		NFS3(&s.n, NFS3_RMDIR, remove3_args, &remove, change3_res, &change);
		CHECK_EQ(change.status, bad[i].status);
		NFS3(&s.n, NFS3_RENAME, rename3_args, &from, rename3_res, &renamed);
		CHECK_EQ(renamed.status, bad[i].status);
		NFS3(&s.n, NFS3_RENAME, rename3_args, &to, rename3_res, &renamed);
		CHECK_EQ(renamed.status, bad[i].status);
		NFS3(&s.n, NFS3_LINK, link3_args, &link, link3_res, &linked);
		CHECK_EQ(linked.status, bad[i].status);
	}
	CHECK_EQ(nfs_lookup(&s.n, &s.top, "good", &h), NFS3_OK);
	serve_no_more(&s);
	cluster_stop(&s.c);
}

/* A handle is bound to its export: a directory that left it leads nowhere above itself, and an
 * export that is read only stays so whatever else its directory is exported as. */
static void handles_lead_to_no_other_export(void)
{
	struct nfs_handle home, inner, up, all, ro, h;
	struct served s;
	struct sheaf *fs;

	serve_new(&s, 1);
	fs = client_connect(s.c.conf);
	CHECK_EQ(sheaf_mkdir(fs, "/home", 0777), 0);
	CHECK_EQ(sheaf_mkdir(fs, "/home/inner", 0777), 0);
	CHECK_EQ(nfs_mount(&s.n, "/home", &home), MOUNT_OK);
	CHECK_EQ(nfs_lookup(&s.n, &home, "inner", &inner), NFS3_OK);
	CHECK_EQ(nfs_lookup(&s.n, &inner, "..", &up), NFS3_OK);
	CHECK(up.len == home.len && memcmp(up.bytes, home.bytes, up.len) == 0);
	CHECK_EQ(sheaf_rename(fs, "/home/inner", "/outer"), 0);
	CHECK_EQ(nfs_lookup(&s.n, &inner, "..", &up), NFS3_ESTALE);
	CHECK_EQ(nfs_lookup(&s.n, &s.top, "outer", &all), NFS3_OK);
	CHECK(memcmp(all.bytes, inner.bytes, all.len)); /* of another export */
	CHECK_EQ(nfs_mount(&s.n, "/ro", &ro), MOUNT_OK);
	CHECK_EQ(nfs_create(&s.n, &ro, "new", CREATE3_GUARDED, 0600, &h), NFS3_EROFS);
	CHECK_EQ(nfs_create(&s.n, &home, "new", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_lookup(&s.n, &ro, "new", &h), NFS3_OK);
	CHECK_EQ(nfs_write(&s.n, &h, 0, "x", 1, STABLE3_FILE, NULL), NFS3_EROFS);
	sheaf_disconnect(fs);
	serve_no_more(&s);
	cluster_stop(&s.c);
}

/* The host of the gateway does not know this user, which keeps the groups that the client sent. */
static void unknown_users_are_served(void)
{
	struct nfs_client stranger;
	struct nfs_handle top, h;
	struct served s;
	struct wire_attr3 a;

	serve_new(&s, 1);
	CHECK_EQ(nfs_mkdir(&s.n, &s.top, "open", &h), NFS3_OK);
	nfs_dial(&stranger, s.port, 54321);
	CHECK_EQ(nfs_mount(&stranger, "/groups", &top), MOUNT_OK);
	CHECK_EQ(nfs_lookup(&stranger, &top, "open", &h), NFS3_OK);
	CHECK_EQ(nfs_create(&stranger, &h, "file", CREATE3_GUARDED, 0600, &h), NFS3_EACCES);
	CHECK_EQ(nfs_create(&stranger, &top, "file", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_getattr(&stranger, &h, &a), NFS3_OK);
	CHECK(a.uid == 54321 && a.gid == 54321);
	stranger.uid = stranger.gid = UINT32_MAX; /* no user has this number: the anonymous one */
	CHECK_EQ(nfs_create(&stranger, &top, "none", CREATE3_GUARDED, 0600, &h), NFS3_OK);
	CHECK_EQ(nfs_getattr(&stranger, &h, &a), NFS3_OK);
	CHECK(a.uid == 65534 && a.gid == 65534);
	nfs_hang_up(&stranger);
	serve_no_more(&s);
	cluster_stop(&s.c);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(retransmissions_to_any_gateway_are_not_executed_again),
		TEST(another_gateway_gives_the_first_answer),
		TEST(a_repeated_create_empties_a_file_once),
		TEST(calls_at_once_open_a_file_once),
		TEST(reads_wait_for_memory),
		TEST(without_memory_datagrams_are_dropped),
		TEST(handles_of_removed_files_and_other_clusters_are_refused),
		TEST(bad_names_are_refused_by_all),
		TEST(handles_lead_to_no_other_export),
		TEST(unknown_users_are_served),
		TEST(a_full_disk_is_told_and_what_was_written_stays),
	};
	size_t n = ARRAY_LEN(tests);

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		printf("without small disks: this user may not mount\n");
		n--;
	}
	return sys_run(NULL, NULL, NULL, tests, n, argc, argv);
}
