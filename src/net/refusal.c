/* Refusals: counted by reason, and logged at a bounded rate. Threads: the loop's. */
#include <stdio.h>

#include "net/link.h"

#define TOLD_MAX 10 /* lines per reason and period, over all links */
#define TOLD_NS (60 * NSEC_PER_SEC)

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
static bool may_tell(struct net *n, enum refusal why)
{
	struct told *t = &n->told[why];
	uint64_t now = n->loop->now;

	if (!t->said || now - t->since >= TOLD_NS) {
		if (t->left_out)
			log_warn("net",
				 "%u more were refused (%s) and not logged; the metrics count all",
				 t->left_out, refusals[why].name);
		t->said = t->left_out = 0;
		t->since = now;
	}
	if (t->said == TOLD_MAX) {
		t->left_out++;
		return false;
	}
	t->said++;
	return true;
}

void link_refused(struct link *l, enum refusal why, const char *fmt, ...)
{
	char text[256], from[ORIGIN_TEXT];
	va_list ap;

	l->net->refused[why]++;
	if (l->told & 1u << why || !may_tell(l->net, why))
		return;
	l->told |= 1u << why;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	origin_format(from, &l->from);
	log_at(refusals[why].level, "net", 0, "refused (%s) %s from %s%s%s: %s", refusals[why].name,
	       l->host[0] ? l->host : "a stranger", from, l->key[0] ? " with key " : "", l->key,
	       text);
}
