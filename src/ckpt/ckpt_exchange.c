/* Small messages between process 0 and all others: up to it, and down from it.
 *
 * Each message carries the number of the collective call and of the step in it. A process that
 * comes late finds the answer of process 0, that the call has timed out, and messages of calls that
 * have ended are discarded. So processes that missed one call meet again in the next one.
 *
 * Threads: that of the collective call. Errors: -ETIMEDOUT, explained. */
#include "ckpt/ckpt_impl.h"

struct head {
	uint64_t call;
	uint32_t step;
	int32_t status; /* 0; or -errno, and an explanation follows */
};

static uint64_t deadline_of(int ms)
{
	return time_now() + (uint64_t)ms * NSEC_PER_MSEC;
}

static int left_ms(uint64_t deadline)
{
	uint64_t now = time_now();

	return now < deadline ? (int)((deadline - now) / NSEC_PER_MSEC) + 1 : 0;
}

int ckpt_exchange_init(struct ckpt_exchange *x, const struct sheaf_ckpt_comm *comm)
{
	memset(x, 0, sizeof(*x));
	if (comm)
		x->comm = *comm;
	else
		x->comm.n = 1;
	x->early = calloc((size_t)x->comm.n, sizeof(*x->early));
	x->early_len = calloc((size_t)x->comm.n, sizeof(*x->early_len));
	return x->early && x->early_len ? 0 : ckpt_fail(-ENOMEM, "out of memory");
}

void ckpt_exchange_free(struct ckpt_exchange *x)
{
	for (int i = 0; x->early && i < x->comm.n; i++)
		free(x->early[i]);
	free(x->early);
	free(x->early_len);
	if (x->comm.free)
		x->comm.free(x->comm.arg);
}

void ckpt_exchange_call(struct ckpt_exchange *x)
{
	x->call++;
	x->step = 0;
}

static int send_to(struct ckpt_exchange *x, int to, int status, const void *buf, size_t len)
{
	struct head *h = malloc(sizeof(*h) + len);
	int r;

	if (!h)
		return ckpt_fail(-ENOMEM, "out of memory");
	*h = (struct head){ .call = x->call, .step = x->step, .status = status };
	if (len)
		memcpy(h + 1, buf, len);
	r = x->comm.send(x->comm.arg, to, h, sizeof(*h) + len);
	free(h);
	return r ? ckpt_fail(r, "process %d cannot be reached: %s", to, sheaf_strerror(r)) : 0;
}

/* <0: the message is of an earlier step, 0: of this one, >0: of a later one */
static int compare(const struct ckpt_exchange *x, const struct head *h)
{
	if (h->call != x->call)
		return h->call < x->call ? -1 : 1;
	return h->step == x->step ? 0 : h->step < x->step ? -1 : 1;
}

/* The message of this step; -ETIMEDOUT, also if the other one is in a later step already. */
static ssize_t receive(struct ckpt_exchange *x, int from, void **buf, uint64_t deadline)
{
	for (;;) {
		ssize_t len = (ssize_t)x->early_len[from];
		int order;

		*buf = x->early[from];
		x->early[from] = NULL;
		if (!*buf)
			len = x->comm.recv(x->comm.arg, from, buf, left_ms(deadline));
		if (len < 0)
			return len;
		order = (size_t)len < sizeof(struct head) ? -1 : compare(x, *buf);
		if (!order)
			return len;
		if (order > 0) {
			x->early[from] = *buf;
			x->early_len[from] = (size_t)len;
			return -ETIMEDOUT;
		}
		free(*buf);
	}
}

/* "process 3", "processes 1, 2 and 9 others" */
static void name_missing(char *out, size_t n, const int *who, int count)
{
	size_t at = (size_t)snprintf(out, n, count == 1 ? "process" : "processes");

	for (int i = 0; i < count && i < 8; i++)
		at += (size_t)snprintf(out + at, n - at, "%s %d", i ? "," : "", who[i]);
	if (count > 8)
		snprintf(out + at, n - at, " and %d others", count - 8);
}

/* Tells everyone that these did not come. */
static int give_up(struct ckpt_exchange *x, const int *who, int count, int ms)
{
	char text[CKPT_WHY], names[128];

	name_missing(names, sizeof(names), who, count);
	snprintf(text, sizeof(text),
		 "%s did not come to the checkpoint within %.1f s: all processes must make the "
		 "same calls; a longer timeout_ms waits longer",
		 names, ms / 1e3);
	for (int i = 1; i < x->comm.n; i++)
		send_to(x, i, -ETIMEDOUT, text, strlen(text) + 1);
	x->step++;
	return ckpt_fail(-ETIMEDOUT, "%s", text);
}

int ckpt_up(struct ckpt_exchange *x, const void *mine, size_t len, void *all, int ms)
{
	uint64_t deadline = deadline_of(ms);
	int *missing, count = 0, r = 0;

	if (x->comm.rank)
		return send_to(x, 0, 0, mine, len);
	memcpy(all, mine, len);
	missing = malloc((size_t)x->comm.n * sizeof(*missing));
	if (!missing)
		return ckpt_fail(-ENOMEM, "out of memory");
	for (int i = 1; i < x->comm.n; i++) {
		void *buf;
		ssize_t got = receive(x, i, &buf, deadline);

		if (got < 0) {
			missing[count++] = i;
			continue;
		}
		if ((size_t)got == sizeof(struct head) + len)
			memcpy((char *)all + (size_t)i * len, (struct head *)buf + 1, len);
		else
			missing[count++] = i;
		free(buf);
	}
	if (count)
		r = give_up(x, missing, count, ms);
	free(missing);
	return r;
}

/* What process 0 sent in this step; its explanation if that is an error. */
static int from_root(struct ckpt_exchange *x, void **buf, size_t *len, int ms)
{
	/* it may have come late, and may wait for others as long */
	ssize_t got = receive(x, 0, buf, deadline_of(2 * ms + 1000));
	struct head *h = *buf;
	int r;

	x->step++;
	if (got < 0)
		return ckpt_fail((int)got,
				 "process 0 did not come to the checkpoint within %.1f s: all "
				 "processes must make the same calls",
				 2 * ms / 1e3 + 1);
	*len = (size_t)got - sizeof(*h);
	r = h->status;
	if (r) {
		ckpt_fail(r, "%.*s", (int)*len, (char *)(h + 1));
		free(*buf);
	}
	return r;
}

int ckpt_down_any(struct ckpt_exchange *x, void **buf, size_t *len, int ms)
{
	int r = 0;

	if (x->comm.rank) {
		r = from_root(x, buf, len, ms);
		if (!r)
			memmove(*buf, (struct head *)*buf + 1, *len);
		return r;
	}
	for (int i = 1; i < x->comm.n; i++) {
		int sent = send_to(x, i, 0, *buf, *len);

		r = r ? r : sent;
	}
	x->step++;
	return r;
}

int ckpt_down(struct ckpt_exchange *x, void *buf, size_t len, bool each, int ms)
{
	size_t got;
	void *text;
	int r = 0;

	if (!x->comm.rank) {
		for (int i = 1; i < x->comm.n; i++) {
			int sent =
				send_to(x, i, 0, (char *)buf + (each ? (size_t)i * len : 0), len);

			r = r ? r : sent;
		}
		x->step++;
		return r;
	}
	r = from_root(x, &text, &got, ms);
	if (r)
		return r;
	if (got == len)
		memcpy(buf, (struct head *)text + 1, len);
	else
		r = ckpt_fail(-EPROTO, "processes are in different calls: all processes must make "
				       "the same calls in the same order");
	free(text);
	return r;
}
