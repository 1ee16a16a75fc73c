/* The cost of moving bytes on this machine, measured once per process in a millisecond over a pair
 * of Unix sockets and over a TCP connection of the loopback; and the choice of the cheapest method
 * for a number of segments and bytes. A link adds its round trip (peer_costs).
 *
 *   inline   the data are copied into the message and out of it; nothing else is sent
 *   pack     pieces are copied between the user's memory and one buffer, which is sent
 *   gather   the pieces themselves are sent: no copy, but the kernel handles each one
 *   driven   the same; over RDMA a write goes into buffers that the server grants. Never chosen by
 *            the client: a server invites it to do so
 *
 * Threads: any. Errors: none; what cannot be measured keeps the constants below. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "layout/layout.h"
#include "net/costs.h"

#define SEGMENTS 256
#define SEGMENT 16 /* bytes */
#define ROUNDS 8
#define PAGE 4096
#define BLOCK (32 * KIB) /* through a socket */
#define LARGE (256 * KIB) /* half of it exceeds the processor's first cache */

/* Nanoseconds, typical of a present machine; the simulation uses them, too. */
static const struct net_costs usual = {
	.call = 700, .byte = 0.2, .copy = 0.08, .gather = 18, .scatter = 18, .pack = 4, .unpack = 4
};

void net_costs_usual(struct net_costs c[N_MEDIA])
{
	for (int i = 0; i < N_MEDIA; i++)
		c[i] = usual;
}

/* ---- measuring ---- */

struct bench {
	int fd[2];
	struct iovec pieces[SEGMENTS];
	char scattered[SEGMENTS * SEGMENT * 4], block[LARGE];
};

/* Two ends of a TCP connection. False: there is none. */
static bool tcp_pair(int fd[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	struct timeval most = { .tv_usec = 100000 }; /* a firewall may drop what is sent */
	socklen_t len = sizeof(a);

	fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fd[1] = -1;
	setsockopt(fd[0], SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)); /* connect, too */
	setsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!bind(listener, (struct sockaddr *)&a, sizeof(a)) && !listen(listener, 1) &&
	    !getsockname(listener, (struct sockaddr *)&a, &len) &&
	    !connect(fd[0], (struct sockaddr *)&a, sizeof(a)))
		fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	close(listener);
	if (fd[1] >= 0)
		setsockopt(fd[1], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	else
		close(fd[0]);
	return fd[1] >= 0;
}

/* Stores the time since *t in *best if it is shorter; sets *t to now. */
static void lap(uint64_t *t, uint64_t *best)
{
	uint64_t now = time_now(), took = now - *t;

	*best = MIN(*best, took);
	*t = now;
}

/* The shortest times to write and to read n pieces; UINT64_MAX: the socket failed. */
static void through(struct bench *b, const struct iovec *iov, int n, size_t bytes, uint64_t *out,
		    uint64_t *in)
{
	*out = *in = UINT64_MAX;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t t = time_now();
		ssize_t r = writev(b->fd[0], iov, n);

		if (r != (ssize_t)bytes)
			return;
		lap(&t, out);
		if (readv(b->fd[1], iov, n) != r)
			return;
		lap(&t, in);
	}
}

static double a_segment(uint64_t many, uint64_t one)
{
	return many > one ? (double)(many - one) / (SEGMENTS - 1) : 0;
}

static void measure_socket(struct bench *b, struct net_costs *c)
{
	struct iovec one = { b->block, SEGMENTS * SEGMENT }, all = { b->block, BLOCK };
	uint64_t one_out, one_in, many_out, many_in, all_out, all_in;

	through(b, &one, 1, one.iov_len, &one_out, &one_in);
	through(b, b->pieces, SEGMENTS, one.iov_len, &many_out, &many_in);
	through(b, &all, 1, BLOCK, &all_out, &all_in);
	if (one_in == UINT64_MAX || many_in == UINT64_MAX || all_in == UINT64_MAX)
		return;
	c->gather = a_segment(many_out, one_out);
	c->scatter = a_segment(many_in, one_in);
	if (all_out + all_in > one_out + one_in)
		c->byte = (double)(all_out + all_in - one_out - one_in) /
			  (double)(BLOCK - one.iov_len);
	c->call = (double)one_out;
}

static void measure_memory(struct bench *b, struct net_costs *c)
{
	const struct iovec half = { b->block + LARGE / 2, LARGE / 2 };
	uint64_t pack = UINT64_MAX, unpack = UINT64_MAX, whole = UINT64_MAX;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t t = time_now();

		pieces_pack(b->block, b->pieces, SEGMENTS);
		lap(&t, &pack);
		pieces_unpack(b->pieces, SEGMENTS, b->block);
		lap(&t, &unpack);
		pieces_pack(b->block, &half, 1);
		lap(&t, &whole);
	}
	c->pack = (double)pack / SEGMENTS;
	c->unpack = (double)unpack / SEGMENTS;
	c->copy = MAX((double)whole / (double)half.iov_len, 0.01);
}

/* A sender that gathers looks its pieces up twice, first to touch them; one that packs, once. */
static void measure_lookup(struct bench *b, struct net_costs *c)
{
	const struct extent file = { 0, SEGMENTS * SEGMENT };
	const struct layout all = { .unit = file.length, .width = 1 };
	struct iovec found[SEGMENTS];
	struct cursor from = { 0 };
	struct view v = { 0 };
	struct access a;
	uint64_t best = UINT64_MAX, got;

	if (access_init(&a, b->pieces, SEGMENTS, &file, 1))
		return;
	view_span(&v, &a, &all, 0, &from, file.length);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t t = time_now();

		pieces_touch(found, view_iov(&v, 0, v.length, found, SEGMENTS, &got));
		lap(&t, &best);
	}
	c->gather += (double)best / SEGMENTS;
}

static struct net_costs measured[N_MEDIA];

static void measure_medium(struct bench *b, bool connected, struct net_costs *c)
{
	if (!connected)
		return;
	measure_socket(b, c);
	measure_memory(b, c);
	measure_lookup(b, c);
	close(b->fd[0]);
	close(b->fd[1]);
}

static void measure(void)
{
	struct bench *b = calloc(1, sizeof(*b));

	net_costs_usual(measured);
	/* pages never written are all one page of zeros, whose copy takes another time */
	if (b)
		memset(b->block, 1, sizeof(b->block));
	for (int i = 0; b && i < SEGMENTS; i++)
		b->pieces[i] = (struct iovec){ b->scattered + (size_t)i * SEGMENT * 4, SEGMENT };
	if (b) {
		measure_medium(b,
			       !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
					   b->fd),
			       &measured[MEDIUM_LOCAL]);
		measure_medium(b, tcp_pair(b->fd), &measured[MEDIUM_TCP]);
	}
	free(b);
}

void net_costs_measure(struct net_costs c[N_MEDIA])
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, measure);
	for (int i = 0; i < N_MEDIA; i++)
		c[i] = measured[i];
}

/* ---- choosing ---- */

/* The cost of a separate frame in system calls, at both ends and with waking them: when it is sent
 * at once, and when the server first has to send a PULL, which takes another round trip. */
#define SENT_CALLS 3
#define ASKED_CALLS 12
/* Inline data is copied at the other end, too. Data that is read comes from a file first, whose
 * pages are not in the processor's cache; bulk leaves the file without a copy in user space, or
 * without any. */
#define WRITE_COPIES 1
#define READ_COPIES 4

static double pieces_cost(const struct net_costs *c, enum net_method how, bool write,
			  uint64_t segments, uint64_t bytes)
{
	double s = (double)segments, b = (double)bytes;

	if (how == METHOD_GATHER || how == METHOD_DRIVEN)
		return s * ((write ? c->gather : c->scatter) + c->work_request) + c->registration +
		       b / PAGE * c->page;
	return s * (write ? c->pack : c->unpack) + b * c->copy;
}

double net_cost(const struct net_costs *c, enum net_method how, bool write, uint64_t segments,
		uint64_t bytes)
{
	double all = (double)bytes * c->byte + pieces_cost(c, how, write, segments, bytes);

	if (how == METHOD_INLINE)
		return all + (write ? WRITE_COPIES : READ_COPIES) * (double)bytes * c->copy;
	return all + (write ? ASKED_CALLS * c->call + c->far : SENT_CALLS * c->call);
}

enum net_method net_choose(const struct net_costs *c, bool write, uint64_t segments, uint64_t bytes,
			   uint64_t inline_room)
{
	enum net_method best = METHOD_GATHER;

	if (segments > 1 && net_cost(c, METHOD_PACK, write, segments, bytes) <
				    net_cost(c, best, write, segments, bytes))
		best = METHOD_PACK;
	if (bytes <= inline_room && net_cost(c, METHOD_INLINE, write, segments, bytes) <
					    net_cost(c, best, write, segments, bytes))
		best = METHOD_INLINE;
	return best;
}

static const char *const method_names[N_METHODS] = { "auto", "inline", "pack", "gather", "driven" };

const char *net_method_name(enum net_method how)
{
	return method_names[how];
}

int net_method_parse(const char *name, enum net_method *how)
{
	for (int i = 0; i < N_METHODS; i++)
		if (strcmp(name, method_names[i]) == 0) {
			*how = (enum net_method)i;
			return 0;
		}
	return -EINVAL;
}
