/* The clients that hold locks, as a directory of Sheaf: a file for each, named by the client and by
 * the address and port of the gateway that it uses. A gateway that starts, or takes over an
 * address, makes the sessions of these clients at once, so that their locks pass to it, and tells
 * their status monitors, so that they claim them. */
#include <stdio.h>
#include <stdlib.h>

#include "nfs/nfs_priv.h"

#define DIRECTORY ".sheaf-nfs"
#define NAME_BYTES (32 + 1 + 32 + 1 + 16 + 1 + 5 + 1)
#define PAGE 64
#define TELLING_MAX 16 /* tasks */

static void name_of(const struct nfs_session *s, char out[NAME_BYTES])
{
	char *at = out;

	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%02x", s->from.addr[i]);
	*at++ = '-';
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%02x", s->to.addr[i]);
	sprintf(at, "-%016llx-%u", (unsigned long long)address_place(s->g, &s->to), s->g->port);
}

/* Everybody may make names in the root: only a directory of root that no other user can read or
 * change is the right one. */
static int directory(struct gateway *g, bool create, struct sheaf_handle *out)
{
	struct sheaf_handle root = sheaf_root(g->fs);
	struct stat st;
	int r = sheaf_h_lookup(g->fs, &cred_gateway, root, DIRECTORY, out, &st);

	if (r == -ENOENT && create) {
		r = sheaf_h_mkdir(g->fs, &cred_gateway, root, DIRECTORY, 0700, out, &st);
		if (!r && st.st_uid) { /* root of this host is not trusted */
			sheaf_h_rmdir(g->fs, &cred_gateway, root, DIRECTORY);
			return -EPERM;
		}
	}
	if (r == -EEXIST)
		r = sheaf_h_lookup(g->fs, &cred_gateway, root, DIRECTORY, out, &st);
	return r ? r : S_ISDIR(st.st_mode) && !st.st_uid && !(st.st_mode & 077) ? 0 : -EPERM;
}

void holders_add(struct nfs_session *s)
{
	struct gateway *g = s->g;
	struct sheaf_handle dir, h;
	char name[NAME_BYTES], from[ORIGIN_TEXT];
	struct stat st;
	int r;

	if (s->is_listed || s == &g->own)
		return;
	s->is_listed = true; /* or it cannot be: then once is enough */
	name_of(s, name);
	r = directory(g, true, &dir);
	if (!r)
		r = sheaf_h_mknod(g->fs, &cred_gateway, dir, name, S_IFREG | 0600, 0, &h, &st);
	if (!r || r == -EEXIST)
		return;
	origin_format(from, &s->from);
	log_warn(
		"nfs",
		"the locks of %s will be lost with this gateway: it cannot be noted in /" DIRECTORY
		" (%s); trust root of this host, and see that the directory is root's with mode 700",
		from, error_text(r));
}

bool holders_know(struct gateway *g, const struct origin *from, const struct origin *to)
{
	const struct nfs_session named = { .g = g, .from = *from, .to = *to };
	struct sheaf_handle dir, h;
	char name[NAME_BYTES];
	struct stat st;

	name_of(&named, name);
	return directory(g, false, &dir) == 0 &&
	       sheaf_h_lookup(g->fs, &cred_gateway, dir, name, &h, &st) == 0;
}

static void holders_remove(struct nfs_session *s)
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

/* Tells the client that its server has restarted. */
static bool notify(struct nfs_session *s)
{
	struct timespec now;
	char to[ORIGIN_TEXT];
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

	origin_format(to, &s->to);
	clock_gettime(CLOCK_REALTIME, &now);
	a.host = (struct wire_bytes){ (uint32_t)strlen(to), (const uint8_t *)to };
	/* odd: it is up; other than before, and mostly greater */
	a.state =
		(int32_t)(((uint32_t)now.tv_sec << 4 | (uint32_t)(now.tv_nsec >> 26)) & INT32_MAX) |
		1;
	return port && rpc_ask(s->g, &s->from, port, &q) == 0;
}

/* On a task: the client claims its locks when it hears of the restart. */
static void tell(struct nfs_session *s)
{
	bool has_locks = sheaf_inherited(s->fs, SHEAF_INHERITED_NOW), told;
	char from[ORIGIN_TEXT];

	if (!has_locks) { /* it had none, or they ended with the lease */
		holders_remove(s);
		s->is_listed = false;
	}
	told = notify(s);
	origin_format(from, &s->from);
	if (told && has_locks)
		log_info("nfs", "%s held locks: it was told to claim them", from);
	else if (has_locks)
		log_warn("nfs",
			 "the status monitor of %s does not answer: its locks stay, but are lost "
			 "when a metadata server restarts",
			 from);
	nfs_session_put(s);
}

static void tell_on_task(void *arg)
{
	struct nfs_session *s = arg;
	struct gateway *g = s->g;

	tell(s);
	g->n_telling--;
}

static void resume(struct gateway *g, const char *name)
{
	struct origin from, to;
	struct nfs_session *s;
	unsigned long long place;
	unsigned port;

	if (strlen(name) < 67 || name[32] != '-' || name[65] != '-' ||
	    !parse_address(name, &from) || !parse_address(name + 33, &to) ||
	    sscanf(name + 66, "%16llx-%u", &place, &port) != 2 || port != g->port ||
	    place != address_place(g, &to) || !address_is_ours(g, &to))
		return;
	s = nfs_session_get(g, &from, &to);
	if (s->is_listed || s == &g->own) { /* of this process, or there is no room */
		nfs_session_put(s);
		return;
	}
	s->is_listed = true;
	if (g->n_telling < TELLING_MAX && !nfs_task_later(g, tell_on_task, s))
		g->n_telling++;
	else
		tell(s);
}

static void resume_all(void *arg)
{
	struct sheaf_dirent *page = calloc(PAGE, sizeof(*page));
	struct gateway *g = arg;
	struct sheaf_handle dir;
	uint64_t cookie = 0;
	int n = page ? directory(g, false, &dir) : -ENOMEM;

	nfs_sessions_leave(g);
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
