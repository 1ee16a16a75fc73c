/* The servers that requests of this mount wait for: for the log when the waiting begins and ends,
 * and for `sheaf status`, which asks over the control socket.
 *
 * Threads: the main thread, about once a second. Errors: none. */
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "mount/mount_priv.h"

#define SILENCE_NS NSEC_PER_SEC

static bool has(const struct sheaf_wait *rows, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(rows[i].name, name) == 0)
			return true;
	return false;
}

static unsigned long long seconds(uint64_t ns)
{
	return (ns + NSEC_PER_SEC - 1) / NSEC_PER_SEC;
}

void waits_look(struct mount *m)
{
	struct sheaf_wait now[WAITS_MAX];
	int n = sheaf_waiting(m->fs, SILENCE_NS, now, WAITS_MAX);

	for (int i = 0; i < n; i++) {
		time_t end = time(NULL) + (time_t)seconds(now[i].left_ns);
		char until[16] = "";
		struct tm tm;

		if (has(m->waits, m->n_waits, now[i].name))
			continue;
		if (localtime_r(&end, &tm))
			strftime(until, sizeof(until), "%H:%M:%S", &tm);
		log_warn("mount", "requests wait for %s (%s), until %s: %s", now[i].name,
			 now[i].address, until, now[i].why);
	}
	for (int i = 0; i < m->n_waits; i++)
		if (!has(now, n, m->waits[i].name))
			log_info("mount", "no request waits for %s any more", m->waits[i].name);
	memcpy(m->waits, now, (size_t)n * sizeof(now[0]));
	m->n_waits = n;
}

void waits_tell(struct mount *m, int to)
{
	char text[WAITS_MAX * 512] = "";
	size_t len = 0;

	waits_look(m);
	for (int i = 0; i < m->n_waits; i++) {
		const struct sheaf_wait *w = &m->waits[i];

		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %s %llu %llu %.255s\n",
					w->name, w->address, seconds(w->waited_ns),
					seconds(w->left_ns), w->why);
	}
	send(to, text, len, MSG_NOSIGNAL);
}
