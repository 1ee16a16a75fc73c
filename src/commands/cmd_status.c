/* sheaf status: shows every server of the cluster, up or down; --watch repeats.
 *
 * Threads: those of cli_servers_ask(). Between two samples the command sleeps in ppoll().
 * Errors: a server that does not answer is down. A watch ends when its output cannot be written. */
#include <json-c/json.h>
#include <mntent.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "commands/bank_status.h"

#define WATCH_S 2.0 /* seconds between two samples */
#define WATCH_MIN_S 0.1
#define WATCH_MAX_S 86400.0

enum { OPT_JSON, OPT_WATCH };

/* A sample of all servers and, with --watch, the sample before it. */
struct sample {
	const char *conf;
	bool asked; /* false: the servers' state is unknown */
	bool watch;
	int n;
	struct sheaf_server *now, *before; /* before the first sample all are down */
	struct sheaf_server_net *net; /* of the last sample; no rows before */
	/* with room for SHEAF_MAX_SERVERS; by server: the incarnation last compared with the map,
	 * and whether the map has another */
	uint64_t compared[SHEAF_MAX_SERVERS];
	bool other_storage[SHEAF_MAX_SERVERS];
	struct json_object *bank; /* NULL: there is none, or it is not asked */
	struct bank_state_now bank_now;
};

/* ---- storage ---- */

/* Must a server's storage be compared with the map? Only when all metadata servers are up: the
 * request must not wait for one that is down. */
static bool must_compare(const struct sample *l)
{
	bool must = false;

	for (int i = 0; i < l->n; i++) {
		const struct sheaf_server *s = &l->now[i];

		if ((s->roles & ROLE_META) && !s->up)
			return false;
		must |= s->up && s->incarnation &&
			(s->incarnation != l->compared[i] || l->other_storage[i]);
	}
	return must;
}

static void compare_storage(struct cli *c, struct sample *l)
{
	struct sheaf_server *known;
	int n;

	if (!must_compare(l))
		return;
	known = calloc(SHEAF_MAX_SERVERS, sizeof(*known));
	n = known ? sheaf_map(c->fs, CLI_STATUS_MS, known, SHEAF_MAX_SERVERS) : 0;
	for (int i = 0; i < MIN(n, l->n); i++) {
		uint64_t has = l->now[i].incarnation;

		l->other_storage[i] = has && known[i].incarnation && has != known[i].incarnation;
		l->compared[i] = has;
	}
	free(known);
}

/* ---- rates ---- */

struct rates { /* per second, since the previous sample */
	double requests; /* without the status request of this command */
	double read, written; /* bytes */
};

/* False: the rates are not known. */
static bool find_rates(const struct sample *l, int i, struct rates *out)
{
	const struct sheaf_server *now = &l->now[i], *old = &l->before[i];
	uint64_t n = now->requests - old->requests;
	double s;

	if (!now->up || !old->up || now->pid != old->pid || now->uptime_ns <= old->uptime_ns)
		return false;
	s = (double)(now->uptime_ns - old->uptime_ns) / 1e9;
	*out = (struct rates){ .requests = (double)(n - MIN(n, 1)) / s,
			       .read = (double)(now->bytes_read - old->bytes_read) / s,
			       .written = (double)(now->bytes_written - old->bytes_written) / s };
	return true;
}

static int count_up(const struct sample *l)
{
	int up = 0;

	for (int i = 0; i < l->n; i++)
		up += l->now[i].up != 0;
	return up;
}

/* ---- routes ---- */

static const struct sheaf_route *used_route(const struct sheaf_server_net *net)
{
	for (uint32_t i = 0; i < net->n_routes; i++)
		if (net->routes[i].used)
			return &net->routes[i];
	return NULL;
}

/* The route of this command's link, and why no better one is used. */
static void route_text(const struct sheaf_server_net *net, char *out, size_t n)
{
	const struct sheaf_route *used = used_route(net), *r;
	FILE *f = fmemopen(out, n, "w");

	if (!f)
		return;
	fprintf(f, "%s", used ? used->name : "-");
	for (r = net->routes; used && r < used; r++)
		fprintf(f, "%s%s: %s", r == net->routes ? " (" : ", ", r->name, r->reason);
	if (used && used > net->routes)
		fprintf(f, ")");
	fclose(f);
}

/* Links of a server over one route. */
static uint64_t links_over(const struct sheaf_server_net *net, const char *route)
{
	for (uint32_t i = 0; i < net->n_links; i++)
		if (strcmp(net->links[i].name, route) == 0)
			return net->links[i].links;
	return 0;
}

/* ---- mounts of this host ---- */

#define WAITS_TEXT 8192

/* What the daemon of a mount waits for; "": nothing, or it does not tell. Any user may listen at
 * the address of a mount that has no daemon, so the answer counts only if root or this user sent
 * it. */
static void ask_mount(const char *dir, char out[WAITS_TEXT])
{
	uid_t who;
	int fd = mount_reach(dir, 1, &who);
	ssize_t n = -1;

	if (fd >= 0 && (who == 0 || who == geteuid()) && send(fd, "waits", 5, MSG_NOSIGNAL) == 5)
		n = recv(fd, out, WAITS_TEXT - 1, 0); /* one message */
	out[MAX(n, 0)] = 0;
	if (fd >= 0)
		close(fd);
}

/* One line of a daemon's answer, of a server that its requests wait for. */
static void show_wait(const char *dir, const char *line, struct json_object *list)
{
	unsigned long long waited, left;
	char name[32], address[128], text[WAITS_TEXT];
	struct json_object *o;
	int at = 0;

	if (sscanf(line, "%31s %127s %llu %llu %n", name, address, &waited, &left, &at) < 4 || !at)
		return;
	if (!list) {
		snprintf(text, sizeof(text),
			 "mount %s waits for %s (%s): %llu s so far, %llu s left: %s", dir, name,
			 address, waited, left, line + at);
		cli_put_name(stdout, text);
		putchar('\n');
		return;
	}
	o = json_object_new_object();
	json_object_object_add(o, "mount", cli_json_name(dir));
	cli_json_text(o, "server", name);
	cli_json_text(o, "address", address);
	cli_json_uint(o, "waited_s", waited);
	cli_json_uint(o, "left_s", left);
	json_object_object_add(o, "why", cli_json_name(line + at));
	json_object_array_add(list, o);
}

/* The servers that mounts of this cluster file wait for; list NULL: prints them. */
static void show_mounts(const struct sample *l, struct json_object *list)
{
	FILE *f = l->conf ? setmntent("/proc/self/mounts", "re") : NULL;
	char text[WAITS_TEXT], *line, *rest;
	struct mntent *m;

	while (f && (m = getmntent(f))) {
		if (strcmp(m->mnt_type, "fuse.sheaf") != 0 || strcmp(m->mnt_fsname, l->conf) != 0)
			continue;
		ask_mount(m->mnt_dir, text);
		for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
			show_wait(m->mnt_dir, line, list);
	}
	if (f)
		endmntent(f);
}

/* ---- JSON and text output ---- */

static struct json_object *counts_json(const struct sheaf_net_counts *n)
{
	struct json_object *o = json_object_new_object();

	cli_json_uint(o, "messages_sent", n->messages_sent);
	cli_json_uint(o, "messages_received", n->messages_received);
	cli_json_uint(o, "frames", n->frames);
	cli_json_uint(o, "calls", n->calls);
	cli_json_uint(o, "copied_bytes", n->copied);
	cli_json_uint(o, "work_requests", n->work_requests);
	cli_json_uint(o, "doorbells", n->doorbells);
	cli_json_uint(o, "registrations", n->registrations);
	return o;
}

static void add_routes_json(struct json_object *o, const struct sheaf_server_net *net, bool up)
{
	const struct sheaf_route *used = used_route(net);
	struct json_object *list = json_object_new_array(), *row;

	for (uint32_t i = 0; i < net->n_routes; i++) {
		const struct sheaf_route *r = &net->routes[i];

		row = json_object_new_object();
		cli_json_text(row, "name", r->name);
		cli_json_bool(row, "used", r->used);
		json_object_object_add(row, "reason",
				       r->reason[0] ? json_object_new_string(r->reason) : NULL);
		json_object_array_add(list, row);
	}
	json_object_object_add(o, "route", used ? json_object_new_string(used->name) : NULL);
	json_object_object_add(o, "routes", list);
	cli_json_known(o, "links_unix", up, links_over(net, "unix"));
	cli_json_known(o, "links_rdma", up, links_over(net, "rdma"));
	cli_json_known(o, "links_tcp", up, links_over(net, "tcp"));
	json_object_object_add(o, "net", up ? counts_json(&net->server) : NULL);
	json_object_object_add(o, "net_own", counts_json(&net->own));
}

static void add_rates_json(struct json_object *s, const struct sample *l, int i)
{
	struct rates r;
	bool known = find_rates(l, i, &r);

	json_object_object_add(s, "requests_per_s",
			       known ? json_object_new_double(r.requests) : NULL);
	json_object_object_add(s, "bytes_read_per_s",
			       known ? json_object_new_double(r.read) : NULL);
	json_object_object_add(s, "bytes_written_per_s",
			       known ? json_object_new_double(r.written) : NULL);
}

/* With --watch each sample is one line. */
static void print_json(const struct sample *l, struct sheaf *fs)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array(), *s;
	int form = l->watch ? JSON_C_TO_STRING_PLAIN : JSON_C_TO_STRING_PRETTY;

	for (int i = 0; i < l->n; i++) {
		s = cli_server_json(&l->now[i]);
		cli_json_bool(s, "other_storage", l->other_storage[i]);
		add_routes_json(s, &l->net[i], l->now[i].up);
		if (l->watch)
			add_rates_json(s, l, i);
		else if (l->now[i].up)
			tallies_json(fs, i, s);
		json_object_array_add(list, s);
	}
	json_object_object_add(o, "servers", list);
	if (!l->watch) {
		json_object_object_add(o, "bank", json_object_get(l->bank));
		list = json_object_new_array();
		show_mounts(l, list);
		json_object_object_add(o, "mount_waits", list);
	}
	json_object_object_add(o, "conf", l->conf ? cli_json_name(l->conf) : NULL);
	if (l->watch)
		cli_json_int(o, "time", time(NULL));
	cli_json_print(o, form);
}

static void add_rates(struct cli_table *t, const struct sample *l, int i)
{
	char read[40], written[40];
	struct rates r;

	if (!find_rates(l, i, &r)) {
		cli_table_add(t, "-\t-\t-");
		return;
	}
	format_size(read, sizeof(read), (uint64_t)r.read);
	format_size(written, sizeof(written), (uint64_t)r.written);
	cli_table_add(t, "%.*f\t%s\t%s", r.requests < 10 ? 1 : 0, r.requests, read, written);
}

static void state_text(const struct sample *l, int i, char *out, size_t n)
{
	const struct sheaf_server *s = &l->now[i];

	if (!s->up && s->down)
		snprintf(out, n, "down: %s", sheaf_down_name(s->down));
	else
		snprintf(out, n, "%s",
			 !s->up		     ? "?" :
			 l->other_storage[i] ? "up, other storage" :
					       "up");
}

static void add_row(struct cli_table *t, const struct sample *l, int i)
{
	static const char *const roles[] = { "-", "meta", "data", "meta,data" };
	const struct sheaf_server *s = &l->now[i];
	char uptime[32], memory[32], avail[32], total[32], route[256], state[48];

	state_text(l, i, state, sizeof(state));
	cli_table_add(t, "%s\t%s\t%s", s->name, s->address, state);
	cli_duration(uptime, sizeof(uptime), s->uptime_ns);
	format_size(memory, sizeof(memory), s->anon_bytes); /* excludes the files that it serves */
	format_size(avail, sizeof(avail), s->space_avail);
	format_size(total, sizeof(total), s->space_total);
	route_text(&l->net[i], route, sizeof(route));
	if (s->up)
		cli_table_add(t, "%u\t%s\t%s\t%s\t%llu\t%u\t%s of %s\t%s", s->pid,
			      roles[s->roles & 3], uptime, memory, (unsigned long long)s->requests,
			      s->links, avail, total, route);
	else
		cli_table_add(t, "-\t%s\t-\t-\t-\t-\t-\t-", roles[s->roles & 3]);
}

/* The columns that change from sample to sample, within 80 columns. */
static int print_watched(const struct sample *l, FILE *f)
{
	static const char *const heads[] = { "SERVER", "STATE",	  ">CLIENTS", ">FREE",
					     ">REQ/S", ">READ/S", ">WRITE/S" };
	struct cli_table t;

	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (int i = 0; i < l->n; i++) {
		const struct sheaf_server *s = &l->now[i];
		char avail[32], state[48];

		state_text(l, i, state, sizeof(state));
		format_size(avail, sizeof(avail), s->space_avail);
		cli_table_add(&t, "%.14s\t%.20s", s->name, state);
		if (s->up)
			cli_table_add(&t, "%u\t%s", s->links, avail);
		else
			cli_table_add(&t, "-\t-");
		add_rates(&t, l, i);
	}
	return cli_table_print(&t, f);
}

static int print_table(const struct sample *l, FILE *f)
{
	static const char *const heads[] = { "SERVER",	 "ADDRESS", "STATE",   ">PID",
					     "ROLES",	 ">UPTIME", ">MEMORY", ">REQUESTS",
					     ">CLIENTS", ">FREE",   "ROUTE" };
	struct cli_table t;

	if (!l->n)
		return 0;
	if (l->watch)
		return print_watched(l, f);
	cli_table_init(&t, heads, ARRAY_LEN(heads));
	for (int i = 0; i < l->n; i++)
		add_row(&t, l, i);
	return cli_table_print(&t, f);
}

/* ---- watching ---- */

/* Prints one sample: the time, the number of servers up, the table. 0 or -ENOMEM. */
static int print_block(const struct sample *l, bool terminal)
{
	time_t now = time(NULL);
	char date[64] = "", *text = NULL;
	struct tm tm;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	int r;

	if (!f)
		return -ENOMEM;
	if (localtime_r(&now, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	fprintf(f, "%s  %d of %d servers are up\n", date, count_up(l), l->n);
	r = print_table(l, f);
	fputc('\n', f);
	if (fclose(f))
		r = -ENOMEM;
	if (!r && terminal)
		cli_paint(text);
	else if (!r)
		fputs(text, stdout);
	free(text);
	return r;
}

/* Sleeps until `end`; false: a signal arrived or the reader of stdout is gone. */
static bool sleep_until(uint64_t end)
{
	struct pollfd p = { .fd = STDOUT_FILENO }; /* POLLERR and POLLHUP are always reported */
	sigset_t all, old;
	struct timespec t;
	uint64_t now;
	int r = 0;

	sigfillset(&all); /* a signal is delivered before cli_signal is checked, or in ppoll() */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!cli_signal && r <= 0 && (now = time_now()) < end) {
		t = (struct timespec){ (time_t)((end - now) / NSEC_PER_SEC),
				       (long)((end - now) % NSEC_PER_SEC) };
		r = ppoll(&p, 1, &t, &old);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return !cli_signal && r <= 0;
}

/* Asks all servers, also those that only the map has and the answers tell of. */
static void ask(struct cli *c, struct sample *l)
{
	int n = l->n;

	cli_servers_ask(c->fs, l->now, l->net, n);
	l->n = MIN(sheaf_server_count(c->fs), SHEAF_MAX_SERVERS);
	if (l->n > n)
		cli_servers_ask(c->fs, l->now, l->net, l->n);
	compare_storage(c, l);
}

static void sample_again(struct cli *c, struct sample *l)
{
	struct sheaf_server *old = l->before;

	l->before = l->now;
	l->now = old;
	ask(c, l);
}

/* Runs until SIGINT (exit status 0), another signal, or until the reader of stdout is gone. */
static int watch(struct cli *c, struct sample *l, uint64_t interval)
{
	static char buffer[64 * KIB]; /* each sample is written in one piece */
	bool terminal = isatty(STDOUT_FILENO);
	uint64_t start;
	int r = 0;

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	cli_catch_signals();
	do {
		start = time_now();
		sample_again(c, l);
		if (c->opt[OPT_JSON])
			print_json(l, c->fs);
		else
			r = print_block(l, terminal);
	} while (!r && fflush(stdout) == 0 && sleep_until(start + interval));
	if (r)
		return cli_error(c, "out of memory");
	if (terminal && !ferror(stdout))
		putchar('\n'); /* the shell prompt goes below */
	if (cli_signal != SIGINT)
		return CLI_FAILED;
	cli_signal = 0;
	return CLI_OK;
}

/* ---- the command ---- */

/* Fills in the servers of the cluster file, all down. */
static void servers_from_conf(const struct conf *conf, struct sheaf_server *s)
{
	for (uint32_t i = 0; i < conf->n_targets; i++) {
		const struct conf_target *t = &conf->targets[i];

		s[i].id = t->id;
		s[i].roles = t->roles;
		snprintf(s[i].name, sizeof(s[i].name), "%s", t->name);
		snprintf(s[i].address, sizeof(s[i].address), "%s", t->address);
	}
}

/* One line for each reason: the first server that has it, how many others, and the remedy. */
static int explain_down(struct cli *c, const struct sample *l)
{
	int status = CLI_OK;

	for (int i = 0; i < l->n; i++) {
		const struct sheaf_server *s = &l->now[i];
		int more = 0, earlier = 0;
		char others[40] = "";

		for (int k = 0; !s->up && k < l->n; k++)
			if (k != i && !l->now[k].up && strcmp(l->now[k].why, s->why) == 0)
				*(k < i ? &earlier : &more) += 1;
		if (s->up || earlier)
			continue;
		if (more)
			snprintf(others, sizeof(others), " and %d more", more);
		status = cli_error(c, "%s (%s)%s %s down: %s", s->name, s->address, others,
				   more ? "are" : "is", s->why);
	}
	return status;
}

/* Takes and prints one sample. */
static int show(struct cli *c, struct sample *l)
{
	int status = CLI_OK;

	if (l->asked)
		ask(c, l);
	if (c->opt[OPT_JSON])
		print_json(l, c->fs);
	else if (print_table(l, stdout))
		status = cli_error(c, "out of memory");
	else if (l->bank)
		bank_state_line(&l->bank_now, stdout);
	if (!c->opt[OPT_JSON])
		show_mounts(l, NULL);
	if (l->asked && count_up(l) < l->n)
		status = explain_down(c, l);
	for (int i = 0; i < l->n; i++)
		if (l->other_storage[i])
			status = cli_error(
				c,
				"%s has other storage than the map knows: what files had there is "
				"lost; put its storage back, or 'sheaf add-server %s --emptied'",
				l->now[i].name, l->now[i].name);
	return l->asked ? status : CLI_FAILED;
}

static int take_interval(struct cli *c, uint64_t *ns)
{
	const char *text = c->opt[OPT_WATCH];
	double s = WATCH_S;
	char *end;

	if (text && text[0]) {
		s = strtod(text, &end);
		if (*end || !(s >= WATCH_MIN_S && s <= WATCH_MAX_S))
			return cli_usage(c, "--watch=%s: not a number of seconds from %g to %g",
					 text, WATCH_MIN_S, WATCH_MAX_S);
	}
	*ns = (uint64_t)(s * 1e9);
	return CLI_OK;
}

/* Connects if possible, counts the servers, and samples them; conf is NULL for local:DIR. */
static int look_at(struct cli *c, const struct conf *conf, struct sample *l, uint64_t interval)
{
	int status = cli_connect(c);

	l->asked = c->fs != NULL;
	l->n = c->fs ? sheaf_server_count(c->fs) : conf ? (int)conf->n_targets : 0;
	l->now = calloc(SHEAF_MAX_SERVERS, sizeof(*l->now));
	l->before = calloc(SHEAF_MAX_SERVERS, sizeof(*l->before));
	l->net = calloc(SHEAF_MAX_SERVERS, sizeof(*l->net));
	if (!l->now || !l->before || !l->net)
		return cli_error(c, "out of memory");
	if (conf && !c->fs)
		servers_from_conf(conf, l->now);
	if (l->watch)
		return status ? status : watch(c, l, interval);
	if (conf && conf->bank.n_servers)
		l->bank = bank_state_take(&l->bank_now, conf, c->fs);
	return show(c, l);
}

static int run_status(struct cli *c)
{
	char err[CLI_PATH_MAX + 512], path[CLI_PATH_MAX];
	struct sample l = { .watch = c->opt[OPT_WATCH] != NULL };
	struct conf *conf = NULL;
	uint64_t interval = 0;
	int status = take_interval(c, &interval);
	bool local;

	if (status)
		return status;
	local = conf_find(c->conf, path, sizeof(path), err, sizeof(err)) == 0 &&
		strncmp(path, "local:", 6) == 0;
	if (!local && cli_find_conf(c, &conf, err, sizeof(err))) {
		cli_error(c, "%s", err);
		return l.watch ? CLI_FAILED : show(c, &l);
	}
	l.conf = conf ? conf->path : path;
	status = look_at(c, conf, &l, interval);
	free(l.now);
	free(l.before);
	free(l.net);
	free(l.bank_now.rows);
	json_object_put(l.bank);
	conf_free(conf);
	return status;
}

const struct cli_command cmd_status = {
	.name = "status",
	.usage = "[--json] [--watch[=SECONDS]]",
	.summary = "show every server, up or down",
	.run = run_status,
	.options = { { 0, "json", NULL,
		       "for programs: {\"servers\": [...], \"bank\": {...}, \"conf\": PATH}" },
		     { 0, "watch", "[=SECONDS]",
		       "repeat every 2 seconds, or as given, until Ctrl-C, with requests and bytes per second" } },
	.more = "A watch draws over the same place on a terminal; elsewhere it prints one block a look, with --json\n"
		"one object a line. Exit status 1 also means that not all servers are up, or that one has other storage\n"
		"than the map knows; a watch that Ctrl-C ends has 0.\n",
	.examples = "  sheaf status --watch\n"
		    "  sheaf status --json | jq -r '.servers[] | select(.up | not) | .name'\n",
};
