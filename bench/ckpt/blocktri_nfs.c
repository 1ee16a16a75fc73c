/* Images at an NFS server, by a client of NFSv3 in user space (src/nfsc): a new file for each
 * process, written with 4 calls in progress, and its COMMIT; then the image before is removed. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "blocktri.h"
#include "nfsc/nfsc.h"

#define CALL_BYTES (1 << 20)
#define AHEAD 4

static struct nfsc_conn conn;
static struct nfsc_handle dir;

static void set_address(struct sockaddr_in *at, const char *host, unsigned port)
{
	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	if (inet_pton(AF_INET, host, &at->sin_addr) != 1)
		fail(host, "not an address");
}

static void open_server(struct images *m)
{
	struct sockaddr_in nfs, mount;
	struct nfsc_conn c;
	unsigned ports[2];
	char host[64];
	int path = 0;

	if (sscanf(m->o->to, "nfs:%63[0-9.]:%u:%u%n", host, &ports[0], &ports[1], &path) != 3 ||
	    m->o->to[path] != '/')
		fail(m->o->to, "not of the form nfs:ADDRESS:PORT:MOUNT-PORT/PATH");
	set_address(&nfs, host, ports[0]);
	set_address(&mount, host, ports[1]);
	must("connect to the MOUNT server", nfsc_dial(&c, &mount));
	must("mount", nfsc_mnt(&c, m->o->to + path, &dir));
	nfsc_hang_up(&c);
	must("connect to the NFS server", nfsc_dial(&conn, &nfs));
	grid_begin(m->g);
}

static void name_of(const struct images *m, const char *what, int number, char name[256])
{
	snprintf(name, 256, "%.128s.%s%d.%d", m->o->job, what, number, rank);
}

static void put_array(const struct nfsc_handle *file, const char *from, uint64_t at, size_t n)
{
	uint32_t calls = (uint32_t)(n / CALL_BYTES), rest = (uint32_t)(n % CALL_BYTES);
	struct nfsc_bulk k = { .file = file,
			       .data = from,
			       .apart = CALL_BYTES,
			       .at = at,
			       .size = CALL_BYTES,
			       .n = calls,
			       .ahead = AHEAD };

	must("write", nfsc_bulk(&conn, &k));
	k = (struct nfsc_bulk){ .file = file,
				.data = from + n - rest,
				.at = at + n - rest,
				.size = rest,
				.n = rest > 0,
				.ahead = 1 };
	must("write", nfsc_bulk(&conn, &k));
}

static void write_new(struct images *m, const char *what, int number)
{
	struct grid *g = m->g;
	struct nfsc_handle file;
	char name[256];

	name_of(m, what, number, name);
	must("create", nfsc_create(&conn, &dir, name, &file));
	for (int i = 0; i < ARRAYS; i++)
		put_array(&file, (const char *)g->array[i], (uint64_t)i * g->bytes, g->bytes);
	must("commit", nfsc_commit(&conn, &file));
}

static void drop(struct images *m, const char *what, int number)
{
	char name[256];

	name_of(m, what, number, name);
	must("remove", nfsc_remove(&conn, &dir, name));
}

static void take(struct images *m, double *bytes)
{
	write_new(m, "image", m->taken);
	ranks_wait();
	if (m->taken)
		drop(m, "image", m->taken - 1);
	*bytes = (double)(m->g->bytes * ARRAYS);
}

static void raw_write(struct images *m)
{
	write_new(m, "raw", 0);
}

static void raw_drop(struct images *m)
{
	drop(m, "raw", 0);
}

static void close_server(struct images *m)
{
	if (m->taken)
		drop(m, "image", m->taken - 1);
	nfsc_hang_up(&conn);
}

const struct way way_nfs = { .open = open_server,
			     .take = take,
			     .raw_write = raw_write,
			     .raw_drop = raw_drop,
			     .close = close_server };
