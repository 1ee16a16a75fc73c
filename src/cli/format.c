/* Text output: modes, times, speeds, tables; JSON names. Pure functions, except for the output. */
#include <assert.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

static const struct file_type {
	mode_t type;
	char letter;
	const char *name;
} file_types[] = {
	{ S_IFDIR, 'd', "directory" },
	{ S_IFLNK, 'l', "symbolic link" },
	{ S_IFCHR, 'c', "character device" },
	{ S_IFBLK, 'b', "block device" },
	{ S_IFIFO, 'p', "fifo" },
	{ S_IFSOCK, 's', "socket" },
	{ S_IFREG, '-', "regular file" }, /* the last: what all other modes are taken for */
};

static const struct file_type *find_type(mode_t mode)
{
	const struct file_type *t = file_types;

	while (t->type != (mode & S_IFMT) && t->type != S_IFREG)
		t++;
	return t;
}

void cli_mode_string(char out[11], mode_t mode)
{
	static const struct {
		mode_t bit;
		int at; /* index of the x that it is combined with */
		char with, without;
	} special[] = { { S_ISUID, 3, 's', 'S' },
			{ S_ISGID, 6, 's', 'S' },
			{ S_ISVTX, 9, 't', 'T' } };

	out[0] = find_type(mode)->letter;
	for (int i = 0; i < 9; i++)
		out[1 + i] = mode & (0400 >> i) ? "rwx"[i % 3] : '-';
	for (size_t i = 0; i < ARRAY_LEN(special); i++)
		if (mode & special[i].bit)
			out[special[i].at] = out[special[i].at] == 'x' ? special[i].with :
									 special[i].without;
	out[10] = 0;
}

const char *cli_type_name(mode_t mode)
{
	return find_type(mode)->name;
}

void cli_duration(char *out, size_t n, uint64_t ns)
{
	uint64_t s = ns / NSEC_PER_SEC;

	if (ns < NSEC_PER_MSEC)
		snprintf(out, n, "%u us", (unsigned)(ns / 1000));
	else if (s < 1)
		snprintf(out, n, "%u ms", (unsigned)(ns / NSEC_PER_MSEC));
	else if (s < 60)
		snprintf(out, n, "%u s", (unsigned)s);
	else if (s < 3600)
		snprintf(out, n, "%um %us", (unsigned)(s / 60), (unsigned)(s % 60));
	else if (s < 86400)
		snprintf(out, n, "%uh %um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
	else
		snprintf(out, n, "%llud %uh", (unsigned long long)(s / 86400),
			 (unsigned)(s / 3600 % 24));
}

void cli_time(char *out, size_t n, double ns)
{
	double v = ns / 1e3;
	const char *unit = "us";

	if (v >= 1e6) {
		v /= 1e6;
		unit = "s";
	} else if (v >= 1e3) {
		v /= 1e3;
		unit = "ms";
	}
	snprintf(out, n, "%.*f %s", v < 10 ? 2 : v < 100 ? 1 : 0, v, unit);
}

void cli_date(char *out, size_t n, const struct timespec *t, time_t now)
{
	const time_t half_year = 31556952 / 2;
	bool recent = t->tv_sec <= now && t->tv_sec > now - half_year;
	struct tm tm;

	if (!localtime_r(&t->tv_sec, &tm) ||
	    !strftime(out, n, recent ? "%b %e %H:%M" : "%b %e  %Y", &tm))
		snprintf(out, n, "?");
}

void cli_speed(char *out, size_t n, uint64_t bytes, uint64_t ns)
{
	char size[32];

	format_size(size, sizeof(size), (uint64_t)((double)bytes * 1e9 / (double)MAX(ns, 1)));
	snprintf(out, n, "%s/s", size);
}

void cli_paint(const char *text)
{
	struct winsize w = { 0 };
	int n;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_row < 2 || w.ws_col < 2)
		w = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	fputs("\033[H", stdout);
	for (int row = 1; *text && row < w.ws_row; row++) {
		n = (int)strcspn(text, "\n");
		printf("%.*s\033[K\n", MIN(n, w.ws_col - 1), text);
		text += n + (text[n] == '\n');
	}
	fputs("\033[J", stdout);
}

void cli_put_name(FILE *f, const char *name)
{
	if (!isatty(fileno(f))) {
		fputs(name, f);
		return;
	}
	for (; *name; name++)
		fputc((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name, f);
}

/* The length of the UTF-8 character at s, by the rules of JSON; 0: invalid. */
static size_t utf8_length(const unsigned char *s)
{
	static const struct {
		unsigned char mask, head;
		uint32_t min;
	} forms[] = {
		{ 0x80, 0, 0 }, { 0xe0, 0xc0, 0x80 }, { 0xf0, 0xe0, 0x800 }, { 0xf8, 0xf0, 0x10000 }
	};
	uint32_t c;
	size_t n = 0, i;

	while (n < ARRAY_LEN(forms) && (s[0] & forms[n].mask) != forms[n].head)
		n++;
	if (n == ARRAY_LEN(forms))
		return 0;
	c = s[0] & (unsigned char)~forms[n].mask;
	for (i = 1; i <= n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c < forms[n].min || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n + 1;
}

struct json_object *cli_json_name(const char *name)
{
	char text[3 * CLI_PATH_MAX];
	size_t len = 0, n;

	for (; *name; name += MAX(n, 1)) {
		n = utf8_length((const unsigned char *)name);
		memcpy(text + len, n ? name : "\xef\xbf\xbd", n ? n : 3);
		len += n ? n : 3;
	}
	return json_object_new_string_len(text, (int)len);
}

static void add_time(struct json_object *o, const char *key, const struct timespec *t)
{
	char ns[24];

	snprintf(ns, sizeof(ns), "%s_ns", key);
	cli_json_double(o, key, (double)t->tv_sec + (double)t->tv_nsec / 1e9);
	cli_json_int(o, ns, t->tv_sec * (int64_t)NSEC_PER_SEC + t->tv_nsec);
}

struct json_object *cli_stat_json(const char *path, const struct stat *st, const char *target)
{
	struct json_object *o = json_object_new_object();
	char mode[16];

	snprintf(mode, sizeof(mode), "%04o", st->st_mode & 07777);
	json_object_object_add(o, "path", cli_json_name(path));
	cli_json_text(o, "type", cli_type_name(st->st_mode));
	if (target[0])
		json_object_object_add(o, "target", cli_json_name(target));
	cli_json_text(o, "mode", mode);
	cli_json_uint(o, "ino", st->st_ino);
	cli_json_uint(o, "nlink", st->st_nlink);
	cli_json_int(o, "uid", st->st_uid);
	cli_json_int(o, "gid", st->st_gid);
	cli_json_int(o, "size", st->st_size);
	cli_json_int(o, "blocks", st->st_blocks);
	add_time(o, "atime", &st->st_atim);
	add_time(o, "mtime", &st->st_mtim);
	add_time(o, "ctime", &st->st_ctim);
	return o;
}

/* ---- tables ---- */

void cli_table_init(struct cli_table *t, const char *const *heads, size_t n_cols)
{
	assert(n_cols <= CLI_MAX_COLUMNS);
	*t = (struct cli_table){ .heads = heads, .n_cols = n_cols };
}

void cli_table_add(struct cli_table *t, const char *fmt, ...)
{
	va_list ap;

	if (!t->f)
		t->f = open_memstream(&t->text, &t->len);
	t->failed |= !t->f;
	if (!t->f)
		return;
	va_start(ap, fmt);
	vfprintf(t->f, fmt, ap);
	va_end(ap);
	fputc('\t', t->f);
}

static void put_cell(const struct cli_table *t, size_t col, const char *text, int width, FILE *f)
{
	int n = (int)strcspn(text, "\t");
	bool last = col + 1 == t->n_cols;

	if (t->heads[col][0] == '>')
		fprintf(f, "%*.*s%s", width, n, text, last ? "\n" : "  ");
	else if (last)
		fprintf(f, "%.*s\n", n, text);
	else
		fprintf(f, "%-*.*s  ", width, n, text);
}

int cli_table_print(struct cli_table *t, FILE *f)
{
	const char *text, *cell;
	int width[CLI_MAX_COLUMNS];
	size_t i;

	if (t->f) {
		t->failed |= ferror(t->f) != 0;
		t->failed |= fclose(t->f) != 0;
	}
	text = t->text && !t->failed ? t->text : "";
	for (i = 0; i < t->n_cols; i++)
		width[i] = (int)strlen(t->heads[i]) - (t->heads[i][0] == '>');
	for (i = 0, cell = text; *cell; i++, cell = strchr(cell, '\t') + 1)
		width[i % t->n_cols] = MAX(width[i % t->n_cols], (int)strcspn(cell, "\t"));
	for (i = 0; i < t->n_cols && !t->failed; i++)
		put_cell(t, i, t->heads[i] + (t->heads[i][0] == '>'), width[i], f);
	for (i = 0, cell = text; *cell; i++, cell = strchr(cell, '\t') + 1)
		put_cell(t, i % t->n_cols, cell, width[i % t->n_cols], f);
	free(t->text);
	return t->failed ? -ENOMEM : 0;
}

void cli_json_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, json_object_new_string(text));
}

void cli_json_int(struct json_object *o, const char *key, int64_t v)
{
	json_object_object_add(o, key, json_object_new_int64(v));
}

void cli_json_uint(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

void cli_json_known(struct json_object *o, const char *key, bool known, uint64_t v)
{
	json_object_object_add(o, key, known ? json_object_new_uint64(v) : NULL);
}

void cli_json_double(struct json_object *o, const char *key, double v)
{
	json_object_object_add(o, key, json_object_new_double(v));
}

void cli_json_bool(struct json_object *o, const char *key, bool v)
{
	json_object_object_add(o, key, json_object_new_boolean(v));
}

void cli_json_print(struct json_object *o, int form)
{
	puts(json_object_to_json_string_ext(o, form | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

void cli_put_xml(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '<')
			fputs("&lt;", f);
		else if (*s == '&')
			fputs("&amp;", f);
		else
			fputc(*s, f);
	}
}

void cli_put_svg(FILE *f, double x, double y, const char *attributes, const char *text)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
	cli_put_xml(f, text);
	fputs("</text>\n", f);
}
