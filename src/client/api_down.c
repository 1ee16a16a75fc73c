/* The public interface: why a server is not up, and which servers calls wait for.
 *
 * Threads: any; see api.c. Errors: none; a reason that has no text of its own gets that of its
 * errno. */
#include <stdio.h>

#include "client/api_impl.h"
#include "net/link.h"
#include "sheaf_admin.h"

const char *sheaf_down_name(int down)
{
	static const char *const names[] = {
		[SHEAF_DOWN_NOT] = "",
		[SHEAF_DOWN_REFUSED] = "refused",
		[SHEAF_DOWN_SILENT] = "no answer",
		[SHEAF_DOWN_UNREACHABLE] = "unreachable",
		[SHEAF_DOWN_KEY] = "wrong key",
		[SHEAF_DOWN_OTHER] = "wrong server",
		[SHEAF_DOWN_NAME] = "unknown host",
		[SHEAF_DOWN_VERSION] = "other version",
		[SHEAF_DOWN_STRANGER] = "no Sheaf server",
		[SHEAF_DOWN_FULL] = "too many clients",
		[SHEAF_DOWN_ERROR] = "error",
	};

	return down >= 0 && down < (int)ARRAY_LEN(names) ? names[down] : "error";
}

static enum sheaf_down kind_of_error(int error)
{
	static const struct {
		int error;
		enum sheaf_down kind;
	} kinds[] = {
		{ -ECONNREFUSED, SHEAF_DOWN_REFUSED },
		{ -EKEYREJECTED, SHEAF_DOWN_KEY },
		{ -EHOSTUNREACH, SHEAF_DOWN_UNREACHABLE },
		{ -ENETUNREACH, SHEAF_DOWN_UNREACHABLE },
		{ -EREMCHG, SHEAF_DOWN_OTHER },
		{ -EDESTADDRREQ, SHEAF_DOWN_NAME },
		{ -EHOSTDOWN, SHEAF_DOWN_NAME },
		{ -EPROTONOSUPPORT, SHEAF_DOWN_VERSION },
		{ -EPROTO, SHEAF_DOWN_STRANGER },
		{ -EUSERS, SHEAF_DOWN_FULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (kinds[i].error == error)
			return kinds[i].kind;
	return SHEAF_DOWN_ERROR;
}

/* The last attempt that failed tells more than the one under way, which may fail alike. */
static enum sheaf_down kind_of(const struct peer *p, int error)
{
	int last = p->last_error ? p->last_error : error;
	bool is_late = !last || last == -ETIMEDOUT;

	if (p->state == PEER_UP)
		return is_late ? SHEAF_DOWN_SILENT : kind_of_error(error);
	if (last == -ECONNRESET) /* the link broke, or the handshake did */
		return p->failed_at == LINK_UP || p->boot ? SHEAF_DOWN_SILENT : SHEAF_DOWN_STRANGER;
	if (!is_late)
		return kind_of_error(last);
	if (p->link)
		return p->link->state == LINK_CONNECTING ? SHEAF_DOWN_UNREACHABLE :
							   SHEAF_DOWN_SILENT;
	return p->last_error && p->failed_at == LINK_CONNECTING ? SHEAF_DOWN_UNREACHABLE :
								  SHEAF_DOWN_SILENT;
}

static void explain(const struct client *c, const struct peer *p, enum sheaf_down kind, int error,
		    char *why, size_t n)
{
	const char *text = p->refusal;

	switch (kind) {
	case SHEAF_DOWN_REFUSED:
		text = "connection refused: it does not run; 'sheaf start' on its host starts it";
		break;
	case SHEAF_DOWN_SILENT:
		text = "its process takes connections, but hangs or is stopped: see its sheafd.log";
		break;
	case SHEAF_DOWN_UNREACHABLE:
		text = "its host cannot be reached: is it down, or does a firewall drop packets?";
		break;
	case SHEAF_DOWN_KEY:
		if (p->refusal[0] && strcmp(p->refusal, "wrong key") != 0)
			snprintf(why, n, "the key was refused: %s", p->refusal);
		else
			snprintf(why, n,
				 "wrong key: %.100s is not the key of this server; copy the file "
				 "system's",
				 c->conf->key_file);
		return;
	case SHEAF_DOWN_OTHER:
		break; /* the server said what it is */
	case SHEAF_DOWN_NAME:
		text = "the name of its host cannot be resolved: correct the address in the "
		       "cluster file, or the resolver";
		break;
	case SHEAF_DOWN_VERSION:
		text = text[0] ? text :
				 "no protocol version in common: upgrade the older of server and "
				 "client";
		break;
	case SHEAF_DOWN_STRANGER:
		text = "what answers there is no Sheaf server: correct the address or the port";
		break;
	default:
		break;
	}
	snprintf(why, n, "%s", text[0] ? text : error_text(error));
}

int api_explain_down(struct sheaf *fs, int i, int r, char *why, size_t n)
{
	const struct client *c = fs->b.client;
	const struct peer *p = &c->peers[i];
	enum sheaf_down kind = kind_of(p, r);

	explain(c, p, kind, p->last_error ? p->last_error : r, why, n);
	return kind;
}

int sheaf_failed_server(struct sheaf *fs, int err, struct sheaf_server *s)
{
	const struct client *c = fs->b.client;
	const struct peer *last = NULL;
	int r = -ENOENT;

	pthread_mutex_lock(&fs->d->lock);
	for (uint32_t i = 0; i < c->n_peers; i++)
		if (c->peers[i].failed == err &&
		    (!last || c->peers[i].failed_time >= last->failed_time))
			last = &c->peers[i];
	if (last) {
		const struct conf_target *t = &c->targets[last - c->peers];

		*s = (struct sheaf_server){ .id = t->id, .roles = t->roles };
		snprintf(s->name, sizeof(s->name), "%s", t->name);
		snprintf(s->address, sizeof(s->address), "%s", t->address);
		r = 0;
	}
	pthread_mutex_unlock(&fs->d->lock);
	return r;
}

/* ---- waiting ---- */

static void take_older(const struct call *c, const struct peer *p, const struct call **oldest)
{
	if (c != &p->ping && (!*oldest || c->queued_at < (*oldest)->queued_at))
		*oldest = c;
}

static const struct call *oldest_call(const struct peer *p)
{
	const struct call *c, *oldest = NULL;

	for (uint32_t i = 0; i < SESSION_SLOTS; i++)
		if (p->slots[i].call)
			take_older(p->slots[i].call, p, &oldest);
	list_for_each(c, &p->queue, link)
		take_older(c, p, &oldest);
	list_for_each(c, &p->bulk, link)
		take_older(c, p, &oldest);
	return oldest;
}

/* Fills a row if a call to server i waits while nothing comes from there. */
static bool waits_for(struct sheaf *fs, int i, uint64_t now, uint64_t min_ns, struct sheaf_wait *w)
{
	const struct client *c = fs->b.client;
	const struct peer *p = &c->peers[i];
	const struct call *oldest = oldest_call(p);

	if (!oldest || oldest->queued_at + min_ns > now)
		return false;
	if (p->state == PEER_UP && p->link && p->link->progress + min_ns > now)
		return false;
	*w = (struct sheaf_wait){ .waited_ns = now - oldest->queued_at,
				  .left_ns = oldest->deadline - MIN(now, oldest->deadline) };
	snprintf(w->name, sizeof(w->name), "%s", c->targets[i].name);
	snprintf(w->address, sizeof(w->address), "%s", c->targets[i].address);
	w->down = api_explain_down(fs, i, -ETIMEDOUT, w->why, sizeof(w->why));
	return true;
}

int sheaf_waiting(struct sheaf *fs, uint64_t min_ns, struct sheaf_wait *rows, int max)
{
	int n = 0, servers;
	uint64_t now;

	pthread_mutex_lock(&fs->d->lock);
	now = fs->d->loop->env->clock->now(fs->d->loop->env);
	servers = (int)fs->b.client->n_peers;
	for (int i = 0; i < servers && n < max; i++)
		n += waits_for(fs, i, now, min_ns, &rows[n]);
	pthread_mutex_unlock(&fs->d->lock);
	return n;
}
