/* Refusals: counted by reason, and logged at a bounded rate. Threads: the loop's. */
#include <stdio.h>

#include "net/link.h"

#define LOG_LINES_MAX 10 /* lines per reason and period, over all links */
#define LOG_PERIOD_NS (60 * NSEC_PER_SEC)

static const struct {
	const char *name;
	enum log_level level;
} refusals[N_REFUSALS] = {
	[REFUSED_PROTOCOL] = { "protocol", LOG_WARN },
	[REFUSED_CLUSTER] = { "cluster", LOG_WARN },
	[REFUSED_KEY] = { "key", LOG_WARN },
	[REFUSED_HANDSHAKE] = { "handshake", LOG_WARN },
	[REFUSED_STALLED] = { "stalled", LOG_WARN },
	[REFUSED_REVOKED] = { "revoked", LOG_WARN },
	[REFUSED_SESSION] = { "session", LOG_WARN },
	[REFUSED_CREDENTIAL] = { "credential", LOG_WARN },
	[REFUSED_SERVERS_ONLY] = { "servers_only", LOG_WARN },
	[REFUSED_FORGED] = { "forged_capability", LOG_WARN },
	[REFUSED_STALE] = { "stale_capability", LOG_INFO }, /* normal: truncates cause some */
	[REFUSED_RIGHTS] = { "capability_rights", LOG_WARN },
	[REFUSED_REPLAY] = { "replay", LOG_WARN },
	[REFUSED_LIMIT] = { "limit", LOG_WARN },
};

const char *refusal_name(enum refusal why)
{
	return refusals[why].name;
}

/* True: one more line may be logged. First logs how many were suppressed before. */
static bool may_log(struct net *n, enum refusal why)
{
	struct refusal_log *t = &n->refusal_logs[why];
	uint64_t now = n->loop->now;

	if (!t->n_logged || now - t->since >= LOG_PERIOD_NS) {
		if (t->n_suppressed)
			log_warn("net",
				 "%u more refusals (%s) were not logged; the metrics count them",
				 t->n_suppressed, refusals[why].name);
		t->n_logged = t->n_suppressed = 0;
		t->since = now;
	}
	if (t->n_logged == LOG_LINES_MAX) {
		t->n_suppressed++;
		return false;
	}
	t->n_logged++;
	return true;
}

void link_refused(struct link *l, enum refusal why, const char *fmt, ...)
{
	char text[256], from[ORIGIN_TEXT];
	va_list ap;

	l->net->refused[why]++;
	if (l->logged & 1u << why || !may_log(l->net, why))
		return;
	l->logged |= 1u << why;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	origin_format(from, &l->from);
	log_at(refusals[why].level, "net", 0, "refused (%s) %s from %s%s%s: %s", refusals[why].name,
	       l->host[0] ? l->host : "an unknown host", from, l->key[0] ? " with key " : "",
	       l->key, text);
}
