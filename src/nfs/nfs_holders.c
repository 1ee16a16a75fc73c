/* The clients that hold locks, as a directory of Sheaf: a file for each, named by the client, the
 * address of the gateway that it uses, and the port. A gateway that starts, or takes over an
 * address, makes the sessions of these clients at once, so that their locks pass to it, and tells
 * their status monitors, so that they claim them. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

#define DIRECTORY ".sheaf-nfs"
#define NAME_BYTES (32 + 1 + 32 + 1 + 5 + 1)
#define PAGE 64

static void name_of(const struct nfs_session *s, char out[NAME_BYTES])
{
	char *at = out;

	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%02x", s->from.addr[i]);
	*at++ = '-';
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%02x", s->to.addr[i]);
	sprintf(at, "-%u", s->g->port);
}

static int directory(struct gateway *g, bool create, struct sheaf_handle *out)
{
	struct sheaf_handle root = sheaf_root(g->fs);
	struct stat st;
	int r = sheaf_h_lookup(g->fs, &cred_gateway, root, DIRECTORY, out, &st);

	if (r != -ENOENT || !create)
		return r;
	r = sheaf_h_mkdir(g->fs, &cred_gateway, root, DIRECTORY, 0700, out, &st);
	return r == -EEXIST ? sheaf_h_lookup(g->fs, &cred_gateway, root, DIRECTORY, out, &st) : r;
}

int holders_add(struct nfs_session *s)
{
	struct gateway *g = s->g;
	struct sheaf_handle dir, h;
	char name[NAME_BYTES];
	struct stat st;
	int r;

	if (s->is_listed)
		return 0;
	name_of(s, name);
	r = directory(g, true, &dir);
	if (!r)
		r = sheaf_h_mknod(g->fs, &cred_gateway, dir, name, S_IFREG | 0600, 0, &h, &st);
	if (r && r != -EEXIST)
		return r;
	s->is_listed = true;
	return 0;
}

void holders_remove(struct nfs_session *s)
{
	struct sheaf_handle dir;
	char name[NAME_BYTES];

	name_of(s, name);
	if (directory(s->g, false, &dir) == 0)
		sheaf_h_unlink(s->g->fs, &cred_gateway, dir, name);
}

/* ---- the start of a gateway ---- */

static bool parse_address(const char *hex, struct origin *o)
{
	memset(o, 0, sizeof(*o));
	for (int i = 0; i < 16; i++) {
		unsigned byte;

		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			return false;
		o->addr[i] = (uint8_t)byte;
	}
	return true;
}

/* Is it an address of this host? */
static bool is_ours(const struct origin *o)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	bool mapped = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)o->addr), ours;
	int fd = socket(mapped ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(&v6.sin6_addr, o->addr, 16);
	memcpy(&v4.sin_addr, o->addr + 12, 4);
	ours = fd >= 0 && (mapped ? bind(fd, (struct sockaddr *)&v4, sizeof(v4)) :
				    bind(fd, (struct sockaddr *)&v6, sizeof(v6))) == 0;
	if (fd >= 0)
		close(fd);
	return ours;
}

/* On a task: the client claims its locks when it hears that the gateway has restarted. */
static void tell(void *arg)
{
	struct nfs_session *s = arg;
	struct timespec now;
	char from[ORIGIN_TEXT], to[ORIGIN_TEXT];
	struct wire_void_args none;
	struct wire_nsm_notify_args a = { 0 };
	struct rpc_question q = { .program = NSM_PROGRAM,
				  .version = NSM_VERSION,
				  .procedure = NSM_NOTIFY,
				  .args = XDR_ANY(xdr_wire_nsm_notify_args),
				  .a = &a,
				  .res = XDR_ANY(xdr_wire_void_args),
				  .r = &none };
	uint16_t port = portmap_port_of(s->g, &s->from, NSM_PROGRAM, NSM_VERSION);

	origin_format(from, &s->from);
	origin_format(to, &s->to);
	clock_gettime(CLOCK_REALTIME, &now);
	a.host = (struct wire_bytes){ (uint32_t)strlen(to), (const uint8_t *)to };
	a.state = (uint32_t)now.tv_sec | 1; /* odd: it is up; greater than before */
	if (!port || rpc_ask(s->g, &s->from, port, &q))
		log_warn("nfs",
			 "the status monitor of %s does not answer: its locks stay, "
			 "but are lost when a metadata server restarts",
			 from);
	else
		log_info("nfs", "%s held locks: it was told to claim them", from);
	nfs_session_put(s);
}

static void resume(struct gateway *g, const char *name)
{
	struct origin from, to;
	struct nfs_session *s;
	unsigned port;

	if (strlen(name) < 67 || name[32] != '-' || name[65] != '-' ||
	    !parse_address(name, &from) || !parse_address(name + 33, &to) ||
	    sscanf(name + 66, "%u", &port) != 1 || port != g->port || !is_ours(&to))
		return;
	s = nfs_session_get(g, &from, &to);
	if (!s)
		return;
	if (s->is_listed) { /* it is ours already */
		nfs_session_put(s);
		return;
	}
	s->is_listed = true;
	if (nfs_task_later(g, tell, s))
		tell(s);
}

static void resume_all(void *arg)
{
	struct sheaf_dirent *page = calloc(PAGE, sizeof(*page));
	struct gateway *g = arg;
	struct sheaf_handle dir;
	uint64_t cookie = 0;
	int n = page ? directory(g, false, &dir) : -ENOMEM;

	if (!n)
		do {
			n = sheaf_h_readdir(g->fs, &cred_gateway, dir, cookie, page, PAGE);
			for (int i = 0; i < n; i++) {
				cookie = page[i].cookie;
				resume(g, page[i].name);
			}
		} while (n > 0);
	if (n && n != -ENOENT)
		log_warn("nfs", "the clients that hold locks are not known: %s", error_text(n));
	free(page);
}

void holders_resume(struct gateway *g)
{
	nfs_task_start(g, resume_all, g);
}
