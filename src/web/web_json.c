/* The state as JSON: /api/status has the present, /api/history the last hour. The lock is held
 * while the objects are made, not while they become text. */
#include <math.h>
#include <time.h>

#include "web/web_impl.h"

static void add_double(struct json_object *o, const char *key, bool known, double v)
{
	json_object_object_add(o, key, known ? json_object_new_double(round(v * 10) / 10) : NULL);
}

static void add_rates(struct json_object *o, bool known, const struct web_rates *r)
{
	add_double(o, "requests_per_s", known, r->requests);
	add_double(o, "bytes_read_per_s", known, r->read);
	add_double(o, "bytes_written_per_s", known, r->written);
}

/* Does an earlier server have its storage on the same disk? Its space is counted once, as by df. */
static bool is_counted(const struct web_state *w, int i)
{
	const struct sheaf_server *s = &w->servers[i].s;

	for (int k = 0; k < i; k++)
		if (s->storage && w->servers[k].s.up && w->servers[k].s.storage == s->storage &&
		    (w->servers[k].s.roles & ROLE_DATA))
			return true;
	return false;
}

static struct json_object *total_json(const struct web_state *w)
{
	struct json_object *o = json_object_new_object();
	uint64_t total = 0, avail = 0, connections = 0;
	struct web_rates sum = { 0 };
	bool known = false;
	int up = 0;

	for (int i = 0; i < w->n; i++) {
		const struct web_server *s = &w->servers[i];

		if (s->has_rates) {
			known = true;
			sum.requests += s->rates.requests;
			sum.read += s->rates.read;
			sum.written += s->rates.written;
		}
		if (!s->s.up)
			continue;
		up++;
		connections += s->s.links;
		if ((s->s.roles & ROLE_DATA) && !is_counted(w, i)) {
			total += s->s.space_total;
			avail += s->s.space_avail;
		}
	}
	cli_json_int(o, "servers", w->n);
	cli_json_int(o, "up", up);
	cli_json_uint(o, "space_total", total);
	cli_json_uint(o, "space_avail", avail);
	cli_json_uint(o, "connections", connections);
	add_rates(o, known, &sum);
	return o;
}

static char *text_of(struct json_object *o)
{
	const char *text = o ? json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN) : NULL;
	char *copy = text ? strdup(text) : NULL;

	json_object_put(o);
	return copy;
}

static void add_clock(struct json_object *o, const struct web_state *w, uint64_t now)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	cli_json_text(o, "version", CLI_VERSION);
	cli_json_double(o, "time", (double)t.tv_sec + (double)(t.tv_nsec / 1000000) / 1e3);
	cli_json_double(o, "interval_s", (double)w->interval_ns / (double)NSEC_PER_SEC);
	cli_json_uint(o, "samples", w->samples);
	add_double(o, "sampled_s_ago", w->samples > 0,
		   (double)(now - MIN(now, w->sampled)) / (double)NSEC_PER_SEC);
	cli_json_uint(o, "asking_ns", w->took_ns);
}

char *web_status_text(struct web_state *w)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array(), *s;
	uint64_t now;

	pthread_mutex_lock(&w->lock);
	now = time_now();
	add_clock(o, w, now);
	json_object_object_add(o, "total", total_json(w));
	json_object_object_add(o, "latency", web_latency_json(&w->history));
	for (int i = 0; i < w->n; i++) {
		s = cli_server_json(&w->servers[i].s);
		add_rates(s, w->servers[i].has_rates, &w->servers[i].rates);
		json_object_array_add(list, s);
	}
	json_object_object_add(o, "servers", list);
	web_seen_json(&w->seen, now, o);
	pthread_mutex_unlock(&w->lock);
	return text_of(o);
}

char *web_history_text(struct web_state *w)
{
	struct json_object *o, *list, *s;

	pthread_mutex_lock(&w->lock);
	o = web_history_json(&w->history, w->n);
	add_clock(o, w, time_now());
	if (json_object_object_get_ex(o, "servers", &list))
		for (int i = 0; i < w->n; i++) {
			s = json_object_array_get_idx(list, (size_t)i);
			json_object_object_add(s, "name", cli_json_name(w->servers[i].s.name));
		}
	pthread_mutex_unlock(&w->lock);
	return text_of(o);
}
