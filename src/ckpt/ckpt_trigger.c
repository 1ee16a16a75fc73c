/* When sheaf_ckpt_poll() takes a checkpoint: a signal, a request by `sheaf ckpt now`, the batch
 * system's warning, or an interval. Any process may have got a signal; process 0 knows the rest and
 * decides.
 *
 * Threads: that of the call; signal handlers only count. */
#include <math.h>
#include <signal.h>

#include "ckpt/ckpt_impl.h"

#define ASK_NS NSEC_PER_SEC /* how often the request file is looked for */
#define SIGNALS 65
#define FAILED_PAUSE 10 /* times as long as the failure took */

enum { ASKS_NOW = 1, ASKS_END = 2 };

static atomic_int came[SIGNALS];

static void on_signal(int sig)
{
	atomic_fetch_add(&came[sig], 1);
}

static int count_signal(int sig, int *seen)
{
	struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	if (!sig)
		return 0;
	sigemptyset(&a.sa_mask);
	if (sig < 0 || sig >= SIGNALS || sigaction(sig, &a, NULL))
		return ckpt_fail(-EINVAL, "signal %d cannot request checkpoints", sig);
	*seen = atomic_load(&came[sig]);
	return 0;
}

int ckpt_trigger_init(struct sheaf_ckpt *c)
{
	int r = count_signal(c->o.signal_now, &c->trigger.seen_now);

	if (!r)
		r = count_signal(c->o.signal_end, &c->trigger.seen_end);
	if (!r && c->o.interval_s < 0 && !(c->o.mtbf_s > 0))
		r = ckpt_fail(-EINVAL,
			      "SHEAF_CKPT_BEST needs mtbf_s, the seconds between failures");
	c->trigger.last = time_now();
	return r;
}

struct counts {
	int now, end;
};

static struct counts signals_of(const struct sheaf_ckpt *c)
{
	return (struct counts){
		.now = c->o.signal_now ? atomic_load(&came[c->o.signal_now]) : 0,
		.end = c->o.signal_end ? atomic_load(&came[c->o.signal_end]) : 0,
	};
}

static uint32_t asks_of(const struct ckpt_trigger *t, const struct counts *s)
{
	return (s->now != t->seen_now ? ASKS_NOW : 0) | (s->end != t->seen_end ? ASKS_END : 0);
}

/* ---- process 0 ---- */

/* The interval that loses least, by Daly's approximation; cost and mtbf in seconds. */
static double best_interval(double cost, double mtbf)
{
	double x = cost / (2 * mtbf);

	if (x >= 1)
		return mtbf;
	return sqrt(2 * cost * mtbf) * (1 + sqrt(x) / 3 + x / 9) - cost;
}

/* Seconds; 0: not by time. */
static double interval_of(struct sheaf_ckpt *c)
{
	double best, cost = c->cost.blocked_s;

	if (!(c->o.interval_s < 0))
		return c->o.interval_s;
	if (!c->newest || c->back)
		return 0;
	best = best_interval(MAX(cost, 1e-6), c->o.mtbf_s);
	/* the next one begins after this one */
	best = MAX(best, c->cost.total_s);
	if (fabs(best - c->trigger.announced) > c->trigger.announced / 5) {
		ckpt_say(
			c,
			"a checkpoint costs %.3g s, and with a failure every %.4g s an interval of "
			"%.4g s loses least (%.2g %% of the time)",
			cost, c->o.mtbf_s, best, 100 * (cost / best + best / (2 * c->o.mtbf_s)));
		c->trigger.announced = best;
	}
	return best;
}

static bool is_time(struct sheaf_ckpt *c)
{
	double passed = (double)(time_now() - c->trigger.last) / 1e9, interval;

	if (c->back || c->trigger.is_deferred) /* is being written, or failed */
		return false;
	interval = interval_of(c);
	c->cost.interval_s = interval;
	if (c->o.interval_s < 0 && !c->newest)
		return true; /* the first one is measured */
	return interval > 0 && passed >= interval;
}

/* Has `sheaf ckpt now` left its file? */
static bool is_requested(struct sheaf_ckpt *c)
{
	char path[CKPT_PATH];

	if (time_now() - c->trigger.asked < ASK_NS && c->trigger.asked)
		return false;
	c->trigger.asked = time_now();
	snprintf(path, sizeof(path), "%s/request", c->store.path);
	return sheaf_unlink(c->fs, path) == 0;
}

/* What was asked for and has failed is tried again after a pause, as the failure may last. */
static void defer(struct sheaf_ckpt *c, uint64_t begun, int r)
{
	struct ckpt_trigger *t = &c->trigger;
	uint64_t now = time_now();

	t->is_deferred = r < 0;
	if (!r || r == -EBUSY)
		t->again = now; /* when the last one has been written */
	else
		t->again = now + MAX(FAILED_PAUSE * (now - begun), NSEC_PER_SEC);
}

static int decide(struct sheaf_ckpt *c, uint32_t mine, uint32_t *asks)
{
	uint32_t *all = calloc((size_t)c->x.comm.n, sizeof(*all));
	int r = all ? ckpt_up(&c->x, &mine, sizeof(mine), all, (int)c->o.timeout_ms) :
		      ckpt_fail(-ENOMEM, "out of memory");

	*asks = 0;
	if (c->back && !ckpt_background_is_busy(c)) {
		int failed = ckpt_background_join(c);

		if (failed)
			defer(c, time_now() - (uint64_t)(c->cost.total_s * 1e9), failed);
	}
	for (int i = 0; !r && i < c->x.comm.n; i++)
		*asks |= all[i];
	free(all);
	if (c->trigger.is_deferred && !c->back && time_now() >= c->trigger.again)
		*asks |= ASKS_NOW;
	if (c->trigger.is_warned && !c->trigger.is_ending)
		*asks |= ASKS_END;
	if (!r && (is_requested(c) || (!*asks && is_time(c))))
		*asks |= ASKS_NOW;
	return r;
}

/* ---- all processes ---- */

void ckpt_trigger_taken(struct sheaf_ckpt *c)
{
	c->trigger.last = time_now();
}

int sheaf_ckpt_poll(struct sheaf_ckpt *c)
{
	struct counts signals = signals_of(c);
	uint32_t mine = asks_of(&c->trigger, &signals), asks = 0;
	uint64_t begun = time_now();
	int r;

	ckpt_exchange_call(&c->x);
	if (c->x.comm.rank)
		r = ckpt_up(&c->x, &mine, sizeof(mine), NULL, (int)c->o.timeout_ms);
	else
		r = decide(c, mine, &asks);
	if (!r)
		r = ckpt_down(&c->x, &asks, sizeof(asks), false, (int)c->o.timeout_ms);
	if (r && asks)
		defer(c, begun, r);
	if (r) /* process 0 may not have heard of the signals: they ask again */
		return r;
	c->trigger.seen_now = signals.now;
	c->trigger.seen_end = signals.end;
	if (!asks)
		return 0;
	if (asks & ASKS_END)
		c->trigger.is_warned = true;
	r = sheaf_ckpt_take(c);
	defer(c, begun, r);
	if (r == -EBUSY) /* while the last one is written */
		return 0;
	if (!r && c->trigger.is_warned) { /* if it fails, the next call takes another one */
		r = sheaf_ckpt_wait(c);
		c->trigger.is_ending = !r;
	}
	return r ? r : 1;
}

int sheaf_ckpt_ending(struct sheaf_ckpt *c)
{
	return c->trigger.is_ending;
}
