/* RDMA over libibverbs: loads the library, chooses a device, a port and one of its addresses, opens
 * them, and watches them for events.
 *
 * Threads: the loop's; the library is shared by all. open() blocks for some ms in ioctls. Buffers:
 * none. Errors: open() says what is missing and what to do; a device, port or address that is lost
 * later is reported by trouble(). */
#include <arpa/inet.h>
#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/env_real.h"
#include "core/fabric_verbs.h"

#define DEVICES "/sys/class/infiniband"

#define LIBRARY "libibverbs.so.1"
#define DEPTH_MAX 16384 /* receives of the device */
#define SENDS_MAX 4096 /* of a QP */
#define SENDS_MIN 64
#define READS_MAX 128 /* the kernel's fields have 8 bits */

/* ---- the library ---- */

#define SYMBOL(field, name) \
	{ \
		name, offsetof(struct verbs_api, field) \
	}

static const struct {
	const char *name;
	size_t at;
} symbols[] = {
	SYMBOL(get_device_list, "ibv_get_device_list"),
	SYMBOL(free_device_list, "ibv_free_device_list"),
	SYMBOL(get_device_name, "ibv_get_device_name"),
	SYMBOL(open_device, "ibv_open_device"),
	SYMBOL(close_device, "ibv_close_device"),
	SYMBOL(query_device, "ibv_query_device"),
	SYMBOL(query_port, "ibv_query_port"),
	SYMBOL(query_gid, "ibv_query_gid"),
	SYMBOL(query_pkey, "ibv_query_pkey"),
	SYMBOL(query_gid_table, "_ibv_query_gid_table"),
	SYMBOL(alloc_pd, "ibv_alloc_pd"),
	SYMBOL(dealloc_pd, "ibv_dealloc_pd"),
	SYMBOL(reg_mr, "ibv_reg_mr"),
	SYMBOL(dereg_mr, "ibv_dereg_mr"),
	SYMBOL(create_channel, "ibv_create_comp_channel"),
	SYMBOL(destroy_channel, "ibv_destroy_comp_channel"),
	SYMBOL(create_cq, "ibv_create_cq"),
	SYMBOL(destroy_cq, "ibv_destroy_cq"),
	SYMBOL(get_cq_event, "ibv_get_cq_event"),
	SYMBOL(ack_cq_events, "ibv_ack_cq_events"),
	SYMBOL(create_srq, "ibv_create_srq"),
	SYMBOL(destroy_srq, "ibv_destroy_srq"),
	SYMBOL(create_qp, "ibv_create_qp"),
	SYMBOL(modify_qp, "ibv_modify_qp"),
	SYMBOL(destroy_qp, "ibv_destroy_qp"),
	SYMBOL(get_async_event, "ibv_get_async_event"),
	SYMBOL(ack_async_event, "ibv_ack_async_event"),
	SYMBOL(fork_init, "ibv_fork_init"),
};

static struct verbs_api api;
static char load_error[256]; /* "": loaded */

/* On kernels before 5.12, registered memory moves when the process forks and then writes to it,
 * unless the library hides it from children. On others hiding it would only break children: the
 * pages around a registered buffer are missing there, too. */
static void prepare_fork(void *library)
{
	enum ibv_fork_status (*status)(void);
	void *symbol = dlsym(library, "ibv_is_fork_initialized"); /* rdma-core 35 */

	memcpy(&status, &symbol, sizeof(symbol));
	if (!symbol || status() != IBV_FORK_UNNEEDED)
		api.fork_init();
}

/* The library stays loaded. */
static void load(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(load_error, sizeof(load_error),
			 "%s is not installed: install rdma-core (Debian: ibverbs-providers)",
			 LIBRARY);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
		void *symbol = dlsym(library, symbols[i].name);

		if (!symbol) {
			snprintf(load_error, sizeof(load_error),
				 "%s has no %s: install rdma-core 32 or newer", LIBRARY,
				 symbols[i].name);
			return;
		}
		memcpy((char *)&api + symbols[i].at, &symbol, sizeof(symbol));
	}
	prepare_fork(library);
}

/* Any thread. Loads the library once per process. */
static int load_once(char *why, size_t why_len)
{
	static pthread_once_t loaded = PTHREAD_ONCE_INIT;

	if (access(DEVICES, F_OK))
		return error_explain(why, why_len, -ENODEV, "no RDMA device on this host");
	pthread_once(&loaded, load);
	return *load_error ? error_explain(why, why_len, -EOPNOTSUPP, "%s", load_error) : 0;
}

/* As ibv_query_port(), which is inline and calls the library by name. */
static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *out)
{
	struct verbs_context *v = verbs_get_ctx_op(ctx, query_port);

	memset(out, 0, sizeof(*out));
	if (v)
		return v->query_port(ctx, port, out, sizeof(*out));
	return api.query_port(ctx, port, (struct _compat_ibv_port_attr *)out);
}

/* ---- choosing a port and its address ---- */

static bool is_ethernet(const struct ibv_port_attr *p)
{
	return p->link_layer == IBV_LINK_LAYER_ETHERNET;
}

static bool is_ipv4(const union ibv_gid *g)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(g->raw, prefix, sizeof(prefix)) == 0;
}

static bool is_ipv6_link_local(const union ibv_gid *g)
{
	return g->raw[0] == 0xfe && (g->raw[1] & 0xc0) == 0x80;
}

/* A device is visible in all network namespaces, its interface in one. */
static bool is_address_here(const struct ifaddrs *here, const union ibv_gid *g)
{
	for (; here; here = here->ifa_next) {
		const struct sockaddr *a = here->ifa_addr;

		if (a && a->sa_family == AF_INET && is_ipv4(g) &&
		    !memcmp(&((const struct sockaddr_in *)a)->sin_addr, g->raw + 12, 4))
			return true;
		if (a && a->sa_family == AF_INET6 &&
		    !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, g->raw, 16))
			return true;
	}
	return false;
}

/* 0: cannot be used. RoCE v1 is used only if the cluster file names it: routers drop it. */
static int gid_rank(const struct ibv_gid_entry *g, const struct ibv_port_attr *p, int wanted,
		    const struct ifaddrs *here)
{
	if (wanted >= 0)
		return (int)g->gid_index == wanted;
	if (!is_ethernet(p))
		return g->gid_index == 0;
	if (g->gid_type != IBV_GID_TYPE_ROCE_V2 || !is_address_here(here, &g->gid))
		return 0;
	return is_ipv4(&g->gid) ? 3 : is_ipv6_link_local(&g->gid) ? 1 : 2;
}

/* The best of the port's addresses, from one call for all of them. */
static int find_gid(struct fabric *f, const struct ibv_port_attr *p, int wanted,
		    struct ibv_gid_entry *best, char *why, size_t why_len)
{
	size_t room = (size_t)p->gid_tbl_len * f->attr.phys_port_cnt;
	struct ibv_gid_entry *all = calloc(room + 1, sizeof(*all));
	struct ifaddrs *here = NULL;
	int best_rank = 0;
	ssize_t n;

	if (!all || getifaddrs(&here)) {
		free(all);
		return error_explain(why, why_len, -ENOMEM, "out of memory");
	}
	n = api.query_gid_table(f->ctx, all, room, 0, sizeof(*all));
	for (ssize_t i = 0; i < n; i++) {
		int rank = all[i].port_num == f->port && all[i].gid_index <= UINT8_MAX ?
				   gid_rank(&all[i], p, wanted, here) :
				   0;

		if (rank > best_rank) {
			best_rank = rank;
			*best = all[i];
		}
	}
	freeifaddrs(here);
	free(all);
	if (best_rank)
		return 0;
	if (n < 0)
		return error_explain(why, why_len, (int)n,
				     "port %u of %s: cannot read its GIDs: %s", f->port, f->device,
				     strerror((int)-n));
	if (wanted >= 0)
		return error_explain(why, why_len, -EADDRNOTAVAIL,
				     "port %u of %s has no GID with index %d: correct it in the "
				     "cluster file",
				     f->port, f->device, wanted);
	return error_explain(why, why_len, -EADDRNOTAVAIL,
			     "port %u of %s has no RoCE v2 address here: give its network "
			     "interface an IP address, in this network namespace",
			     f->port, f->device);
}

static int find_pkey(struct fabric *f, const struct ibv_port_attr *p, uint32_t wanted, char *why,
		     size_t why_len)
{
	uint16_t key;

	if (!wanted)
		return 0;
	for (int i = 0; i < p->pkey_tbl_len; i++) {
		if (api.query_pkey(f->ctx, f->port, i, &key))
			continue;
		if (key && (ntohs(key) & 0x7fff) == (wanted & 0x7fff)) {
			f->pkey_index = (uint16_t)i;
			return 0;
		}
	}
	return error_explain(why, why_len, -ENOENT,
			     "port %u of %s is not in the partition 0x%x: correct pkey in the "
			     "cluster file",
			     f->port, f->device, wanted);
}

/* The name for people; what is needed to connect. */
static void describe(struct fabric *f, const struct ibv_port_attr *p, const struct ibv_gid_entry *g)
{
	char address[INET6_ADDRSTRLEN] = "";

	f->gid = g->gid;
	f->gid_index = (int)g->gid_index;
	f->lid = p->lid;
	f->mtu = p->active_mtu;
	f->needs_gid = is_ethernet(p) || (p->flags & IBV_QPF_GRH_REQUIRED);
	f->caps.is_link_local = !is_ethernet(p);
	f->caps.message_max = p->max_msg_sz;
	if (!is_ethernet(p))
		snprintf(address, sizeof(address), "LID %u", p->lid);
	else if (is_ipv4(&g->gid))
		inet_ntop(AF_INET, g->gid.raw + 12, address, sizeof(address));
	else
		inet_ntop(AF_INET6, g->gid.raw, address, sizeof(address));
	snprintf(f->caps.name, sizeof(f->caps.name), "%.24s port %u, %s %.45s", f->device, f->port,
		 !is_ethernet(p)		     ? "InfiniBand" :
		 g->gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" :
						       "RoCE v1",
		 address);
}

static int try_port(struct fabric *f, const struct fabric_want *want, char *why, size_t why_len)
{
	struct ibv_gid_entry gid = { 0 };
	struct ibv_port_attr p;
	int r = query_port(f->ctx, f->port, &p);

	if (r)
		return error_explain(why, why_len, -r, "cannot query port %u of %s: %s", f->port,
				     f->device, strerror(r));
	if (p.state == IBV_PORT_INIT && !is_ethernet(&p))
		return error_explain(why, why_len, -ENETDOWN,
				     "port %u of %s waits for a subnet manager: start opensm on "
				     "one host",
				     f->port, f->device);
	if (p.state != IBV_PORT_ACTIVE)
		return error_explain(why, why_len, -ENETDOWN,
				     "port %u of %s is down: check its cable and its network "
				     "interface",
				     f->port, f->device);
	r = find_gid(f, &p, want->gid_index, &gid, why, why_len);
	if (!r)
		r = find_pkey(f, &p, want->pkey, why, why_len);
	if (!r)
		describe(f, &p, &gid);
	return r;
}

/* ---- choosing a device ---- */

static int check_device(struct fabric *f, const struct fabric_want *want, char *why, size_t why_len)
{
	int r = api.query_device(f->ctx, &f->attr);

	if (r)
		return error_explain(why, why_len, -r, "cannot query %s: %s", f->device,
				     strerror(r));
	if (f->attr.max_srq <= 0)
		return error_explain(why, why_len, -EOPNOTSUPP, "%s has no shared receive queues",
				     f->device);
	if (want->port > f->attr.phys_port_cnt)
		return error_explain(why, why_len, -ENODEV,
				     "%s has no port %u: correct it in the cluster file", f->device,
				     want->port);
	return 0;
}

/* The first port that can be used, or the wanted one. */
static int find_port(struct fabric *f, const struct fabric_want *want, char *why, size_t why_len)
{
	uint32_t first = want->port ? want->port : 1;
	uint32_t last = want->port ? want->port : f->attr.phys_port_cnt;
	int r = -ENODEV;

	for (uint32_t port = first; port <= last; port++) {
		f->port = (uint8_t)port;
		r = try_port(f, want, why, why_len);
		if (!r)
			return 0;
	}
	return r;
}

/* Opens the device if one of its ports can be used. */
static int try_device(struct fabric *f, struct ibv_device *d, const struct fabric_want *want,
		      char *why, size_t why_len)
{
	int r;

	snprintf(f->device, sizeof(f->device), "%s", api.get_device_name(d));
	if (d->transport_type != IBV_TRANSPORT_IB)
		return error_explain(why, why_len, -EOPNOTSUPP,
				     "%s is neither InfiniBand nor RoCE: such devices are not "
				     "supported",
				     f->device);
	errno = 0;
	f->ctx = api.open_device(d);
	if (!f->ctx)
		return error_explain(why, why_len, errno ? -errno : -EIO,
				     "cannot open %s: %s; check the rights of /dev/infiniband",
				     f->device, strerror(errno ? errno : EIO));
	r = check_device(f, want, why, why_len);
	if (!r)
		r = find_port(f, want, why, why_len);
	if (!r)
		return 0;
	api.close_device(f->ctx);
	f->ctx = NULL;
	return r;
}

/* The kernel's devices: without its part of rdma-core the library does not see a device. */
static int explain_none(const struct fabric_want *want, int n, char *why, size_t why_len)
{
	DIR *dir = opendir(DEVICES);
	char seen[sizeof(want->device)] = "";
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (d->d_name[0] != '.' && (!*want->device || !strcmp(d->d_name, want->device)))
			snprintf(seen, sizeof(seen), "%.63s", d->d_name);
	if (dir)
		closedir(dir);
	if (*seen)
		return error_explain(why, why_len, -ENODEV,
				     "no driver for %s: install ibverbs-providers, and load the "
				     "kernel module ib_uverbs",
				     seen);
	if (n)
		return error_explain(why, why_len, -ENODEV,
				     "no RDMA device %s on this host: correct it in the cluster "
				     "file (ibv_devices lists them)",
				     want->device);
	return error_explain(why, why_len, -ENODEV, "no RDMA device on this host");
}

/* Opens the first device that can be used; else the reason is that of the first one. */
static int find_device(struct fabric *f, const struct fabric_want *want, char *why, size_t why_len)
{
	char unused[8], *text = why;
	int n = 0, r = -ENODEV, tried = 0, first = 0;
	struct ibv_device **list = api.get_device_list(&n);

	for (int i = 0; list && i < n; i++) {
		if (*want->device && strcmp(want->device, api.get_device_name(list[i])) != 0)
			continue;
		r = try_device(f, list[i], want, text, text == why ? why_len : sizeof(unused));
		if (!r)
			break;
		if (!tried++)
			first = r;
		text = unused;
	}
	if (list)
		api.free_device_list(list);
	if (!r)
		return 0;
	return tried ? first : explain_none(want, n, why, why_len);
}

/* ---- what is made on the device ---- */

static void set_caps(struct fabric *f)
{
	const struct ibv_device_attr *a = &f->attr;
	struct fabric_caps *c = &f->caps;
	int sges = a->max_sge_rd > 0 ? MIN(a->max_sge, a->max_sge_rd) : a->max_sge;

	c->sge_max = (uint32_t)MIN(sges, FABRIC_SGES);
	c->send_depth = (uint32_t)MIN(MIN(a->max_qp_wr, a->max_cqe), SENDS_MAX);
	c->receive_depth = (uint32_t)MIN(MIN(a->max_srq_wr, a->max_cqe), DEPTH_MAX);
	c->read_depth = (uint32_t)MIN(MIN(a->max_qp_rd_atom, a->max_qp_init_rd_atom), READS_MAX);
	c->is_ordered = true; /* reliable connections, and no region with relaxed ordering */
}

/* Cards limit the number of work requests times their pieces: finds how many a QP can have. */
static int find_send_depth(struct fabric *f)
{
	uint32_t *depth = &f->caps.send_depth;
	struct ibv_qp *qp;

	for (;;) {
		qp = verbs_qp_create(f, f->receive_cq.cq, *depth);
		if (qp)
			break;
		if (*depth / 2 < SENDS_MIN)
			return errno ? -errno : -ENOMEM;
		*depth /= 2;
	}
	api.destroy_qp(qp);
	return 0;
}

static int make_queues(struct fabric *f)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = f->caps.receive_depth,
						   .max_sge = 1 } };
	int r;

	errno = ENOMEM;
	f->pd = api.alloc_pd(f->ctx);
	if (!f->pd)
		return -errno;
	f->channel = api.create_channel(f->ctx);
	if (!f->channel)
		return -errno;
	r = verbs_cq_init(f, &f->receive_cq, f->caps.receive_depth);
	if (r)
		return r;
	f->srq = api.create_srq(f->pd, &srq);
	if (!f->srq)
		return -errno;
	r = find_send_depth(f);
	if (!r)
		r = verbs_taken_reserve(f, f->caps.receive_depth);
	return r ? r : htab_init(&f->qps);
}

/* ---- events ---- */

void verbs_die(struct fabric *f, const char *reason)
{
	if (f->is_dead)
		return;
	f->is_dead = true;
	snprintf(f->trouble, sizeof(f->trouble), "%s failed: %s", f->device, reason);
}

/* Compares the port with what it was when it was opened. */
static void check_port(struct fabric *f)
{
	struct ibv_port_attr p;
	union ibv_gid gid;

	if (f->is_dead)
		return;
	*f->trouble = 0;
	if (query_port(f->ctx, f->port, &p) || p.state != IBV_PORT_ACTIVE)
		snprintf(f->trouble, sizeof(f->trouble), "port %u of %s is down", f->port,
			 f->device);
	else if (api.query_gid(f->ctx, f->port, f->gid_index, &gid) ||
		 memcmp(&gid, &f->gid, sizeof(gid)) != 0)
		snprintf(f->trouble, sizeof(f->trouble), "%s lost its address", f->caps.name);
	else if (f->caps.is_link_local && p.lid != f->lid)
		snprintf(f->trouble, sizeof(f->trouble), "%s has another LID now", f->caps.name);
}

static void take_async(struct fabric *f, const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		verbs_die(f, "the device reported a fatal error");
		break;
	case IBV_EVENT_CQ_ERR:
		verbs_die(f, "completions were lost");
		break;
	case IBV_EVENT_SRQ_ERR:
		verbs_die(f, "receives were lost");
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		check_port(f);
		break;
	default: /* a QP that fails has completions with errors */
		break;
	}
}

/* After the last event: any other error than that there is none means that the device is gone. Its
 * descriptor would then be ready for ever. */
static void check_removed(struct fabric *f, struct source *s)
{
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
		return;
	verbs_die(f, "it was removed");
	f->env->sock->watch(f->env, f->loop, s, 0);
}

/* Calls f->ready(), so that the caller looks at trouble(); last, because it may close f. */
static void async_ready(struct source *s, unsigned events)
{
	struct fabric *f = container_of(s, struct fabric, async_source);
	struct ibv_async_event e;

	(void)events;
	while (!api.get_async_event(f->ctx, &e)) {
		take_async(f, &e);
		api.ack_async_event(&e);
	}
	check_removed(f, s);
	f->ready(f->arg);
}

static void channel_ready(struct source *s, unsigned events)
{
	struct fabric *f = container_of(s, struct fabric, channel_source);
	struct ibv_cq *cq;
	void *arg;

	(void)events;
	while (!api.get_cq_event(f->channel, &cq, &arg)) {
		((struct verbs_cq *)arg)->is_armed = false;
		api.ack_cq_events(cq, 1);
	}
	check_removed(f, s);
	f->ready(f->arg);
}

static int watch(struct fabric *f, struct source *s, int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	s->fd = fd;
	return f->env->sock->watch(f->env, f->loop, s, EV_IN);
}

/* ---- open and close ---- */

static struct fabric *fabric_alloc(struct env *e, struct loop *l, void (*ready)(void *arg),
				   void *arg)
{
	struct fabric *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->api = &api;
	f->env = e;
	f->loop = l;
	f->ready = ready;
	f->arg = arg;
	f->channel_source.ready = channel_ready;
	f->async_source.ready = async_ready;
	list_init(&f->send_cqs);
	return f;
}

int verbs_open(struct env *e, struct loop *l, const struct fabric_want *want,
	       void (*ready)(void *arg), void *arg, struct fabric **out, char *why, size_t why_len)
{
	struct fabric *f;
	int r = load_once(why, why_len);

	*out = NULL;
	if (r)
		return r;
	f = fabric_alloc(e, l, ready, arg);
	if (!f)
		return error_explain(why, why_len, -ENOMEM, "out of memory");
	f->traffic_class = want->traffic_class;
	f->service_level = want->service_level;
	r = find_device(f, want, why, why_len);
	if (r)
		goto fail;
	set_caps(f);
	r = make_queues(f);
	if (!r)
		r = watch(f, &f->channel_source, f->channel->fd);
	if (!r)
		r = watch(f, &f->async_source, f->ctx->async_fd);
	if (r) {
		error_explain(why, why_len, r, "cannot use %s: %s%s", f->caps.name, strerror(-r),
			      r == -ENOMEM ? "; raise the limit of locked memory (ulimit -l)" : "");
		goto fail;
	}
	*out = f;
	return 0;
fail:
	verbs_close(f);
	return r;
}

/* Accepts a half-opened device. */
void verbs_close(struct fabric *f)
{
	struct verbs_cq *c, *next;

	assert(f->qps.count == 0);
	f->env->sock->watch(f->env, f->loop, &f->channel_source, 0);
	f->env->sock->watch(f->env, f->loop, &f->async_source, 0);
	if (f->srq)
		api.destroy_srq(f->srq);
	list_for_each_safe(c, next, &f->send_cqs, link) {
		verbs_cq_fini(f, c);
		free(c);
	}
	verbs_cq_fini(f, &f->receive_cq);
	if (f->channel)
		api.destroy_channel(f->channel);
	if (f->pd)
		api.dealloc_pd(f->pd);
	if (f->ctx)
		api.close_device(f->ctx);
	htab_destroy(&f->qps);
	free(f->taken);
	free(f);
}
