/* sheaf bench --report DIR: one self-contained page (index.html), each plot as an SVG file, and the
 * results for programs (bench.json). Also collects the conditions of a run.
 * Errors: the first error of writing. */
#include "bench/bench_report.h"

#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- conditions ---- */

static void cpu_name(char *out, size_t n)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];

	out[0] = 0;
	while (f && !out[0] && fgets(line, sizeof(line), f))
		if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
			snprintf(out, n, "%.100s", strchr(line, ':') + 2);
	out[strcspn(out, "\n")] = 0;
	if (f)
		fclose(f);
}

static void put_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, text[0] ? json_object_new_string(text) : NULL);
}

static struct json_object *machine_json(void)
{
	struct json_object *o = json_object_new_object();
	struct utsname u;
	char cpu[128];

	cpu_name(cpu, sizeof(cpu));
	put_text(o, "cpu", cpu);
	if (uname(&u) == 0) {
		put_text(o, "arch", u.machine);
		put_text(o, "kernel", u.release);
	}
	cli_json_int(o, "cores", sysconf(_SC_NPROCESSORS_ONLN));
	cli_json_int(o, "memory_bytes", sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
	return o;
}

static bool used_before(struct bench *b, size_t n, uint32_t clients)
{
	for (size_t i = 0; i < n; i++)
		if (b->rows[i].clients == clients)
			return true;
	return clients == 0;
}

struct json_object *bench_conditions(struct bench *b)
{
	struct json_object *o = json_object_new_object(), *s = json_object_new_object(),
			   *clients = json_object_new_array();
	char now[32] = "";
	time_t t = time(NULL);
	struct tm tm;

	if (gmtime_r(&t, &tm))
		strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", &tm);
	put_text(o, "date", now);
	put_text(o, "version", CLI_VERSION);
	json_object_object_add(o, "machine", machine_json());
	put_text(o, "backend", b->shown.medium);
	cli_json_int(o, "hosts", b->shown.hosts);
	put_text(o, "rate", b->shown.rate ? b->shown.rate : "");
	put_text(o, "delay", b->delay ? b->delay : "");
	cli_json_int(o, "servers", b->shown.servers);
	cli_json_int(o, "metadata_servers", b->shown.metas);
	for (size_t i = 0; i < b->n_rows; i++)
		if (!used_before(b, i, b->rows[i].clients))
			json_object_array_add(clients,
					      json_object_new_int((int)b->rows[i].clients));
	json_object_object_add(o, "clients", clients);
	put_text(s, "filesystem", b->place.fs_type);
	put_text(s, "directory", b->place.storage);
	json_object_object_add(s, "in_memory",
			       b->place.in_memory || b->place.on_disk ?
				       json_object_new_boolean(b->place.in_memory) :
				       NULL);
	cli_json_bool(s, "temporary", b->place.own);
	json_object_object_add(o, "storage", s);
	cli_json_int(o, "rounds", b->shown.rounds);
	json_object_object_add(o, "seconds_per_measurement",
			       json_object_new_double_s((double)b->slice_ns / 1e9, "0.2"));
	return o;
}

/* ---- the page ---- */

static const char *const head =
	"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	"<title>Sheaf benchmarks</title>\n<style>\n"
	":root{color-scheme:light}\n"
	"body{font:16px/1.5 system-ui,'DejaVu Sans',sans-serif;color:#222;background:#fff;"
	"max-width:56rem;margin:0 auto;padding:1rem}\n"
	"h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.25rem;margin:2rem 0 .3rem;"
	"border-bottom:2px solid #1b6ca8}\n"
	"p{margin:.4rem 0 .8rem}figure{margin:.8rem 0;break-inside:avoid}"
	"figure svg{display:block;width:100%;height:auto}\n"
	"pre{font-size:.8rem;line-height:1.3;overflow-x:auto}\n"
	".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}"
	"th,td{padding:.2rem .7rem;text-align:left;border-bottom:1px solid #ddd}"
	"td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
	".ok{color:#17663f;font-weight:600}.no{color:#a3210f;font-weight:600}"
	"dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.5rem 0}"
	"dt{color:#555}dd{margin:0}summary{cursor:pointer;color:#1b6ca8;margin:.4rem 0}\n"
	"@media print{body{font-size:11px;max-width:none;padding:0}h2{break-after:avoid}"
	"details{display:block}}\n"
	"</style>\n</head>\n<body>\n";

static void put_conditions(FILE *f, struct bench *b)
{
	const struct bench_place *p = &b->place;
	char cpu[128], hosts[128], now[64] = "";
	struct utsname u = { 0 };
	time_t t = time(NULL);
	struct tm tm;

	cpu_name(cpu, sizeof(cpu));
	bench_hosts_text(b, hosts, sizeof(hosts));
	uname(&u);
	if (localtime_r(&t, &tm))
		strftime(now, sizeof(now), "%e %B %Y, %H:%M", &tm);
	fprintf(f, "<dl><dt>machine</dt><dd>");
	cli_put_xml(f, cpu);
	fprintf(f, "%s%s, %ld cores, %.0f GiB, Linux ", cpu[0] ? ", " : "", u.machine,
		sysconf(_SC_NPROCESSORS_ONLN),
		(double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (double)MIB /
			1024);
	cli_put_xml(f, u.release);
	fprintf(f,
		"</dd>\n<dt>servers</dt><dd>%d, %d with metadata, over %s%s</dd>\n<dt>storage</dt><dd>",
		b->shown.servers, b->shown.metas, b->shown.medium, hosts);
	cli_put_xml(f, p->fs_type);
	if (p->in_memory || p->on_disk)
		fprintf(f, " (%s)", p->in_memory ? "in memory" : "on disk");
	fprintf(f,
		"</dd>\n<dt>method</dt><dd>%d round%s; every round measures everything once, a ratio is "
		"taken within a round, and what is judged is the median of those ratios. Whiskers reach "
		"from the lowest to the highest round.</dd>\n<dt>date</dt><dd>%s</dd></dl>\n",
		b->shown.rounds, b->shown.rounds == 1 ? "" : "s", now);
}

static void put_bars(FILE *f, struct bench *b)
{
	if (!b->n_bars)
		return;
	fputs("<h2>Targets of Sheaf, on this machine</h2>\n<p>Each figure is a ratio to what this "
	      "machine does without Sheaf, measured in the same run. A missed target on an idle "
	      "machine shows where Sheaf leaves speed unused; on a busy one it may be noise: "
	      "compare the lowest and the highest round.</p>\n<div class=\"wide\"><table><tr>"
	      "<th>figure</th><th class=\"n\">value</th><th class=\"n\">lowest – highest</th>"
	      "<th>target</th><th></th></tr>\n",
	      f);
	for (size_t i = 0; i < b->n_bars; i++) {
		const struct bench_bar *bar = &b->bars[i];
		bool ok = bench_bar_ok(bar);

		fprintf(f,
			"<tr><td>%s</td><td class=\"n\">%.3g</td><td class=\"n\">%.3g – %.3g</td>"
			"<td>%s %g</td><td class=\"%s\">%s</td></tr>\n",
			bar->row->what, bar->row->median, bar->row->min, bar->row->max,
			bench_senses[bar->sense], bar->need, ok ? "ok" : "no",
			ok ? "✓" : "✗ missed");
	}
	fputs("</table></div>\n", f);
}

static void put_number(FILE *f, double v)
{
	char text[32];

	bench_number_text(text, sizeof(text), v);
	fprintf(f, "<td class=\"n\">%s</td>", text);
}

static void put_rows(FILE *f, struct bench *b, const char *name)
{
	char what[256];

	fputs("<details><summary>All figures</summary><div class=\"wide\"><table><tr><th>case</th>"
	      "<th class=\"n\">median</th><th class=\"n\">lowest</th><th class=\"n\">highest</th>"
	      "<th>unit</th></tr>\n",
	      f);
	for (size_t i = 0; i < b->n_rows; i++) {
		const struct bench_row *r = &b->rows[i];

		if (r->bench != name)
			continue;
		bench_row_text(what, sizeof(what), r);
		fputs("<tr><td>", f);
		cli_put_xml(f, what);
		if (r->derived) {
			fputs(": ", f);
			cli_put_xml(f, r->of);
			cli_put_xml(f, r->to[0] ? " / " : "");
			cli_put_xml(f, r->to);
			cli_put_xml(f, r->paper ? "; the paper: " : "");
			cli_put_xml(f, r->paper ? r->paper : "");
		}
		fputs("</td>", f);
		put_number(f, r->median);
		put_number(f, r->min);
		put_number(f, r->max);
		fprintf(f, "<td>%s</td></tr>\n", report_unit(r->unit));
	}
	fputs("</table></div></details>\n", f);
}

static void put_kind(FILE *f, struct bench *b, const struct bench_kind *k)
{
	bool any = false;

	for (size_t i = 0; i < b->n_rows; i++)
		any |= b->rows[i].bench == k->name;
	if (!any)
		return;
	fprintf(f, "<h2 id=\"%s\">%s</h2>\n<p>", k->name, k->name);
	cli_put_xml(f, k->summary);
	fputs(".</p>\n", f);
	if (k->about) {
		fputs("<pre>", f);
		cli_put_xml(f, k->about);
		fputs("</pre>\n", f);
	}
	for (size_t i = 0; i < b->n_plots; i++) {
		if (b->plots[i].bench != k->name)
			continue;
		fputs("<figure>\n", f);
		report_svg(f, &b->plots[i]);
		fputs("</figure>\n", f);
	}
	put_rows(f, b, k->name);
}

static void put_page(FILE *f, struct bench *b)
{
	fputs(head, f);
	fputs("<h1>Sheaf benchmarks</h1>\n", f);
	put_conditions(f, b);
	put_bars(f, b);
	for (const struct bench_kind *const *k = bench_kinds; *k; k++)
		put_kind(f, b, *k);
	fputs("</body>\n</html>\n", f);
}

/* ---- files ---- */

/* A file appears under its name complete or not at all. */
struct page {
	FILE *f;
	char path[CLI_PATH_MAX], temporary[CLI_PATH_MAX + 8];
};

static int page_open(struct page *p, const char *dir, const char *name, const char *end)
{
	if (snprintf(p->path, sizeof(p->path), "%s/%s%s", dir, name, end) >= (int)sizeof(p->path))
		return -ENAMETOOLONG;
	snprintf(p->temporary, sizeof(p->temporary), "%s.part", p->path);
	p->f = fopen(p->temporary, "we");
	return p->f ? 0 : -errno;
}

static int page_close(struct page *p)
{
	int r = fflush(p->f) ? -errno : 0;

	if (!r && ferror(p->f)) /* an earlier write failed, mostly on a full disk */
		r = -ENOSPC;
	if (fclose(p->f) && !r)
		r = -errno;
	if (!r && rename(p->temporary, p->path))
		r = -errno;
	if (r)
		unlink(p->temporary);
	return r;
}

/* Creates DIR and its missing parents. */
static int make_dirs(const char *dir)
{
	char path[CLI_PATH_MAX];

	if (!dir[0] || strlen(dir) >= sizeof(path))
		return dir[0] ? -ENAMETOOLONG : -ENOENT;
	strcpy(path, dir);
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		mkdir(path, 0777);
		*p = '/';
	}
	return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : -errno;
}

int bench_report(struct bench *b, const char *dir, struct json_object *json)
{
	int r = make_dirs(dir);
	struct page p;

	for (size_t i = 0; !r && i < b->n_plots; i++) {
		r = page_open(&p, dir, b->plots[i].name, ".svg");
		if (r)
			break;
		report_svg(p.f, &b->plots[i]);
		r = page_close(&p);
	}
	if (!r)
		r = page_open(&p, dir, "bench", ".json");
	if (!r) {
		fprintf(p.f, "%s\n",
			json_object_to_json_string_ext(
				json, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
		r = page_close(&p);
	}
	if (!r)
		r = page_open(&p, dir, "index", ".html");
	if (!r) {
		put_page(p.f, b);
		r = page_close(&p);
	}
	return r;
}
