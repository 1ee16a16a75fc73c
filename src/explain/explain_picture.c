/* Draws which bytes of which stripes an access touches: one row per object, its stripes from left
 * to right, cells shaded by the touched fraction. As characters on a terminal, as SVG in a file.
 * With many stripes a cell covers several of them.
 *
 * Threads: one. Buffers: the cells. Errors: -errno. */
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "explain/explain_impl.h"

#define SHADES 5

static const char *const unicode[SHADES] = { "·", "░", "▒", "▓", "█" };
static const char *const ascii[SHADES] = { ".", "-", "+", "%", "#" };
static const char *const meanings[SHADES] = { "nothing", "up to 1/3", "up to 2/3", "more", "all" };

/* ---- cells ---- */

int picture_init(struct explain_picture *p, const struct sheaf_stripes *where, uint64_t begin,
		 uint64_t end, uint32_t cols)
{
	uint64_t unit = where->unit, round = unit * where->n_targets;
	uint64_t first = begin / round, n = (end - 1) / round - first + 1;

	*p = (struct explain_picture){ .rows = where->n_targets,
				       .unit = where->unit,
				       .from = first * unit };
	if (2 * n <= cols) { /* at least one cell and a separator per stripe */
		for (p->cell = 1; (unit + p->cell - 1) / p->cell + (n > 1) > cols / n;)
			p->cell *= 2;
		p->per_stripe = (uint32_t)((unit + p->cell - 1) / p->cell);
		p->cols = p->per_stripe * (uint32_t)n;
	} else {
		p->cell = (n + cols - 1) / cols * unit;
		p->cols = (uint32_t)((n * unit + p->cell - 1) / p->cell);
	}
	p->touched = calloc((size_t)p->rows * p->cols, sizeof(*p->touched));
	return p->touched ? 0 : -ENOMEM;
}

void picture_free(struct explain_picture *p)
{
	free(p->touched);
}

/* The cell of an offset, the offset in the cell, and the length of the cell. */
static uint32_t find_cell(const struct explain_picture *p, uint64_t offset, uint64_t *in,
			  uint64_t *length)
{
	uint64_t stripe = offset / p->unit, rest = offset % p->unit;

	if (!p->per_stripe) {
		*in = offset % p->cell;
		*length = p->cell;
		return (uint32_t)(offset / p->cell);
	}
	*in = rest % p->cell;
	*length = MIN(p->cell, p->unit - rest / p->cell * p->cell);
	return (uint32_t)(stripe * p->per_stripe + rest / p->cell);
}

void picture_touch(struct explain_picture *p, uint32_t row, uint64_t offset, uint64_t length)
{
	uint64_t in, cell, n;
	uint32_t col;

	for (offset -= p->from; length; offset += n, length -= n) {
		col = find_cell(p, offset, &in, &cell);
		n = MIN(length, cell - in);
		if (col < p->cols)
			p->touched[(size_t)row * p->cols + col] += (double)n;
	}
}

double picture_cell(const struct explain_picture *p, uint32_t row, uint32_t col)
{
	uint64_t last = p->unit - (uint64_t)(MAX(p->per_stripe, 1u) - 1) * p->cell;
	bool shorter = p->per_stripe && (col + 1) % p->per_stripe == 0;
	double v = p->touched[(size_t)row * p->cols + col] / (double)(shorter ? last : p->cell);

	return MIN(v, 1.0); /* bytes may be touched twice */
}

/* The touched fraction of the whole row. */
static double row_part(const struct explain_picture *p, uint32_t row)
{
	double sum = 0, all = 0;

	for (uint32_t i = 0; i < p->cols; i++) {
		sum += p->touched[(size_t)row * p->cols + i];
		all += (double)p->cell;
	}
	if (p->per_stripe)
		all = (double)(p->cols / p->per_stripe) * p->unit;
	return MIN(sum / all, 1.0);
}

static void put_percent(char *out, size_t n, double part)
{
	if (part > 0 && part < 0.001)
		snprintf(out, n, "<0.1 %%");
	else
		snprintf(out, n, "%.*f %%", part > 0 && part < 0.1, 100 * part);
}

/* Describes the size of a cell. */
static void scale(const struct explain_picture *p, char *out, size_t n)
{
	char cell[32], unit[32], from[32], to[32];
	uint64_t stripes = p->per_stripe ? p->cols / p->per_stripe : p->cols * (p->cell / p->unit);

	format_size(cell, sizeof(cell), p->cell);
	format_size(unit, sizeof(unit), p->unit);
	format_size(from, sizeof(from), p->from);
	format_size(to, sizeof(to), p->from + stripes * p->unit);
	snprintf(out, n, "%s to %s of each object, stripes of %s, %s a cell", from, to, unit, cell);
}

/* ---- in a terminal ---- */

uint32_t picture_columns(void)
{
	struct winsize w = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_col < 40)
		w.ws_col = 80;
	return w.ws_col;
}

static bool speaks_utf8(void)
{
	locale_t l = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
	bool yes = l && strcmp(nl_langinfo_l(CODESET, l), "UTF-8") == 0;

	if (l)
		freelocale(l);
	return yes;
}

static int shade(double part)
{
	if (part <= 0)
		return 0;
	return part >= 1 ? 4 : part > 2.0 / 3 ? 3 : part > 1.0 / 3 ? 2 : 1;
}

void picture_print(const struct explain_picture *p, const char *const *names)
{
	bool utf8 = speaks_utf8();
	const char *const *marks = utf8 ? unicode : ascii;
	char text[192];
	int w = 0;

	for (uint32_t r = 0; r < p->rows; r++)
		w = MAX(w, (int)strlen(names[r]));
	for (uint32_t r = 0; r < p->rows; r++) {
		printf("  %-*s  ", w, names[r]);
		for (uint32_t i = 0; i < p->cols; i++) {
			if (i && p->per_stripe && i % p->per_stripe == 0)
				fputs(utf8 ? "│" : "|", stdout);
			fputs(marks[shade(picture_cell(p, r, i))], stdout);
		}
		put_percent(text, sizeof(text), row_part(p, r));
		printf("  %s\n", text);
	}
	printf("  %-*s  ", w, "");
	for (int i = 0; i < SHADES; i++)
		printf("%s %s%s", marks[i], meanings[i], i + 1 < SHADES ? "   " : "\n");
	scale(p, text, sizeof(text));
	printf("  %-*s  %s\n", w, "", text);
}

/* ---- as SVG ---- */

#define WIDTH 960.0
#define LEFT 120.0
#define RIGHT 70.0
#define TOP 58.0
#define ROW 26.0
#define BOTTOM 46.0

/* Twenty shades by the touched fraction; any touched cell is visible. */
static int svg_step(double part)
{
	return part <= 0 ? 0 : MAX((int)(part * 20), 1);
}

static void svg_row(FILE *f, const struct explain_picture *p, uint32_t row, const char *name)
{
	double w = (WIDTH - LEFT - RIGHT) / p->cols, y = TOP + ROW * row;
	char text[32];
	uint32_t n;

	cli_put_svg(f, LEFT - 10, y + 16, "text-anchor=\"end\"", name);
	for (uint32_t i = 0; i < p->cols; i += n) {
		int step = svg_step(picture_cell(p, row, i));

		for (n = 1; i + n < p->cols && svg_step(picture_cell(p, row, i + n)) == step;)
			n++;
		if (step)
			fprintf(f,
				"<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" "
				"fill-opacity=\"%.2f\"/>\n",
				LEFT + i * w, y, n * w, ROW - 6, 0.15 + 0.85 * step / 20);
	}
	put_percent(text, sizeof(text), row_part(p, row));
	cli_put_svg(f, WIDTH - RIGHT + 8, y + 16, "", text);
}

static void svg_frame(FILE *f, const struct explain_picture *p, uint32_t row)
{
	double w = (WIDTH - LEFT - RIGHT) / p->cols, y = TOP + ROW * row;

	fprintf(f, "<path d=\"M%.1f %.1fh%.1fv%.0fh%.1fz", LEFT, y, WIDTH - LEFT - RIGHT, ROW - 6,
		-(WIDTH - LEFT - RIGHT));
	for (uint32_t i = p->per_stripe; p->per_stripe && i < p->cols; i += p->per_stripe)
		fprintf(f, "M%.2f %.1fv%.0f", LEFT + i * w, y, ROW - 6);
	fputs("\" class=\"line\"/>\n", f);
}

int picture_svg(const struct explain_picture *p, const char *const *names, const char *title,
		const char *path)
{
	double height = TOP + ROW * p->rows + BOTTOM;
	FILE *f = fopen(path, "we");
	char text[192];
	bool bad;

	if (!f)
		return -errno;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
		"<style>.line{fill:none;stroke:#8a949e;stroke-width:1}.title{font-size:15px;"
		"font-weight:bold}.small{fill:#5f6b76}rect{fill:#1b6ca8}</style>\n"
		"<path d=\"M0 0h%.0fv%.0fh-%.0fz\" fill=\"#fff\"/>\n",
		WIDTH, height, WIDTH, height, WIDTH, height, WIDTH);
	cli_put_svg(f, 12, 24, "class=\"title\"", title);
	scale(p, text, sizeof(text));
	cli_put_svg(f, 12, 44, "class=\"small\"", text);
	for (uint32_t r = 0; r < p->rows; r++) {
		svg_row(f, p, r, names[r]);
		svg_frame(f, p, r);
	}
	for (int i = 0; i <= 4; i++) {
		double x = LEFT + i * 90;

		fprintf(f,
			"<rect x=\"%.0f\" y=\"%.0f\" width=\"14\" height=\"14\" fill-opacity=\"%.2f\"/>\n",
			x, height - 30, i ? 0.15 + 0.85 * i / 4 : 0);
		fprintf(f, "<path d=\"M%.0f %.0fh14v14h-14z\" class=\"line\"/>\n", x, height - 30);
		snprintf(text, sizeof(text), "%d %%", 25 * i);
		cli_put_svg(f, x + 20, height - 19, "class=\"small\"", text);
	}
	fputs("</svg>\n", f);
	bad = ferror(f);
	return fclose(f) ? -errno : bad ? -EIO : 0;
}
