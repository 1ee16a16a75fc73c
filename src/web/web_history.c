/* The last hour: points of five seconds for the whole file system, minutes for each server. Both
 * are rings of fixed size.
 *
 * A sample's differences belong to the point in which the sample ends. */
#include <math.h>
#include <stdlib.h>

#include "web/web_impl.h"

#define MINUTE_NS (60 * NSEC_PER_SEC)
#define FIRST_EDGE 4096.0 /* ns; the upper end of the first octave */

const char *const web_kinds[SHEAF_TIMES] = { [SHEAF_TIMES_READ] = "read",
					     [SHEAF_TIMES_WRITE] = "write",
					     [SHEAF_TIMES_SYNC] = "sync",
					     [SHEAF_TIMES_NAMES] = "names" };

int web_history_init(struct web_history *h)
{
	h->minutes = calloc(SHEAF_MAX_SERVERS, sizeof(*h->minutes));
	return h->minutes ? 0 : -ENOMEM;
}

void web_history_free(struct web_history *h)
{
	free(h->minutes);
}

void web_history_advance(struct web_history *h, uint64_t now)
{
	uint64_t point = now / WEB_POINT_NS, minute = now / MINUTE_NS;

	if (point - h->point > WEB_POINTS)
		h->point = point - WEB_POINTS; /* all of them are cleared */
	while (h->point < point)
		h->points[++h->point % WEB_POINTS] = (struct web_point){ 0 };
	if (minute - h->minute > WEB_MINUTES)
		h->minute = minute - WEB_MINUTES;
	while (h->minute < minute) {
		h->minute++;
		for (int i = 0; i < SHEAF_MAX_SERVERS; i++)
			h->minutes[i][h->minute % WEB_MINUTES] = (struct web_minute){ 0 };
	}
}

double web_quantile(const uint64_t octaves[SHEAF_TIME_OCTAVES], double p)
{
	double sum = 0, before = 0, rank;

	for (int i = 0; i < SHEAF_TIME_OCTAVES; i++)
		sum += (double)octaves[i];
	rank = p * sum;
	for (int i = 0; sum > 0 && i < SHEAF_TIME_OCTAVES; i++) {
		double n = (double)octaves[i];

		if (n > 0 && before + n >= rank) /* between the edges: as if spread evenly */
			return FIRST_EDGE * exp2(i - 1 + (rank - before) / n);
		before += n;
	}
	return 0;
}

/* ---- JSON ---- */

static void add_rounded(struct json_object *list, bool known, double v)
{
	json_object_array_add(list, known ? json_object_new_int64(llround(v)) : NULL);
}

static const struct web_point *point_at(const struct web_history *h, uint64_t number)
{
	return &h->points[number % WEB_POINTS];
}

static uint64_t first_point(const struct web_history *h)
{
	return h->point + 1 - MIN(h->point + 1, WEB_POINTS);
}

static void wide(const uint32_t in[SHEAF_TIME_OCTAVES], uint64_t out[SHEAF_TIME_OCTAVES])
{
	for (int i = 0; i < SHEAF_TIME_OCTAVES; i++)
		out[i] += in[i];
}

/* The times of one kind, a number for each point. */
static struct json_object *times_json(const struct web_history *h, int kind, double p)
{
	struct json_object *list = json_object_new_array();

	for (uint64_t n = first_point(h); n <= h->point; n++) {
		uint64_t octaves[SHEAF_TIME_OCTAVES] = { 0 };
		double ns;

		wide(point_at(h, n)->octaves[kind], octaves);
		ns = web_quantile(octaves, p);
		add_rounded(list, ns > 0, ns);
	}
	return list;
}

static struct json_object *minutes_json(const struct web_history *h, int server, bool is_up)
{
	struct json_object *list = json_object_new_array();

	for (int k = WEB_MINUTES - 1; k >= 0; k--) {
		const struct web_minute *m =
			&h->minutes[server][(h->minute - (uint64_t)k) % WEB_MINUTES];
		bool known = m->seen > 0 && h->minute >= (uint64_t)k;

		add_rounded(list, known,
			    is_up ? 100.0 * m->up / MAX(m->seen, 1) : (double)m->bytes / 60);
	}
	return list;
}

struct json_object *web_history_json(const struct web_history *h, int n_servers)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array(), *k;
	struct json_object *rates[3] = { json_object_new_array(), json_object_new_array(),
					 json_object_new_array() };

	json_object_object_add(o, "point_s",
			       json_object_new_double((double)WEB_POINT_NS / (double)NSEC_PER_SEC));
	for (uint64_t n = first_point(h); n <= h->point; n++) {
		const struct web_point *p = point_at(h, n);
		bool known = p->seconds > 0;

		add_rounded(rates[0], known, p->read / p->seconds);
		add_rounded(rates[1], known, p->written / p->seconds);
		add_rounded(rates[2], known, p->requests / p->seconds);
	}
	json_object_object_add(o, "bytes_read_per_s", rates[0]);
	json_object_object_add(o, "bytes_written_per_s", rates[1]);
	json_object_object_add(o, "requests_per_s", rates[2]);
	for (int i = 0; i < SHEAF_TIMES; i++) {
		k = json_object_new_object();
		json_object_object_add(k, "p50_ns", times_json(h, i, 0.5));
		json_object_object_add(k, "p99_ns", times_json(h, i, 0.99));
		json_object_object_add(o, web_kinds[i], k);
	}
	for (int i = 0; i < n_servers; i++) {
		k = json_object_new_object();
		json_object_object_add(k, "bytes_per_s", minutes_json(h, i, false));
		json_object_object_add(k, "up_percent", minutes_json(h, i, true));
		json_object_array_add(list, k);
	}
	json_object_object_add(o, "servers", list);
	return o;
}

struct json_object *web_latency_json(const struct web_history *h)
{
	uint64_t span = 60 * NSEC_PER_SEC / WEB_POINT_NS;
	struct json_object *all = json_object_new_object();

	for (int i = 0; i < SHEAF_TIMES; i++) {
		struct json_object *o = json_object_new_object();
		uint64_t octaves[SHEAF_TIME_OCTAVES] = { 0 }, count = 0;

		for (uint64_t k = 0; k < MIN(span, h->point + 1); k++)
			wide(point_at(h, h->point - k)->octaves[i], octaves);
		for (int k = 0; k < SHEAF_TIME_OCTAVES; k++)
			count += octaves[k];
		cli_json_uint(o, "count", count);
		json_object_object_add(
			o, "p50_ns",
			count ? json_object_new_int64(llround(web_quantile(octaves, 0.5))) : NULL);
		json_object_object_add(
			o, "p99_ns",
			count ? json_object_new_int64(llround(web_quantile(octaves, 0.99))) : NULL);
		json_object_object_add(all, web_kinds[i], o);
	}
	return all;
}
