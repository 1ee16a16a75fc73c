#include "cluster.h"

/* ---- a cluster ---- */

static bool port_free(uint32_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, r;

	a.sin_addr.s_addr = htonl(INADDR_ANY);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	r = bind(fd, (struct sockaddr *)&a, sizeof(a));
	close(fd);
	return r == 0;
}

uint32_t free_ports(int n)
{
	for (int tries = 0; tries < 1000; tries++) {
		uint32_t base;
		int i = 0;

		CHECK_EQ(getrandom(&base, sizeof(base), 0), (ssize_t)sizeof(base));
		base = 20000 + base % 11000; /* the metrics ports are not ephemeral ports, either */
		while (i < n && port_free(base + (uint32_t)i) &&
		       port_free(base + METRICS_OFFSET + (uint32_t)i))
			i++;
		if (i == n)
			return base;
	}
	CHECK(!"no free ports");
	return 0;
}

/* The RDMA devices of the servers and of the clients, if SHEAF_TEST_RDMA names them. */
static bool rdma_devices(char server[64], char client[64])
{
	const char *wish = getenv("SHEAF_TEST_RDMA");

	return wish && sscanf(wish, "%63s %63s", server, client) == 2;
}

/* The cluster file is the clients'; that of the servers has another device. */
static void name_client_device(const struct cluster *c)
{
	char server[64], client[64], line[128];

	if (!rdma_devices(server, client))
		return;
	snprintf(line, sizeof(line), "[rdma]\ndevice = %s\n\n[cluster]\n", client);
	edit_file(c->conf, "[cluster]\n", line);
}

static void make_server_conf(const struct cluster *c, char *path, size_t n)
{
	char server[64], client[64], from[96], to[96], *text;

	snprintf(path, n, "%s", c->conf);
	if (!rdma_devices(server, client))
		return;
	snprintf(path, n, "%s/servers.conf", c->dir);
	text = read_text(c->conf);
	write_text(path, text);
	free(text);
	snprintf(from, sizeof(from), "device = %s", client);
	snprintf(to, sizeof(to), "device = %s", server);
	edit_file(path, from, to);
}

void cluster_create(struct cluster *c, const struct cluster_opts *given)
{
	struct cluster_opts o = given ? *given : (struct cluster_opts){ 0 };
	const char *more = o.more ? o.more : "", *listen = getenv("SHEAF_TEST_LISTEN");
	struct sheaf_init in = { .size = sizeof(in), .stripe_unit = 65536, .listen = listen };
	char line[256];

	memset(c, 0, sizeof(*c));
	in.servers = o.servers ? o.servers : 2;
	if (o.stripe_unit)
		in.stripe_unit = o.stripe_unit;
	c->n = (int)in.servers;
	c->port = in.port = free_ports(c->n + 2); /* spare ports for servers added later */
	temp_dir(c->dir, sizeof(c->dir));
	if (sheaf_init(c->dir, &in)) {
		fprintf(stderr, "sheaf_init: %s\n", sheaf_why());
		CHECK(!"sheaf_init");
	}
	snprintf(c->conf, sizeof(c->conf), "%s/sheaf.conf", c->dir);
	snprintf(line, sizeof(line), "timeout = %u", o.timeout ? o.timeout : 30);
	edit_file(c->conf, "timeout = 30", line);
	snprintf(line, sizeof(line), "lease = %u\n%s%s", o.lease ? o.lease : 3,
		 listen ? "trust = 0.0.0.0/0 ::/0\n" : "", more); /* clients are the same host's */
	edit_file(c->conf, "lease = 30\n", line);
	name_client_device(c);
}

int server_spawn(struct cluster *c, int i)
{
	char exe[CLUSTER_PATH], conf[CLUSTER_PATH], log[CLUSTER_PATH], id[16], fd[16];
	const char *build = getenv("SHEAF_BUILD");
	const char *argv[] = { exe,	"--conf", conf,		 "--server", id,
			       "--log", log,	  "--notify-fd", fd,	     NULL };
	int p[2];

	CHECK(build || !"SHEAF_BUILD must name the build directory");
	CHECK_EQ(c->pid[i], 0);
	CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
	snprintf(exe, sizeof(exe), "%s/bin/sheafd", build);
	make_server_conf(c, conf, sizeof(conf));
	snprintf(log, sizeof(log), "%s/server%d.log", c->dir, i);
	snprintf(id, sizeof(id), "%d", i);
	snprintf(fd, sizeof(fd), "%d", p[1]);
	c->pid[i] = process_start(argv, p[1]);
	close(p[1]);
	return p[0];
}

int server_ready(struct cluster *c, int i, int fd)
{
	char line[256] = "";
	int r = 0;

	if (read(fd, line, sizeof(line) - 1) < 5 || strncmp(line, "ready", 5) != 0) {
		fprintf(stderr, "server %d: %s\n", i, line);
		r = process_wait(c->pid[i]);
		c->pid[i] = 0;
		r = r ? r : -1;
	}
	close(fd);
	return r;
}

int server_up(struct cluster *c, int i)
{
	return server_ready(c, i, server_spawn(c, i));
}

void cluster_start(struct cluster *c)
{
	for (int i = 0; i < c->n; i++)
		if (!c->pid[i])
			CHECK_EQ(server_up(c, i), 0);
}

void server_kill(struct cluster *c, int i)
{
	CHECK(c->pid[i] > 0);
	CHECK_EQ(kill(c->pid[i], SIGKILL), 0);
	CHECK_EQ(process_wait(c->pid[i]), 256 + SIGKILL);
	c->pid[i] = 0;
}

void server_down(struct cluster *c, int i)
{
	CHECK(c->pid[i] > 0);
	CHECK_EQ(kill(c->pid[i], SIGTERM), 0);
	CHECK_EQ(process_wait(c->pid[i]), 0);
	c->pid[i] = 0;
}

void cluster_stop(struct cluster *c)
{
	for (int i = 0; i < c->n; i++)
		if (c->pid[i])
			server_down(c, i);
	for (int i = 0; i < c->n && getenv("SHEAF_TEST_RDMA"); i++)
		CHECK(!server_logged(c, i, "refused (protocol)")); /* tests over RDMA are honest */
}

struct sheaf *client_connect(const char *conf)
{
	struct sheaf *fs = NULL;
	int r = sheaf_connect(conf, &fs);

	if (r)
		fprintf(stderr, "%s: %s: %s\n", conf, sheaf_strerror(r), sheaf_why());
	CHECK_EQ(r, 0);
	return fs;
}

struct sheaf *direct_client(const char *conf)
{
	struct sheaf *fs;

	setenv("SHEAF_DIRECT", "on", 1);
	fs = client_connect(conf);
	unsetenv("SHEAF_DIRECT");
	return fs;
}

struct sheaf_server server_status(struct sheaf *fs, int i)
{
	struct sheaf_server s;

	CHECK_EQ(sheaf_server_status(fs, i, PATIENCE_S * 1000, &s), 0);
	CHECK(s.up);
	return s;
}

int sys_run(int (*child)(const char *name, char **arg), void (*begin)(void), void (*end)(void),
	    const struct test *tests, size_t n, int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--child") == 0)
		return child ? child(argv[2], argv + 3) : 2;
	signal(SIGPIPE, SIG_IGN);
	if (begin)
		begin();
	test_run(tests, n, argc, argv);
	if (end)
		end();
	return 0;
}

bool server_logged(const struct cluster *c, int i, const char *text)
{
	char path[CLUSTER_PATH], *log;
	bool found;

	snprintf(path, sizeof(path), "%s/server%d.log", c->dir, i);
	log = read_text(path);
	found = strstr(log, text) != NULL;
	free(log);
	return found;
}
