/* Calls to clients, over UDP: one question, repeated until there is an answer. On a task, which is
 * parked meanwhile. */
#include <stdlib.h>
#include <unistd.h>

#include "nfs/nfs_priv.h"

#define TRIES 5
#define MESSAGE_MAX 4096

struct asking {
	struct nfs_source source;
	struct list link; /* in g->asking */
	void *task; /* NULL: it was woken */
	uint32_t xid;
	uint8_t out[MESSAGE_MAX], in[MESSAGE_MAX];
	size_t out_len;
	ssize_t in_len;
};

static void wake(struct asking *k)
{
	void *task = k->task;

	k->task = NULL;
	if (task)
		nfs_task_wake(task);
}

static void ready(struct nfs_source *s, unsigned events)
{
	struct asking *k = container_of(s, struct asking, source);
	uint32_t xid;

	(void)events;
	k->in_len = recv(s->fd, k->in, sizeof(k->in), MSG_DONTWAIT);
	if (k->in_len >= 4)
		memcpy(&xid, k->in, 4);
	if (k->in_len < 4 || ntohl(xid) != k->xid)
		k->in_len = 0; /* the answer to another question */
	else
		wake(k);
}

void rpc_ask_sweep(struct gateway *g)
{
	struct asking *k;

	list_for_each(k, &g->asking, link)
		wake(k);
}

static bool encode(struct asking *k, const struct rpc_question *q)
{
	struct wire_rpc_call head = { .xid = k->xid,
				      .kind = RPC_CALL,
				      .rpc_version = RPC_VERSION,
				      .program = q->program,
				      .version = q->version,
				      .procedure = q->procedure };
	struct xdr x;

	xdr_encoder(&x, k->out, sizeof(k->out));
	if (!xdr_wire_rpc_call(&x, &head) || !q->args(&x, q->a))
		return false;
	k->out_len = xdr_used(&x);
	return true;
}

/* The result may not refer to the message, which is freed. */
static int decode(struct asking *k, const struct rpc_question *q)
{
	struct wire_rpc_reply head;
	struct xdr x;

	xdr_decoder(&x, k->in, (size_t)k->in_len, NULL);
	if (!xdr_wire_rpc_reply(&x, &head) || head.kind != RPC_REPLY ||
	    head.answer.code != RPC_ACCEPTED || head.answer.accepted.result.code != RPC_SUCCESS ||
	    !q->res(&x, q->r))
		return -EPROTO;
	return 0;
}

static int dial(struct gateway *g, struct asking *k, const struct origin *to, uint16_t port)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	memcpy(&v6.sin6_addr, to->addr, 16);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&v6, sizeof(v6))) {
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		return -errno;
	r = source_add(g, &k->source, fd, EV_IN, ready);
	if (r)
		close(fd);
	return r;
}

int rpc_ask(struct gateway *g, const struct origin *to, uint16_t port, const struct rpc_question *q)
{
	struct asking *k = calloc(1, sizeof(*k));
	int r = k ? dial(g, k, to, port) : -ENOMEM;

	if (r) {
		free(k);
		return r;
	}
	k->xid = ++g->next_xid;
	list_push(&g->asking, &k->link);
	if (!encode(k, q))
		r = -E2BIG;
	for (int i = 0; i < TRIES && !r && !k->in_len; i++) {
		if (send(k->source.fd, k->out, k->out_len, MSG_DONTWAIT) < 0)
			log_debug("nfs", "a call by UDP was not sent: %s", error_text(errno));
		k->task = nfs_task_self();
		nfs_task_sleep(); /* until an answer, or for a second */
	}
	if (!r)
		r = k->in_len ? decode(k, q) : -ETIMEDOUT;
	list_del(&k->link);
	source_close(&k->source);
	free(k);
	return r;
}
