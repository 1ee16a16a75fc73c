#include <netinet/tcp.h>

#include "proxy.h"

static int proxy_socket(uint32_t port, bool listening)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (listening) {
		CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
		CHECK_EQ(listen(fd, 64), 0);
	} else if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void proxy_cut(struct proxy_pair *p, bool hard)
{
	struct linger now = { .l_onoff = 1 };

	for (int k = 0; k < 2; k++) {
		if (hard)
			setsockopt(p->fd[k], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(p->fd[k]);
		p->fd[k] = -1;
	}
}

static void proxy_accept(struct proxy *x, int i)
{
	int a = accept4(x->listener[i], NULL, NULL, SOCK_CLOEXEC), one = 1;
	int b = proxy_socket(x->server_port + (uint32_t)i, false);
	int cuts = __atomic_load_n(&x->cuts, __ATOMIC_SEQ_CST);

	setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (int k = 0; b >= 0 && k < PROXY_PAIRS; k++) {
		struct proxy_pair *p = &x->pair[k];

		if (p->fd[0] >= 0)
			continue;
		*p = (struct proxy_pair){ { a, b }, UINT64_MAX };
		if (cuts) {
			p->left = x->least + (x->spread ? test_random(&x->rnd) % x->spread : 0);
			__atomic_sub_fetch(&x->cuts, cuts > 0, __ATOMIC_SEQ_CST);
		}
		return;
	}
	close(a);
	if (b >= 0)
		close(b);
}

static bool proxy_send(int fd, const uint8_t *b, size_t n)
{
	while (n) {
		ssize_t w = send(fd, b, n, MSG_NOSIGNAL);

		if (w <= 0)
			return false;
		b += w;
		n -= (size_t)w;
	}
	return true;
}

/* Forwards what side k sent to the other side, and cuts the connection when its bytes are used
 * up. */
static void proxy_forward(struct proxy *x, struct proxy_pair *p, int k)
{
	static uint8_t b[65536];
	size_t max = p->left < sizeof(b) ? p->left : sizeof(b);
	ssize_t r = recv(p->fd[k], b, max, MSG_DONTWAIT);

	if (r < 0 && errno == EAGAIN)
		return;
	if (r > 0) {
		p->left -= p->left == UINT64_MAX ? 0 : (uint64_t)r;
		__atomic_add_fetch(&x->bytes, (uint64_t)r, __ATOMIC_SEQ_CST);
	}
	if (r <= 0 || !proxy_send(p->fd[1 - k], b, (size_t)r)) {
		proxy_cut(p, false);
	} else if (p->left == 0) {
		proxy_cut(p, __atomic_add_fetch(&x->made, 1, __ATOMIC_SEQ_CST) % 2);
	}
}

static void *proxy_run(void *arg)
{
	struct proxy *x = arg;

	while (!__atomic_load_n(&x->stop, __ATOMIC_SEQ_CST)) {
		struct pollfd p[CLUSTER_MAX + 2 * PROXY_PAIRS];
		int who[CLUSTER_MAX + 2 * PROXY_PAIRS], n = 0;

		for (int i = 0; i < x->n; i++) {
			who[n] = -1;
			p[n++] = (struct pollfd){ x->listener[i], POLLIN, 0 };
		}
		for (int i = 0; i < 2 * PROXY_PAIRS; i++) {
			if (x->pair[i / 2].fd[i % 2] < 0)
				continue;
			who[n] = i;
			p[n++] = (struct pollfd){ x->pair[i / 2].fd[i % 2], POLLIN, 0 };
		}
		if (poll(p, (nfds_t)n, 50) <= 0)
			continue;
		/* an earlier pair of this pass may have been cut, and its descriptor closed */
		for (int i = x->n; i < n; i++)
			if (p[i].revents && x->pair[who[i] / 2].fd[who[i] % 2] == p[i].fd)
				proxy_forward(x, &x->pair[who[i] / 2], who[i] % 2);
		for (int i = 0; i < x->n; i++)
			if (p[i].revents)
				proxy_accept(x, i);
	}
	return NULL;
}

void proxy_start(struct proxy *x, const struct cluster *c)
{
	memset(x, 0, sizeof(*x));
	x->n = c->n;
	x->server_port = c->port;
	x->port = free_ports(c->n);
	x->rnd = 1;
	for (int i = 0; i < PROXY_PAIRS; i++)
		x->pair[i].fd[0] = x->pair[i].fd[1] = -1;
	snprintf(x->conf, sizeof(x->conf), "%s/proxy.conf", c->dir);
	{
		char *text = read_text(c->conf);

		write_text(x->conf, text);
		free(text);
	}
	for (int i = 0; i < c->n; i++) {
		char old[64], new[64];

		snprintf(old, sizeof(old), "127.0.0.1:%u", c->port + (uint32_t)i);
		snprintf(new, sizeof(new), "127.0.0.1:%u", x->port + (uint32_t)i);
		edit_file(x->conf, old, new);
		x->listener[i] = proxy_socket(x->port + (uint32_t)i, true);
	}
	CHECK_EQ(pthread_create(&x->thread, NULL, proxy_run, x), 0);
}

void proxy_plan(struct proxy *x, int cuts, uint64_t least, uint64_t spread)
{
	__atomic_store_n(&x->cuts, 0, __ATOMIC_SEQ_CST);
	x->least = least;
	x->spread = spread;
	__atomic_store_n(&x->made, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&x->bytes, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&x->cuts, cuts, __ATOMIC_SEQ_CST);
}

void proxy_stop(struct proxy *x)
{
	__atomic_store_n(&x->stop, true, __ATOMIC_SEQ_CST);
	pthread_join(x->thread, NULL);
	for (int i = 0; i < PROXY_PAIRS; i++)
		if (x->pair[i].fd[0] >= 0)
			proxy_cut(&x->pair[i], false);
	for (int i = 0; i < x->n; i++)
		close(x->listener[i]);
}
