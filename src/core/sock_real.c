/* Real sockets: TCP over IPv4 and IPv6 ("HOST:PORT", "[::1]:7430"), non-blocking, close-on-exec.
 *
 * Within one host an address also has a Unix socket ("@HOST:PORT"), in the abstract namespace with
 * the address in its name. A message costs less than half of one over TCP. Any process of the
 * network namespace may have bound that name, so the handshake proves both ends and the medium. A
 * process with SHEAF_NET=tcp or rdma does not dial it.
 *
 * Threads: calls on a descriptor belong to the loop that watches it. Buffers: the caller's. Errors:
 * -errno; listen also returns a text that says what to do. A host name may block in the resolver, a
 * numeric address never does. */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/env_real.h"

#define LISTEN_BACKLOG 1024
#define LOCAL_ROOM (1024 * 1024) /* several transfers of 256 KiB; the kernel may grant less */

/* Splits "HOST:PORT" or "[HOST]:PORT"; both buffers have `n` bytes. */
static int split_address(const char *address, char *host, char *port, size_t n)
{
	const char *colon = strrchr(address, ':');
	const char *from = address, *to = colon;

	if (!colon || colon == address || !colon[1])
		return -EINVAL;
	if (*from == '[') {
		if (to[-1] != ']')
			return -EINVAL;
		from++;
		to--;
	}
	if (from >= to || (size_t)(to - from) >= n || strlen(colon + 1) >= n)
		return -EINVAL;
	memcpy(host, from, (size_t)(to - from));
	host[to - from] = 0;
	strcpy(port, colon + 1);
	return 0;
}

/* Tries a numeric address first, which needs no resolver. */
static int resolve(const char *address, bool passive, struct addrinfo **out)
{
	char host[CONF_ADDR_MAX], port[CONF_ADDR_MAX];
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	int r = split_address(address, host, port, sizeof(host));

	if (r < 0)
		return r;
	hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST | (passive ? AI_PASSIVE : 0);
	r = getaddrinfo(host, port, &hints, out);
	if (r == EAI_NONAME) {
		hints.ai_flags &= ~AI_NUMERICHOST;
		r = getaddrinfo(host, port, &hints, out);
	}
	if (r == EAI_SYSTEM)
		return -errno;
	if (r == EAI_MEMORY)
		return -ENOMEM;
	if (r == EAI_AGAIN)
		return -EHOSTDOWN; /* the resolver does not answer */
	return r ? -EDESTADDRREQ : 0;
}

static void set_flag(int fd, int level, int option)
{
	int one = 1;

	setsockopt(fd, level, option, &one, sizeof(one));
}

/* ---- Unix sockets ---- */

#define LOCAL_PREFIX "sheaf"

/* True: uids are those of the host. False in a container with its own user namespace. */
static bool users_are_shared(void)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	unsigned long in, out, n;
	bool yes = !f ||
		   (fscanf(f, "%lu %lu %lu", &in, &out, &n) == 3 && !in && !out && n == UINT32_MAX);

	if (f)
		fclose(f);
	return yes;
}

static bool local_dials, local_listens;

static void decide_local(void)
{
	const char *wish = getenv("SHEAF_NET");

	local_listens = users_are_shared();
	local_dials = local_listens &&
		      !(wish && (strcmp(wish, "tcp") == 0 || strcmp(wish, "rdma") == 0));
}

static bool local_used(bool dial)
{
	static pthread_once_t decided = PTHREAD_ONCE_INIT;

	pthread_once(&decided, decide_local);
	return dial ? local_dials : local_listens;
}

/* The name begins with a 0 byte: it is no file and vanishes with its process. */
static int local_name(const char *address, bool dial, struct sockaddr_un *to, socklen_t *len)
{
	int n;

	if (!local_used(dial))
		return -EOPNOTSUPP;
	*to = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(to->sun_path + 1, sizeof(to->sun_path) - 1, LOCAL_PREFIX "%s", address);
	if ((size_t)n >= sizeof(to->sun_path) - 1)
		return -ENAMETOOLONG;
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	return 0;
}

/* ---- opening ---- */

#ifndef TCP_RTO_MIN_US
#define TCP_RTO_MIN_US 45 /* since Linux 6.11; older kernels refuse it */
#endif

/* When many servers answer one client, the last packets of an answer may be lost. TCP would wait
 * for 200 ms until it sends them again; here the round trip and its variation decide, plus this.
 * The kernel refuses what its clock cannot tell. */
static void shorten_timeout(int fd)
{
	static const int min_us[] = { 5000, 10000, 25000 };

	for (size_t i = 0; i < ARRAY_LEN(min_us); i++)
		if (!setsockopt(fd, IPPROTO_TCP, TCP_RTO_MIN_US, &min_us[i], sizeof(int)))
			return;
}

/* Sends messages at once. TCP sizes its buffer itself, a Unix socket has to be told. */
static void tune(int fd, sa_family_t family)
{
	int room = LOCAL_ROOM;

	if (family == AF_UNIX) {
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
		return;
	}
	set_flag(fd, IPPROTO_TCP, TCP_NODELAY);
	shorten_timeout(fd);
}

/* Begins to connect, or listens. */
static int open_one(const struct sockaddr *a, socklen_t len, bool dial)
{
	int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0)
		return -errno;
	if (dial) {
		tune(fd, a->sa_family);
		if (connect(fd, a, len) < 0 && errno != EINPROGRESS && errno != EINTR)
			r = -errno;
	} else {
		set_flag(fd, SOL_SOCKET, SO_REUSEADDR);
		if (bind(fd, a, len) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
			r = -errno;
	}
	if (r)
		close(fd);
	return r ? r : fd;
}

/* Tries each address that the name has. */
static int open_address(const char *address, bool dial)
{
	struct addrinfo *list = NULL;
	struct sockaddr_un local;
	socklen_t len;
	int r;

	if (sock_is_local(address)) {
		r = local_name(address, dial, &local, &len);
		return r ? r : open_one((struct sockaddr *)&local, len, dial);
	}
	r = resolve(address, !dial, &list);
	for (struct addrinfo *a = list; r == 0 && a; a = a->ai_next) {
		int fd = open_one(a->ai_addr, a->ai_addrlen, dial);

		if (fd >= 0 || (!dial && fd == -EADDRINUSE) || !a->ai_next) {
			r = fd;
			break;
		}
	}
	if (list)
		freeaddrinfo(list);
	return r;
}

static int sock_connect(struct env *e, const char *address)
{
	(void)e;
	return open_address(address, true);
}

/* ---- listening ---- */

static void explain_listen(const char *address, int r, char *err, size_t err_len)
{
	const char *text;

	switch (r) {
	case -EADDRINUSE:
		text = "is already in use: another sheafd? choose another port in the cluster file";
		break;
	case -EADDRNOTAVAIL:
		text = "is not an address of this host: correct it in the cluster file";
		break;
	case -EDESTADDRREQ:
	case -EHOSTDOWN:
		text = "has a host name that cannot be resolved: correct it in the cluster file";
		break;
	case -EINVAL:
		text = "is not of the form HOST:PORT: correct it in the cluster file";
		break;
	case -EACCES:
		text = "needs privileges: choose a port above 1023 in the cluster file";
		break;
	default:
		snprintf(err, err_len, "cannot listen on address %s: %s", address, strerror(-r));
		return;
	}
	snprintf(err, err_len, "address %s %s", address, text);
}

static int sock_listen(struct env *e, const char *address, char *err, size_t err_len)
{
	int r = open_address(address, false);

	(void)e;
	if (r < 0 && !sock_is_local(address))
		explain_listen(address, r, err, err_len);
	return r;
}

static int sock_accept(struct env *e, int fd)
{
	struct sockaddr_storage from;
	socklen_t n = sizeof(from);
	int r;

	(void)e;
	do {
		r = accept4(fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
	} while (r < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (r < 0)
		return -errno;
	tune(r, from.ss_family);
	return r;
}

static void take_address(const struct sockaddr_storage *from, uint8_t to[16])
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;

	memset(to, 0, 16);
	if (from->ss_family == AF_INET6) {
		memcpy(to, &v6->sin6_addr, 16);
	} else {
		to[10] = to[11] = 0xff;
		memcpy(to + 12, &v4->sin_addr, 4);
	}
}

/* The origin of a client of this host over TCP. Resolves the address as for listening. */
static void sock_origin_local(struct env *e, const char *address, struct origin *out)
{
	static const uint8_t v6_any[16], v4_any[16] = { [10] = 0xff, [11] = 0xff };
	static const uint8_t v4_loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct sockaddr_storage from = { .ss_family = AF_INET };
	struct addrinfo *list;

	(void)e;
	if (resolve(address + sock_is_local(address), true, &list) == 0) {
		memcpy(&from, list->ai_addr, list->ai_addrlen);
		freeaddrinfo(list);
	}
	take_address(&from, out->addr);
	if (memcmp(out->addr, v6_any, 16) == 0)
		out->addr[15] = 1;
	if (memcmp(out->addr, v4_any, 16) == 0)
		memcpy(out->addr, v4_loopback, 16);
	out->local = true;
}

static uint32_t sock_user(struct env *e, int fd)
{
	struct ucred c;
	socklen_t n = sizeof(c);

	(void)e;
	if (fd < 0)
		return geteuid();
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) ? UINT32_MAX : c.uid;
}

/* The addresses of both ends of a connection over IP. */
static bool sock_ends(int fd, struct sockaddr_storage *peer, struct sockaddr_storage *self)
{
	socklen_t n = sizeof(*peer), m = sizeof(*self);

	memset(peer, 0, sizeof(*peer));
	memset(self, 0, sizeof(*self));
	return getpeername(fd, (struct sockaddr *)peer, &n) == 0 &&
	       getsockname(fd, (struct sockaddr *)self, &m) == 0 &&
	       (peer->ss_family == AF_INET || peer->ss_family == AF_INET6);
}

/* Local: both ends have the same address, or the peer has a loopback address. The kernel accepts
 * neither from outside. */
static void sock_origin(struct env *e, int fd, struct origin *out)
{
	static const uint8_t v4_loopback[13] = { [10] = 0xff, [11] = 0xff, [12] = 127 };
	static const uint8_t v6_loopback[16] = { [15] = 1 };
	struct sockaddr_storage peer, self;
	uint8_t own[16];

	(void)e;
	memset(out, 0, sizeof(*out));
	if (!sock_ends(fd, &peer, &self))
		return;
	take_address(&peer, out->addr);
	take_address(&self, own);
	out->local = memcmp(out->addr, own, sizeof(own)) == 0 ||
		     memcmp(out->addr, v4_loopback, sizeof(v4_loopback)) == 0 ||
		     memcmp(out->addr, v6_loopback, sizeof(v6_loopback)) == 0;
}

/* Detects a TCP self-connect: if no process listens on an ephemeral port, the kernel may choose it
 * as source port of the connection to it. The server could not bind its port then. */
static bool is_self_connected(int fd)
{
	struct sockaddr_storage peer, self;

	return sock_ends(fd, &peer, &self) && memcmp(&peer, &self, sizeof(peer)) == 0;
}

static int sock_connect_result(struct env *e, int fd)
{
	int error = 0;
	socklen_t n = sizeof(error);

	(void)e;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
		return -errno;
	return error ? -error : is_self_connected(fd) ? -ECONNREFUSED : 0;
}

static ssize_t sock_readv(struct env *e, int fd, const struct iovec *iov, int n)
{
	ssize_t r = TEMP_FAILURE_RETRY(n == 1 ? recv(fd, iov->iov_base, iov->iov_len, 0) :
						readv(fd, iov, n));

	(void)e;
	return r < 0 ? -errno : r;
}

/* Not writev, which raises SIGPIPE when the peer is gone. send() is cheaper for a single piece. */
static ssize_t sock_writev(struct env *e, int fd, const struct iovec *iov, int n)
{
	struct msghdr m = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };
	ssize_t r = TEMP_FAILURE_RETRY(n == 1 ?
					       send(fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL) :
					       sendmsg(fd, &m, MSG_NOSIGNAL));

	(void)e;
	return r < 0 ? -errno : r;
}

/* MSG_MORE keeps the head and the file together on the wire. */
static ssize_t sock_send_file(struct env *e, int fd, const struct iovec *head, int n, int file,
			      uint64_t off, size_t len)
{
	struct msghdr m = { .msg_iov = (struct iovec *)head, .msg_iovlen = (size_t)n };
	size_t head_len = iov_total(head, (size_t)n);
	off_t at = (off_t)off;
	ssize_t h = 0, r;

	(void)e;
	if (head_len) {
		h = TEMP_FAILURE_RETRY(sendmsg(fd, &m, MSG_NOSIGNAL | MSG_MORE));
		if (h < 0)
			return -errno;
		if ((size_t)h < head_len)
			return h;
	}
	r = TEMP_FAILURE_RETRY(sendfile(fd, file, &at, len));
	if (r < 0 && h > 0)
		return h; /* the next call reports the error again */
	return r < 0 ? -errno : h + r;
}

static void sock_close(struct env *e, int fd)
{
	(void)e;
	if (fd >= 0)
		close(fd);
}

const struct sock_ops sock_real_ops = {
	.listen = sock_listen,
	.accept = sock_accept,
	.origin = sock_origin,
	.origin_local = sock_origin_local,
	.user = sock_user,
	.connect = sock_connect,
	.connect_result = sock_connect_result,
	.readv = sock_readv,
	.writev = sock_writev,
	.send_file = sock_send_file,
	.inflow = sock_inflow,
	.limit_window = sock_limit_window,
	.close = sock_close,
	.loop_init = poll_loop_init,
	.loop_fini = poll_loop_fini,
	.watch = poll_watch,
	.poll = poll_poll,
	.dispatch = poll_dispatch,
	.wake = poll_wake,
};
