/* Hosts for `sheaf bench --hosts`: a network namespace for each temporary server and one for all
 * clients. A veth pair joins each of them to a bridge, which is in a namespace of its own.
 *
 * The namespaces have no names: only descriptors of the command and its processes refer to them. So
 * they vanish, with their links, when these end, whatever ends them. The command is in the clients'
 * namespace from bench_hosts_open() to bench_hosts_close(), so processes that it forks are, too; to
 * start one elsewhere it enters another namespace for that time.
 * Errors: ip and tc write to the log of bench_programs.c; messages quote its last line. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define NETWORK "192.0.2" /* the clients have .1, server i has .(2 + i) */
#define PACKET 1514 /* bytes of a full packet at the link layer */
#define QUEUE 1000 /* packets at a port of the bridge, as interfaces have by default */
#define SHORT_QUEUE 100
#define DELAYED 100000 /* packets that a link may hold while it delays them */
#define BURST_NS (150 * NSEC_PER_SEC / 1000000) /* what a link may send at once */
#define MIN_BURST (16 * KIB)
#define SLOW_RATE 1e9 /* bits/s of the clients' link in benchmarks that need a slow one */
#define SLOW_TEXT "1gbit"

/* ---- options ---- */

struct unit {
	const char *name;
	double factor, least, most;
};

/* Parses a number with one of these units; 0 if it is none, or out of range. */
static double parse(const char *text, const struct unit *units, size_t n)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *text < '0' || *text > '9')
		return 0;
	for (size_t i = 0; i < n; i++)
		if (strcmp(end, units[i].name) == 0 && v * units[i].factor >= units[i].least &&
		    v * units[i].factor <= units[i].most)
			return v * units[i].factor;
	return 0;
}

int bench_hosts_take(struct bench *b, const char *rate, const char *delay)
{
	static const struct unit rates[] = { { "mbit", 1e6, 1e6, 1e12 },
					     { "gbit", 1e9, 1e6, 1e12 } };
	static const struct unit times[] = { { "us", 1e3, 1e3, 1e10 },
					     { "ms", 1e6, 1e3, 1e10 },
					     { "s", 1e9, 1e3, 1e10 } };

	b->rate = rate;
	b->delay = delay;
	b->rate_bits = rate ? parse(rate, rates, ARRAY_LEN(rates)) : 0;
	b->delay_ns = delay ? (uint64_t)parse(delay, times, ARRAY_LEN(times)) : 0;
	if (rate && b->rate_bits <= 0)
		return cli_usage(b->c, "--rate %s: not a rate such as 1gbit or 100mbit", rate);
	if (delay && !b->delay_ns)
		return cli_usage(b->c, "--delay %s: not a time such as 1ms or 50us, up to 10s",
				 delay);
	return CLI_OK;
}

const char *bench_hosts_rate(struct bench *b)
{
	return !b->rate && b->kind->slow_client ? SLOW_TEXT : b->rate;
}

double bench_hosts_bits(struct bench *b)
{
	return !b->rate && b->kind->slow_client ? SLOW_RATE : b->rate_bits;
}

void bench_hosts_text(struct bench *b, char *out, size_t n)
{
	const char *rate = b->shown.rate;

	out[0] = 0;
	if (b->shown.hosts > 1)
		snprintf(out, n, " between %d hosts%s%s%s%s", b->shown.hosts, rate ? ", rate " : "",
			 rate ? rate : "", b->delay ? ", delay " : "", b->delay ? b->delay : "");
}

/* ---- what this machine has ---- */

enum { NO_NAMESPACE = 3, NO_PROGRAMS, NO_VETH, NO_BRIDGE, NO_TBF, NO_NETEM, N_REASONS };

/* Exit status of a shell script in a network namespace of its own, or NO_NAMESPACE. */
static int try_script(const char *script)
{
	int status = 0, fd;
	pid_t pid = fork();

	if (pid == 0) {
		if (unshare(CLONE_NEWNET) < 0)
			_exit(NO_NAMESPACE);
		fd = open("/dev/null", O_RDWR);
		for (int i = 0; i < 3; i++)
			dup2(fd, i);
		execlp("sh", "sh", "-c", script, (char *)NULL);
		_exit(NO_PROGRAMS);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return NO_NAMESPACE;
	return WEXITSTATUS(status);
}

const char *bench_hosts_missing(struct bench *b, bool netem)
{
	static const char *const reasons[N_REASONS] = {
		[NO_NAMESPACE] = "hosts need network namespaces, which only root may create",
		[NO_PROGRAMS] = "hosts need the programs ip and tc: install iproute2",
		[NO_VETH] = "the kernel has no veth: load the module veth (CONFIG_VETH)",
		[NO_BRIDGE] = "the kernel has no bridge: load the module bridge (CONFIG_BRIDGE)",
		[NO_TBF] =
			"the kernel cannot limit the rate of a link: load the module sch_tbf (CONFIG_NET_SCH_TBF)",
		[NO_NETEM] =
			"the kernel cannot delay packets: load the module sch_netem (CONFIG_NET_SCH_NETEM)",
	};
	char script[512];
	int status;

	if (!b->dir)
		return "it needs --dir, for servers on hosts of their own";
	snprintf(script, sizeof(script),
		 "command -v ip && command -v tc || exit %d\n"
		 "ip link add name veth0 type veth peer name veth1 || exit %d\n"
		 "ip link add name bridge0 type bridge || exit %d\n"
		 "tc qdisc add dev veth0 root tbf rate 1gbit burst 16kb limit 64kb || exit %d\n"
		 "%s || tc qdisc add dev veth1 root netem delay 1ms || exit %d",
		 NO_PROGRAMS, NO_VETH, NO_BRIDGE, NO_TBF, netem ? "false" : "true", NO_NETEM);
	status = try_script(script);
	return status > 0 && status < N_REASONS && reasons[status] ? reasons[status] : NULL;
}

/* ---- namespaces ---- */

/* Makes a namespace and enters it; a descriptor of it, or -errno. */
static int make_namespace(void)
{
	int fd;

	if (unshare(CLONE_NEWNET) < 0)
		return -errno;
	fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int enter(int fd)
{
	return setns(fd, CLONE_NEWNET) < 0 ? -errno : 0;
}

int bench_hosts_enter(struct bench *b, int server)
{
	struct bench_hosts *h = &b->hosts;

	return h->n ? enter(h->host[server + 1]) : 0;
}

struct in_addr bench_hosts_address(struct bench *b, int server)
{
	struct in_addr a = { htonl(INADDR_LOOPBACK) };

	if (b->hosts.n && inet_pton(AF_INET, NETWORK ".2", &a) == 1)
		a.s_addr = htonl(ntohl(a.s_addr) + (uint32_t)server);
	return a;
}

/* ---- links ---- */

/* Makes and joins host k: 0 for the clients, 1 + i for server i. */
static int make_host(struct bench *b, int k)
{
	struct bench_hosts *h = &b->hosts;
	char script[512];
	int r;

	h->host[k] = make_namespace();
	if (h->host[k] < 0)
		return h->host[k];
	h->n = k + 1;
	snprintf(script, sizeof(script),
		 "ip link add name port%d type veth peer name eth0 netns /proc/%d/fd/%d && "
		 "ip link set port%d master bridge up",
		 k, getpid(), h->host[k], k);
	r = enter(h->bridge);
	if (!r)
		r = bench_shell(b, NULL, script, NULL, NULL);
	snprintf(script, sizeof(script),
		 "ip link set lo up && ip address add " NETWORK ".%d/24 dev eth0 && "
		 "ip link set eth0 up",
		 k + 1);
	if (!r)
		r = enter(h->host[k]);
	return r ? r : bench_shell(b, NULL, script, NULL, NULL);
}

/* The arguments of tc for the rate of a link, with a queue of this many packets. */
static void rate_text(char *out, size_t n, double bits, int queue)
{
	double burst = bits / 8 * (double)BURST_NS / 1e9;

	snprintf(out, n, "tbf rate %.0fbit burst %.0f limit %d", bits,
		 MAX(burst, (double)MIN_BURST), queue * PACKET);
}

/* Half of the delay is added by either end: packets wait before they leave a host. */
static int delay_host(struct bench *b, int k, uint64_t ns)
{
	char script[256];
	int r = enter(b->hosts.host[k]);

	snprintf(script, sizeof(script),
		 "tc qdisc replace dev eth0 root handle 1: netem delay %.3fus limit %d",
		 (double)ns / 2e3, DELAYED);
	return r ? r : bench_shell(b, NULL, script, NULL, NULL);
}

/* Limits both directions of a host's link. */
static int limit_host(struct bench *b, int k)
{
	bool slow = b->kind->slow_client;
	double bits = bench_hosts_bits(b);
	char script[256], rate[128];
	int r;

	if (bits <= 0 || (slow && k))
		return 0;
	rate_text(rate, sizeof(rate), bits, QUEUE);
	snprintf(script, sizeof(script), "tc qdisc add dev eth0 %s handle 2: %s",
		 b->hosts.delays ? "parent 1:1" : "root", rate);
	r = enter(b->hosts.host[k]);
	if (!r)
		r = bench_shell(b, NULL, script, NULL, NULL);
	rate_text(rate, sizeof(rate), bits, slow ? SHORT_QUEUE : QUEUE);
	snprintf(script, sizeof(script), "tc qdisc add dev port%d root handle 2: %s", k, rate);
	if (!r)
		r = enter(b->hosts.bridge);
	return r ? r : bench_shell(b, NULL, script, NULL, NULL);
}

int bench_hosts_delay(struct bench *b, uint64_t ns)
{
	int r = 0;

	for (int k = 0; !r && k < b->hosts.n; k++)
		r = delay_host(b, k, ns);
	if (enter(b->hosts.host[0]) < 0 && !r)
		r = -EIO;
	return r && r != -EINTR ? bench_program_fail(b, "cannot delay links", r) : r;
}

static int make_bridge(struct bench *b)
{
	struct bench_hosts *h = &b->hosts;

	h->bridge = make_namespace();
	if (h->bridge < 0)
		return h->bridge;
	return bench_shell(b, NULL, "ip link add name bridge type bridge && ip link set bridge up",
			   NULL, NULL);
}

/* ---- the cluster file ---- */

/* Replaces the hosts of all addresses, which are on the loopback so far. Root of the clients' host
 * stays root. */
static void put_line(FILE *out, const char *line, void *arg)
{
	const char *colon = strrchr(line, ':');
	int *server = arg;

	if (strncmp(line, "[server.", 8) == 0)
		*server = atoi(line + 8);
	if (strncmp(line, "address = ", 10) == 0 && colon)
		fprintf(out, "address = " NETWORK ".%d%s", *server + 2, colon);
	else if (strncmp(line, "metrics = ", 10) != 0)
		fputs(line, out);
	if (strcmp(line, "[cluster]\n") == 0)
		fputs("trust = " NETWORK ".0/24\n", out);
}

/* ---- opening and closing ---- */

int bench_hosts_open(struct bench *b, int servers, char *why, size_t n)
{
	struct bench_hosts *h = &b->hosts;
	char line[256];
	int r, server = 0;

	h->delays = b->delay_ns || b->kind->delays;
	h->bridge = -1;
	h->home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	r = h->home < 0 ? -errno : make_bridge(b);
	for (int k = 0; !r && k <= servers; k++) {
		r = make_host(b, k);
		if (!r && h->delays)
			r = delay_host(b, k, b->delay_ns);
		if (!r)
			r = limit_host(b, k);
	}
	if (!r)
		r = enter(h->host[0]);
	if (!r)
		r = bench_conf_edit(b->place.conf_path, b->place.conf_path, put_line, &server);
	if (r) {
		bench_program_why(b, r, line, sizeof(line));
		snprintf(why, n, "cannot make hosts: %s", line);
	}
	return r;
}

void bench_hosts_close(struct bench *b)
{
	struct bench_hosts *h = &b->hosts;

	if (h->home > 0 && enter(h->home) == 0)
		close(h->home);
	for (int k = 0; k < h->n; k++)
		close(h->host[k]);
	if (h->home > 0 && h->bridge >= 0)
		close(h->bridge);
	*h = (struct bench_hosts){ 0 };
}
