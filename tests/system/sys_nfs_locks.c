/* Locks of NFS clients. */
#include "nfs_client.h"

static struct cluster c;
static struct sheaf *fs;
static pid_t gateway;
static uint32_t port;
static struct nfs_client n; /* connected from 127.0.0.2, where this test is its lock manager */
static struct nfs_handle top, file;

static struct wire_nlm4_lock lock_of(int owner, uint64_t at, uint64_t len)
{
	static const char *const names[] = { "a", "b", "c" };

	return (struct wire_nlm4_lock){ .caller = wire_text("host"),
					.file = nfs_bytes(&file),
					.owner = wire_text(names[owner]),
					.svid = owner,
					.offset = at,
					.length = len };
}

#define NLM(procedure, args, a, res, r) \
	nfs_call(&n, NLM_PROGRAM, NLM_VERSION, procedure, XDR_ANY(xdr_wire_##args), a, \
		 XDR_ANY(xdr_wire_##res), r)

static uint32_t lock(int owner, uint64_t at, uint64_t len, bool exclusive, bool block)
{
	struct wire_nlm4_lock_args a = { wire_text("cookie"),	  block, exclusive,
					 lock_of(owner, at, len), false, 1 };
	struct wire_nlm4_res r;

	NLM(NLM_LOCK, nlm4_lock_args, &a, nlm4_res, &r);
	CHECK(r.cookie.len == 6 && memcmp(r.cookie.p, "cookie", 6) == 0);
	return r.status;
}

static uint32_t unlock(int owner, uint64_t at, uint64_t len)
{
	struct wire_nlm4_unlock_args a = { wire_text("u"), lock_of(owner, at, len) };
	struct wire_nlm4_res r;

	NLM(NLM_UNLOCK, nlm4_unlock_args, &a, nlm4_res, &r);
	return r.status;
}

static uint32_t cancel(int owner, uint64_t at, uint64_t len)
{
	struct wire_nlm4_cancel_args a = { wire_text("x"), true, true, lock_of(owner, at, len) };
	struct wire_nlm4_res r;

	NLM(NLM_CANCEL, nlm4_cancel_args, &a, nlm4_res, &r);
	return r.status;
}

/* The holder of a conflicting lock, or -1. */
static int holder(int owner, uint64_t at, uint64_t len)
{
	struct wire_nlm4_test_args a = { wire_text("t"), true, lock_of(owner, at, len) };
	struct wire_nlm4_test_res r;

	NLM(NLM_TEST, nlm4_test_args, &a, nlm4_test_res, &r);
	CHECK(r.test.status == NLM_OK || r.test.status == NLM_DENIED);
	return r.test.status == NLM_OK ? -1 : r.test.holder.svid;
}

static void locks_of_owners_conflict(void)
{
	CHECK_EQ(lock(0, 0, 100, true, false), NLM_OK);
	CHECK_EQ(lock(0, 0, 100, true, false), NLM_OK); /* a retransmission */
	CHECK_EQ(lock(1, 50, 100, true, false), NLM_DENIED);
	CHECK_EQ(lock(1, 100, 0, true, false), NLM_OK);
	CHECK_EQ(holder(1, 0, 10), 0);
	CHECK_EQ(holder(0, 1000000, 1), 1);
	CHECK_EQ(holder(0, 0, 100), -1);
	CHECK_EQ(unlock(0, 40, 20), NLM_OK); /* splits it */
	CHECK_EQ(lock(2, 40, 20, false, false), NLM_OK);
	CHECK_EQ(lock(2, 39, 1, false, false), NLM_DENIED);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(unlock(i, 0, 0), NLM_OK);
	CHECK_EQ(lock(2, 0, UINT64_MAX, true, false), NLM_OK);
	CHECK_EQ(holder(0, 0, 0), 2);
	CHECK_EQ(unlock(2, 0, UINT64_MAX), NLM_OK);
	CHECK_EQ(holder(0, 0, 0), -1);
}

static void locks_of_sheaf_clients_conflict(void)
{
	struct sheaf_lock l = {
		.size = sizeof(l), .type = F_WRLCK, .length = 10, .owner = 7, .pid = 70
	};
	struct sheaf_file *f;

	CHECK_EQ(sheaf_open(fs, "/file", O_RDWR, 0, NULL, &f), 0);
	CHECK_EQ(sheaf_lock(f, &l, 0), 0);
	CHECK_EQ(lock(0, 5, 1, false, false), NLM_DENIED);
	CHECK_EQ(holder(0, 5, 1), 70);
	l.type = F_UNLCK;
	CHECK_EQ(sheaf_lock(f, &l, 0), 0);
	CHECK_EQ(lock(0, 5, 1, true, false), NLM_OK);
	l.type = F_RDLCK;
	CHECK_EQ(sheaf_lock(f, &l, 0), -EAGAIN);
	CHECK_EQ(unlock(0, 5, 1), NLM_OK);
	CHECK_EQ(sheaf_lock(f, &l, 0), 0);
	CHECK_EQ(sheaf_close(f), 0);
}

/* ---- waiting ---- */

static int udp_at(uint16_t number)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(number) };
	struct timeval limit = { .tv_sec = PATIENCE_S };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK_EQ(inet_pton(AF_INET, "127.0.0.2", &a.sin_addr), 1);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Answers one call of the gateway with this result; the call's arguments go to `a`. */
static void answer_one(int fd, uint32_t procedure, xdr_any args, void *a, xdr_any res, void *r,
		       struct arena *arena)
{
	static uint8_t in[8192];
	uint8_t out[1024];
	struct wire_rpc_reply head = { .kind = RPC_REPLY };
	struct wire_rpc_call call;
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	struct xdr x;
	ssize_t got;

	do { /* late repetitions of another question are skipped */
		got = recvfrom(fd, in, sizeof(in), 0, (struct sockaddr *)&from, &len);
		CHECK(got > 0);
		xdr_decoder(&x, in, (size_t)got, arena);
		CHECK(xdr_wire_rpc_call(&x, &call));
	} while (call.procedure != procedure);
	CHECK(args(&x, a));
	head.xid = call.xid;
	xdr_encoder(&x, out, sizeof(out));
	CHECK(xdr_wire_rpc_reply(&x, &head) && res(&x, r));
	CHECK(sendto(fd, out, xdr_used(&x), 0, (struct sockaddr *)&from, len) > 0);
}

/* This test as the lock manager of 127.0.0.2: gets the call that grants a lock. */
static void await_granted(int portmap, int manager, int owner, uint32_t status)
{
	struct wire_portmap_entry e;
	struct wire_portmap_port p = { 4045 };
	struct wire_nlm4_test_args a;
	struct wire_nlm4_res r = { .status = status };
	struct arena arena;

	arena_init(&arena, 65536);
	answer_one(portmap, PORTMAP_GETPORT, XDR_ANY(xdr_wire_portmap_entry), &e,
		   XDR_ANY(xdr_wire_portmap_port), &p, &arena);
	CHECK(e.program == NLM_PROGRAM && e.version == NLM_VERSION);
	answer_one(manager, NLM_GRANTED, XDR_ANY(xdr_wire_nlm4_test_args), &a,
		   XDR_ANY(xdr_wire_nlm4_res), &r, &arena);
	CHECK_EQ(a.lock.svid, owner);
	CHECK(a.lock.file.len == file.len && memcmp(a.lock.file.p, file.bytes, file.len) == 0);
	arena_destroy(&arena);
}

static void a_waiting_lock_is_granted_by_a_call(void)
{
	int portmap = udp_at(PORTMAP_PORT), manager = udp_at(4045);

	if (portmap < 0)
		return; /* without privileges */
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	CHECK_EQ(lock(1, 0, 10, true, true), NLM_BLOCKED);
	CHECK_EQ(lock(1, 0, 10, true, true), NLM_BLOCKED); /* a retransmission */
	CHECK_EQ(unlock(0, 0, 10), NLM_OK);
	await_granted(portmap, manager, 1, NLM_OK);
	CHECK(WITHIN(PATIENCE_S, holder(0, 0, 10) == 1));
	/* a client that does not want it any more */
	CHECK_EQ(lock(2, 0, 10, true, true), NLM_BLOCKED);
	CHECK_EQ(unlock(1, 0, 10), NLM_OK);
	await_granted(portmap, manager, 2, NLM_DENIED);
	CHECK(WITHIN(PATIENCE_S, holder(0, 0, 10) == -1));
	close(portmap);
	close(manager);
}

static void a_cancelled_lock_is_not_granted(void)
{
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	CHECK_EQ(lock(1, 0, 10, true, true), NLM_BLOCKED);
	CHECK_EQ(cancel(1, 0, 10), NLM_OK);
	CHECK_EQ(cancel(1, 0, 10), NLM_DENIED);
	CHECK_EQ(unlock(0, 0, 10), NLM_OK);
	CHECK(WITHIN(PATIENCE_S, holder(2, 0, 10) == -1));
	pause_ms(200);
	CHECK_EQ(holder(2, 0, 10), -1);
}

/* One owner waits for the same bytes of two files: a cancel is for one of them. */
static void waits_for_two_files_are_two(void)
{
	int portmap = udp_at(PORTMAP_PORT), manager = udp_at(4045);
	struct nfs_handle first = file, second;

	if (portmap < 0)
		return; /* without privileges */
	CHECK_EQ(nfs_create(&n, &top, "second", CREATE3_GUARDED, 0644, &second), NFS3_OK);
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	CHECK_EQ(lock(1, 0, 10, true, true), NLM_BLOCKED);
	file = second;
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	CHECK_EQ(cancel(1, 0, 10), NLM_DENIED); /* it does not wait yet */
	CHECK_EQ(lock(1, 0, 10, true, true), NLM_BLOCKED);
	CHECK_EQ(cancel(1, 0, 10), NLM_OK);
	CHECK_EQ(cancel(1, 0, 10), NLM_DENIED);
	CHECK_EQ(unlock(0, 0, 10), NLM_OK);
	CHECK(WITHIN(PATIENCE_S, holder(2, 0, 10) == -1));
	file = first;
	CHECK_EQ(unlock(0, 0, 10), NLM_OK);
	await_granted(portmap, manager, 1, NLM_OK);
	CHECK(WITHIN(PATIENCE_S, holder(2, 0, 10) == 1));
	CHECK_EQ(unlock(1, 0, 10), NLM_OK);
	close(portmap);
	close(manager);
}

/* ---- ends ---- */

/* Says that this host has restarted. */
static void notify(struct nfs_client *from, const char *host)
{
	struct wire_nsm_notify_args a = { wire_text(host), 3 };

	nfs_call(from, NSM_PROGRAM, NSM_VERSION, NSM_NOTIFY, XDR_ANY(xdr_wire_nsm_notify_args), &a,
		 NULL, NULL);
}

static void free_all(struct nfs_client *from, const char *host)
{
	struct wire_nlm4_free_args a = { wire_text(host), 3 };

	nfs_call(from, NLM_PROGRAM, NLM_VERSION, NLM_FREE_ALL, XDR_ANY(xdr_wire_nlm4_free_args), &a,
		 NULL, NULL);
}

static void a_restarted_client_loses_its_locks(void)
{
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	CHECK_EQ(lock(1, 20, 10, true, false), NLM_OK);
	notify(&n, "other");
	CHECK_EQ(holder(2, 0, 10), 0);
	notify(&n, "host");
	CHECK_EQ(holder(2, 0, 0), -1);
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	free_all(&n, "host");
	CHECK_EQ(holder(2, 0, 0), -1);
}

/* The same name from another address is not this client, and has no session. */
static void another_address_releases_no_locks(void)
{
	struct sheaf_server before;
	struct nfs_client forger;

	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	before = server_status(fs, 0);
	nfs_dial_from(&forger, port, 0, "127.0.0.1");
	notify(&forger, "host");
	free_all(&forger, "host");
	CHECK_EQ(holder(2, 0, 10), 0);
	CHECK(server_status(fs, 0).sessions <= before.sessions);
	nfs_hang_up(&forger);
	CHECK_EQ(unlock(0, 0, 10), NLM_OK);
}

/* 127.0.0.5 may use the export "ports" only, from ports below 1024: so must its status monitor. */
static void users_of_a_client_release_no_locks(void)
{
	struct nfs_client kept = n, user;
	struct nfs_handle kept_file = file, ports;
	int privileged = udp_at(PORTMAP_PORT);

	if (privileged < 0)
		return; /* without privileges */
	close(privileged);
	nfs_dial_at(&n, port, 0, "127.0.0.5", 701);
	CHECK_EQ(nfs_mount(&n, "/ports", &ports), MOUNT_OK);
	CHECK_EQ(nfs_lookup(&n, &ports, "file", &file), NFS3_OK);
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	nfs_dial_from(&user, port, 0, "127.0.0.5");
	notify(&user, "host");
	free_all(&user, "host");
	CHECK_EQ(holder(2, 0, 10), 0);
	notify(&n, "host");
	CHECK_EQ(holder(2, 0, 10), -1);
	nfs_hang_up(&user);
	nfs_hang_up(&n);
	n = kept;
	file = kept_file;
}

/* ---- gateways that end ---- */

static void dial_again(void)
{
	nfs_hang_up(&n);
	nfs_dial_from(&n, port, 0, "127.0.0.2");
}

static void next_gateway(int signal)
{
	kill(gateway, signal);
	process_wait(gateway);
	gateway = nfs_gateway_start(&c, port);
}

/* Does a Sheaf client get this byte? It gives it back. */
static bool is_free(struct sheaf_file *f, uint64_t at)
{
	struct sheaf_lock l = {
		.size = sizeof(l), .type = F_WRLCK, .start = at, .length = 1, .owner = 7
	};
	int r = sheaf_lock(f, &l, 0);

	CHECK(r == 0 || r == -EAGAIN);
	l.type = F_UNLCK;
	CHECK(r || sheaf_lock(f, &l, 0) == 0);
	return r == 0;
}

static void locks_outlive_the_gateway(void)
{
	static const int signals[] = { SIGKILL, SIGTERM, SIGKILL };
	struct sheaf_file *f;

	CHECK_EQ(sheaf_open(fs, "/file", O_RDWR, 0, NULL, &f), 0);
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	CHECK_EQ(lock(0, 20, 10, true, false), NLM_OK);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		next_gateway(signals[i]);
		/* the client sends nothing, and the lease of the session before ends */
		for (int k = 0; k < 50; k++) {
			CHECK(!is_free(f, 5));
			pause_ms(100);
		}
		dial_again();
		CHECK_EQ(lock(1, 0, 10, true, false), NLM_DENIED);
		CHECK_EQ(holder(1, 20, 1), 0);
		if (i == 1) /* it takes one of them again */
			CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	}
	CHECK_EQ(unlock(0, 20, 10), NLM_OK);
	CHECK(is_free(f, 25) && !is_free(f, 5));
	CHECK_EQ(unlock(0, 0, 0), NLM_OK);
	CHECK(is_free(f, 5));
	CHECK_EQ(sheaf_close(f), 0);
}

static void without_a_gateway_locks_end_with_the_lease(void)
{
	struct sheaf_file *f;

	CHECK_EQ(sheaf_open(fs, "/file", O_RDWR, 0, NULL, &f), 0);
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	kill(gateway, SIGKILL);
	process_wait(gateway);
	CHECK(!is_free(f, 5));
	CHECK(WITHIN(PATIENCE_S, is_free(f, 5)));
	gateway = nfs_gateway_start(&c, port);
	dial_again();
	CHECK_EQ(sheaf_close(f), 0);
}

/* It restarts while the gateway does: the new one does not know its locks. */
static void a_restarted_client_loses_inherited_locks(void)
{
	struct sheaf_file *f;

	CHECK_EQ(sheaf_open(fs, "/file", O_RDWR, 0, NULL, &f), 0);
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	next_gateway(SIGKILL);
	dial_again();
	CHECK(!is_free(f, 5));
	notify(&n, "host");
	CHECK(WITHIN(PATIENCE_S, is_free(f, 5)));
	CHECK_EQ(lock(1, 0, 10, true, false), NLM_OK);
	CHECK_EQ(unlock(1, 0, 10), NLM_OK);
	CHECK_EQ(sheaf_close(f), 0);
}

/* A user has made the directory in which gateways list clients: they do not use it; locks work. */
static void a_directory_of_a_user_is_not_used(void)
{
	const struct sheaf_cred user = { .uid = 1000, .gid = 1000 };
	struct sheaf_handle dir, root = sheaf_root(fs);
	struct sheaf_dirent d;
	struct stat st;

	CHECK_EQ(sheaf_h_lookup(fs, NULL, root, ".sheaf-nfs", &dir, &st), 0);
	CHECK(st.st_uid == 0 && (st.st_mode & 07777) == 0700);
	while (sheaf_h_readdir(fs, NULL, dir, 0, &d, 1) == 1)
		CHECK_EQ(sheaf_h_unlink(fs, NULL, dir, d.name), 0);
	CHECK_EQ(sheaf_h_rmdir(fs, NULL, root, ".sheaf-nfs"), 0);
	CHECK_EQ(sheaf_h_mkdir(fs, &user, root, ".sheaf-nfs", 0777, &dir, &st), 0);
	next_gateway(SIGTERM);
	dial_again();
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	CHECK_EQ(unlock(0, 0, 10), NLM_OK);
	CHECK_EQ(sheaf_h_readdir(fs, NULL, dir, 0, &d, 1), 0);
	CHECK_EQ(sheaf_h_rmdir(fs, NULL, root, ".sheaf-nfs"), 0);
	next_gateway(SIGTERM);
	dial_again();
}

/* Another gateway at another address is another server to the client: it inherits nothing. */
static void clients_of_two_gateways_have_two_sessions(void)
{
	uint32_t second = free_ports(1), first = port;
	pid_t other = nfs_gateway_start(&c, second);

	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	port = second;
	dial_again();
	CHECK_EQ(lock(1, 0, 10, true, false), NLM_DENIED);
	CHECK_EQ(lock(1, 50, 10, true, false), NLM_OK);
	port = first;
	dial_again();
	CHECK_EQ(holder(2, 50, 10), 1);
	CHECK_EQ(unlock(0, 0, 10), NLM_OK);
	kill(other, SIGTERM);
	CHECK_EQ(process_wait(other), 0);
}

/* This test as the status monitor of 127.0.0.2. */
static void status_monitors_are_told(void)
{
	int portmap = udp_at(PORTMAP_PORT), monitor = udp_at(4046);
	struct wire_portmap_entry e;
	struct wire_portmap_port p = { 4046 };
	struct wire_nsm_notify_args a;
	struct wire_void_args none;
	struct arena arena;

	if (portmap < 0)
		return; /* without privileges */
	arena_init(&arena, 65536);
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_OK);
	next_gateway(SIGKILL);
	answer_one(portmap, PORTMAP_GETPORT, XDR_ANY(xdr_wire_portmap_entry), &e,
		   XDR_ANY(xdr_wire_portmap_port), &p, &arena);
	CHECK(e.program == NSM_PROGRAM && e.version == NSM_VERSION);
	answer_one(monitor, NSM_NOTIFY, XDR_ANY(xdr_wire_nsm_notify_args), &a,
		   XDR_ANY(xdr_wire_void_args), &none, &arena);
	CHECK(a.host.len == 9 && memcmp(a.host.p, "127.0.0.1", 9) == 0);
	CHECK(a.state & 1);
	dial_again();
	CHECK_EQ(unlock(0, 0, 10), NLM_OK);
	arena_destroy(&arena);
	close(portmap);
	close(monitor);
}

static void stale_and_foreign_files_are_refused(void)
{
	struct nfs_handle kept = file;

	file.bytes[20] ^= 1;
	CHECK_EQ(lock(0, 0, 10, true, false), NLM_STALE);
	CHECK_EQ(unlock(0, 0, 10), NLM_STALE);
	file = kept;
	CHECK_EQ(lock(0, UINT64_MAX - 3, 2, true, false), NLM_FBIG);
}

static uint32_t port_of(uint32_t program, uint32_t version, uint32_t protocol)
{
	struct wire_portmap_entry a = { program, version, protocol, 0 };
	struct wire_portmap_port r;

	nfs_call(&n, PORTMAP_PROGRAM, PORTMAP_VERSION, PORTMAP_GETPORT,
		 XDR_ANY(xdr_wire_portmap_entry), &a, XDR_ANY(xdr_wire_portmap_port), &r);
	return r.port;
}

static void the_portmapper_knows_the_port(void)
{
	struct wire_portmap_list l;

	CHECK_EQ(port_of(NFS3_PROGRAM, 3, IPPROTO_TCP), port);
	CHECK_EQ(port_of(NLM_PROGRAM, 4, IPPROTO_UDP), port);
	CHECK_EQ(port_of(NFS3_PROGRAM, 2, IPPROTO_TCP), 0);
	CHECK_EQ(port_of(NFS3_PROGRAM, 3, IPPROTO_UDP), 0);
	CHECK_EQ(port_of(NFS3_PROGRAM, 3, 1), 0);
	nfs_call(&n, PORTMAP_PROGRAM, PORTMAP_VERSION, PORTMAP_DUMP, NULL, NULL,
		 XDR_ANY(xdr_wire_portmap_list), &l);
	CHECK_EQ(l.n_entries, 13);
}

/* What rpcbind tells of NFS to a client that has reached it at `asked`. */
static void check_address(const char *netid, const char *asked, const char *want)
{
	struct wire_rpcbind_entry a = { .program = NFS3_PROGRAM,
					.version = NFS3_VERSION,
					.netid = wire_text(netid),
					.address = wire_text(asked) };
	struct wire_rpcbind_address r;
	char full[64] = "";

	if (want[0])
		snprintf(full, sizeof(full), "%s.%u.%u", want, port >> 8, port & 0xff);
	for (uint32_t version = RPCBIND_VERSION3; version <= RPCBIND_VERSION4; version++) {
		nfs_call(&n, PORTMAP_PROGRAM, version, RPCBIND_GETADDR,
			 XDR_ANY(xdr_wire_rpcbind_entry), &a, XDR_ANY(xdr_wire_rpcbind_address),
			 &r);
		CHECK_EQ(r.address.len, strlen(full));
		CHECK(memcmp(r.address.p, full, r.address.len) == 0);
	}
}

static void rpcbind_tells_the_address(void)
{
	struct wire_rpcbind_list l;

	check_address("tcp", "192.0.2.1.0.111", "192.0.2.1");
	check_address("tcp", "", "0.0.0.0");
	check_address("tcp", "0.111", "0.0.0.0");
	check_address("tcp", "::1.0.111", "0.0.0.0");
	check_address("tcp", "192.0.2.1\n.0.111", "0.0.0.0");
	check_address("udp", "192.0.2.1.0.111", ""); /* NFS has no datagrams */
	check_address("tcp6", "::1.0.111", ""); /* this gateway has no IPv6 */
	check_address("ticlts", "", "");
	nfs_call(&n, PORTMAP_PROGRAM, RPCBIND_VERSION4, RPCBIND_DUMP, NULL, NULL,
		 XDR_ANY(xdr_wire_rpcbind_list), &l);
	CHECK_EQ(l.n_entries, 13);
}

static void begin(void)
{
	cluster_create(&c, NULL);
	nfs_exports(&c, "[export.all]\npath = /\nsquash = none\ninsecure = yes\n"
			"networks = 127.0.0.0/30\n"
			"[export.ports]\npath = /\nsquash = none\nnetworks = 127.0.0.5/32\n");
	cluster_start(&c);
	fs = client_connect(c.conf);
	port = free_ports(1);
	gateway = nfs_gateway_start(&c, port);
	nfs_dial_from(&n, port, 0, "127.0.0.2");
	CHECK_EQ(nfs_mount(&n, "/all", &top), MOUNT_OK);
	CHECK_EQ(nfs_create(&n, &top, "file", CREATE3_GUARDED, 0644, &file), NFS3_OK);
}

static void end(void)
{
	nfs_hang_up(&n);
	kill(gateway, SIGTERM);
	CHECK_EQ(process_wait(gateway), 0);
	sheaf_disconnect(fs);
	cluster_stop(&c);
}

SYS_MAIN(NULL, begin, end, TEST(locks_of_owners_conflict), TEST(locks_of_sheaf_clients_conflict),
	 TEST(a_waiting_lock_is_granted_by_a_call), TEST(a_cancelled_lock_is_not_granted),
	 TEST(waits_for_two_files_are_two), TEST(a_restarted_client_loses_its_locks),
	 TEST(another_address_releases_no_locks), TEST(users_of_a_client_release_no_locks),
	 TEST(locks_outlive_the_gateway), TEST(without_a_gateway_locks_end_with_the_lease),
	 TEST(a_restarted_client_loses_inherited_locks), TEST(a_directory_of_a_user_is_not_used),
	 TEST(clients_of_two_gateways_have_two_sessions), TEST(status_monitors_are_told),
	 TEST(stale_and_foreign_files_are_refused), TEST(the_portmapper_knows_the_port),
	 TEST(rpcbind_tells_the_address))
